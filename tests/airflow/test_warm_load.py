"""Many merges in kept Sparks: by a real scheduler, with kills at random moments, and hundreds through one Spark."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update, when_not_matched_insert_all
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from tests.airflow import tables
from tests.airflow.conftest import SPARK
from tests.airflow.once import Once, applied, running
from tests.airflow.processes import naming
from tests.faults.chaos import SETTINGS
from tests.turns import seed_of_commit

pytestmark = pytest.mark.slow

KILLS = 30
MERGES = 500
#: By then Spark has filled what it keeps of merges that are done, and its pools of threads.
WARMED_UP = 200


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="w-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def airflow(home: Path) -> Iterator[Once]:
    (home / "a").mkdir()
    with running(home / "a", SETTINGS | {"core": {"parallelism": 4}}) as airflow:
        airflow.start("triggerer --skip-serve-logs")
        yield airflow
        for process in spark(airflow.temporary):
            process.kill()


def spark(temporary: Path) -> list[psutil.Process]:
    """The kept Sparks, and what starts them and waits for their merges."""
    return naming(f"{temporary}/airflow_delta_merge_")


def tasks() -> list[psutil.Process]:
    """The processes in which tasks run, as Airflow titles them.

    Not LocalExecutor's own: killed while it waits for work, one leaves the others' queue locked for ever.
    """
    titles = {each: " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])}
    return [each for each, title in titles.items() if re.match("airflow worker -- (?!LocalExecutor)", title)]


@pytest.mark.parametrize("dag", ["once_warm", "once_warm_deferrable"])
def test_sixty_merges_into_twenty_tables_by_a_scheduler(airflow: Once, dag: str) -> None:
    targets = [airflow.table(f"{dag}_{number}") for number in range(20)]
    begun = time.monotonic()
    airflow.trigger(dag, "sixty", tables=[str(each) for each in targets] * 3)
    airflow.run_ended(dag, "sixty")
    print(f"{dag}: 60 merges into 20 tables in {time.monotonic() - begun:.0f} s, scheduler included")
    assert [applied(each) for each in targets] == [3] * 20
    airflow.wait(lambda: airflow.left() == [])  # the Spark's idle time is over


def test_killed_at_random_moments_each_merge_is_applied_once(airflow: Once) -> None:
    target, seed = airflow.table("killed"), seed_of_commit()
    chance = random.Random(seed)
    killed = 0
    for run in range(KILLS):
        dag = ("once_warm", "once_warm_deferrable")[run % 2]
        airflow.trigger(dag, f"kill{run}", tables=[str(target)])
        airflow.wait(tasks)
        time.sleep(chance.uniform(0, 6))
        victims = [*tasks(), *spark(airflow.temporary)]
        with suppress(psutil.NoSuchProcess):
            if victims:
                chance.choice(victims).kill()
                killed += 1
        airflow.run_ended(dag, f"kill{run}")
        assert applied(target) == run + 1, f"seed {seed}"
    print(f"seed {seed}: {killed} of {KILLS} kills hit a process")
    assert killed >= KILLS // 2
    airflow.wait(lambda: spark(airflow.temporary) == [])  # folders of killed ones stay until a later merge


def test_hundreds_of_merges_leave_nothing_in_a_kept_spark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = home / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    targets = [tables.create_table(home / f"of_hundreds_{number}", {"id": "long", "n": "long"}) for number in range(4)]

    def merge(number: int) -> str:
        ids: list[str] = []
        config = MergeConfig(
            target=str(targets[number % 4]),
            source="SELECT id, 1L AS n FROM range(3)",
            on=["id"],
            clauses=[when_matched_update(set={"n": "target.n + source.n"}), when_not_matched_insert_all()],
        )
        hook = DeltaMergeHook(conf=SPARK, keep_warm=60)
        hook.merge(config, on_application=lambda application: ids.append(application.id))
        return ids[0]

    with ThreadPoolExecutor(4) as pool:
        first = {*pool.map(merge, range(WARMED_UP))}
        before = _use(temporary)
        rest = {*pool.map(merge, range(WARMED_UP, MERGES))}
        after = _use(temporary)
    print(f"after {WARMED_UP} merges {before}, after {MERGES} {after}")
    assert len(first | rest) == 1, "one Spark took them all"
    assert after["threads"] <= before["threads"] + 10
    assert after["open files"] <= before["open files"] + 10
    assert after["temporary files"] <= before["temporary files"] + 10
    assert after["megabytes"] <= before["megabytes"] + 150
    for process in spark(temporary):
        process.kill()


def _use(temporary: Path) -> dict[str, int]:
    """What the kept Spark's processes use, idle."""
    time.sleep(8)  # it collects its garbage after five seconds
    processes = spark(temporary)
    return {
        "threads": sum(each.num_threads() for each in processes),
        "open files": sum(each.num_fds() for each in processes),
        "megabytes": sum(each.memory_info().rss for each in processes) >> 20,
        "temporary files": sum(len(files) for _, _, files in os.walk(temporary)),
    }
