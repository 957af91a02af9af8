"""How pytest-xdist spreads the tests over its workers (``--dist loadgroup``).

One worker runs a whole group, one test after the other. A group is what has the same ``xdist_group`` mark, else a
module, because a module's fixtures can be expensive (the demo, a Spark with a class of its own), else a folder whose
modules share one Airflow. Differential tests and parts of the fuzz share nothing but the session: each is a group.
Workers take the groups in the order of the tests: long ones first and single tests last, so that no worker is left
alone with a long group at the end.

An Airflow waits half of its time, so more workers than cores begin. With single tests of Spark, which never waits, more
workers than cores get less done (197 such tests take 1.14 times the time on two cores): when these come, as many stay
as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[1]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

#: Folders whose modules share a fixture of the scope "package".
FOLDERS = ("tests/airflow/scheduled",)

#: The groups that take longest: half a minute to three minutes of processor time each. The others follow in the order
#: of their names, which ends with the short modules of tests/unit.
LONGEST = (
    "tests/airflow/scheduled",
    "tests/fuzz/test_fuzz.py",
    "tests/demo/test_dag.py",
    "tests/airflow/test_hook.py",
    "tests/airflow/test_dags.py",
    "tests/airflow/test_death.py",
    "tests/faults/test_exactly_once.py",
    "tests/faults/test_storage.py",
    "tests/airflow/test_hostile.py",
)


def group_of(nodeid: str) -> str:
    """The group of a test that has no ``xdist_group`` mark."""
    module = nodeid.partition("::")[0]
    if _is_taken_apart(module):
        return nodeid
    return next((folder for folder in FOLDERS if module.startswith(f"{folder}/")), module)


def place_of(nodeid: str) -> int:
    """By what tests are sorted, so that long groups begin first and single tests fill up the rest."""
    group = group_of(nodeid)
    for named in (group, nodeid.partition("::")[0]):
        if named in LONGEST:
            return LONGEST.index(named)
    return len(LONGEST) + (group == nodeid)


def scheduling(config: pytest.Config, log: Any) -> Any:
    """What gives each worker whole groups, in the order of the tests."""
    from xdist.scheduler import LoadGroupScheduling  # not there in every environment that runs tests

    class GroupScheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            marked = super()._split_scope(nodeid)  # the test itself, if it has no mark
            return group_of(nodeid) if marked == nodeid else str(marked)

        def _reschedule(self, node: Any) -> None:
            others = [each for each in self.nodes if each is not node and not each.shutting_down]
            if self.workqueue and is_spare(next(iter(self.workqueue)), map(self._pending_groups, others)):
                node.shutdown()
            else:
                super()._reschedule(node)

        def _pending_groups(self, node: Any) -> list[str]:
            return [group for group, tests in self.assigned_work[node].items() if not all(tests.values())]

    return GroupScheduling(config, log)


def is_spare(group: str, of_others: Iterable[Iterable[str]], cores: int = CORES) -> bool:
    """Whether a worker that would take a group next had better end, as others keep each core busy.

    :param of_others: what each other worker has to do.
    """
    return _never_waits(group) and sum(any(map(_never_waits, groups)) for groups in of_others) >= cores


def _never_waits(group: str) -> bool:
    """Whether a group is one of those that come last: a single test of a Spark that is busy all the time."""
    return group.startswith("tests/differential/") and "::" in group


@cache
def _is_taken_apart(module: str) -> bool:
    """Whether any worker may run any test of the module: no fixture is made for the module as a whole."""
    if not module.startswith(("tests/differential/", "tests/fuzz/")):
        return False
    source = ROOT / module
    return source.exists() and 'scope="module"' not in source.read_text("utf-8")
