"""Many merges in a kept Spark, by a real scheduler."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow.once import Once, applied, running
from tests.airflow.processes import naming

pytestmark = pytest.mark.slow


@pytest.fixture
def airflow() -> Iterator[Once]:
    """An Airflow in a folder whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="w-"))
    with running(folder, {"core": {"parallelism": 4}}) as airflow:
        yield airflow
        for process in naming(f"{airflow.temporary}/airflow_delta_merge_"):
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def test_sixty_merges_into_twenty_tables_by_a_scheduler(airflow: Once) -> None:
    targets = [airflow.table(f"t{number}") for number in range(20)]
    begun = time.monotonic()
    airflow.trigger("once_warm", "sixty", tables=[str(each) for each in targets] * 3)
    airflow.run_ended("once_warm", "sixty")
    print(f"60 merges into 20 tables in {time.monotonic() - begun:.0f} s, scheduler included")
    assert [applied(each) for each in targets] == [3] * 20
    airflow.wait(lambda: airflow.left() == [])  # the Spark's idle time is over
