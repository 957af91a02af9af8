"""Airflow's database goes away between a merge's commit and the moment when Airflow would receive its result."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.airflow.once import Once, applied, record, running
from tests.faults.chaos import SETTINGS

#: A task gives up in a minute, not in five.
IMPATIENT = {"workers": {"execution_api_retries": 2, "execution_api_timeout": 3.0}}


@contextmanager
def database_away(airflow: Once) -> Iterator[None]:
    """Nobody else writes Airflow's database meanwhile: every request that would fails after SQLite's timeout."""
    with closing(sqlite3.connect(airflow.home / "airflow.db", timeout=120, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


@pytest.mark.slow
def test_the_result_comes_by_a_later_try(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS | IMPATIENT) as airflow:
        table = airflow.table("away")
        folder = airflow.order("away", "stay")
        airflow.trigger("once_chaos", "away", table=str(table))
        airflow.wait((folder / "stayed").exists)
        assert applied(table) == 1
        task = psutil.Process(int((folder / "submits").read_text())).parent()
        assert task is not None
        with database_away(airflow):
            (folder / "stay").unlink()
            task.wait(timeout=400)  # it gives up: there is nobody whom it could tell
        time.sleep(5)
        # As whoever runs Airflow has it: what ended without its database is started again.
        ended = [name for name, process in airflow.processes.items() if process.poll() is not None]
        airflow.start(*ended)
        airflow.run_ended("once_chaos", "away")
        assert airflow.task("once_chaos", "away")["try_number"] > 1
        result = airflow.result("once_chaos", "away")
        assert (result["already_committed"], applied(table)) == (True, 1)
        assert {**record(table).result_of(1).to_dict(), "already_committed": True} == result
        assert list(airflow.temporary.glob("airflow_delta_merge_*")) == []
