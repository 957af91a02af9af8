"""A plugin of pytest's that runs the tests that look for faults, and tells what became of them.

The environment says for which faults (:data:`LOOKED_FOR`), and where to write what was seen (:data:`SEEN`).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.of_tests.faults import FAULTS

#: The names of the faults, separated by commas.
LOOKED_FOR = "TEST_OF_TESTS_FAULTS"
#: The file to which :class:`Seen` is written.
SEEN = "TEST_OF_TESTS_SEEN"
#: What a comparison of the engines tells of code that Python cannot run: any test would find such a fault.
_CRASHES = ("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "TypeError")


@dataclass
class Seen:
    """What a run of pytest was like.

    :param package: the folder that the package was imported from.
    :param passed: how many tests passed.
    :param failed: the tests that found another outcome than they ask for.
    :param broken: tests and modules that ended otherwise: errors of collection, imports, fixtures or the code itself.
    """

    package: str = ""
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Seen:
        """From a run's file; without one, the run ended before it began."""
        return cls(**json.loads(path.read_text())) if path.exists() else cls(broken=["pytest itself"])


_seen = Seen()


def pytest_configure() -> None:
    # Several failures of a property would come as a group, which is no assertion.
    settings.register_profile("test of tests", report_multiple_bugs=False)
    settings.load_profile("test of tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = os.environ[LOOKED_FOR].split(",")
    faults = [fault for fault in FAULTS if fault.name in names]
    wanted = [item for item in items if any(fault.is_looked_for_by(item.nodeid) for fault in faults)]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _seen.broken.append(report.nodeid)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    error = call.excinfo
    if error is None:
        _seen.passed += call.when == "call"
    elif error.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)):
        return
    elif call.when == "call" and _is_difference(error):
        _seen.failed.append(item.nodeid)
    else:
        _seen.broken.append(item.nodeid)


def _is_difference(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether the test found another outcome than the one it asks for, rather than trouble on the way there."""
    is_assertion = error.errisinstance((AssertionError, pytest.fail.Exception))
    return is_assertion and not any(f"{name}:" in str(error.value) for name in _CRASHES)


def pytest_sessionfinish() -> None:
    import airflow_delta_merge

    _seen.package = str(Path(airflow_delta_merge.__file__).parent)
    Path(os.environ[SEEN]).write_text(json.dumps(asdict(_seen)))
