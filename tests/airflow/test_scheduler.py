"""A DAG run by a real scheduler: its tasks in processes of their own, their XComs through a real API server."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scripts.real_airflow import RealAirflow
from tests.airflow import tables
from tests.airflow.conftest import DAGS

PATIENCE_SECONDS = 420


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with an Airflow that runs, whose DAGs find their tables there."""
    with (tmp_path / "log").open("ab") as log:
        airflow = RealAirflow(tmp_path / "airflow", DAGS, log, environment={"DELTA_MERGE_TESTS": str(tmp_path)})
        airflow.write_config()
        airflow.migrate()
        try:
            airflow.start("api-server", "dag-processor")
            # Tasks that start before the API answers are lost, so there is no scheduler before it does.
            airflow.wait_until_ready()
            airflow.start("scheduler --skip-serve-logs")
            yield tmp_path
        finally:
            airflow.stop()


def rows(folder: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(folder / "airflow" / "airflow.db", timeout=30)) as database:
        return database.execute(query).fetchall()


def test_scheduler_runs_merge_gate_and_report(folder: Path) -> None:
    table = tables.create_table(folder / "scheduled")
    state = "SELECT state FROM dag_run WHERE dag_id = 'scheduled_once' AND state IN ('success', 'failed')"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := rows(folder, state)):
        assert time.monotonic() < deadline, (folder / "log").read_text(errors="replace")[-5000:]
        time.sleep(1)
    states = dict(rows(folder, "SELECT task_id, state FROM task_instance WHERE dag_id = 'scheduled_once'"))
    assert (found, states) == ([("success",)], {"merge": "success", "gate": "success", "note": "success"})
    xcom = "SELECT value FROM xcom WHERE dag_id = 'scheduled_once' AND task_id = 'note' AND key = 'return_value'"
    ((value,),) = rows(folder, xcom)
    noted = json.loads(value)
    noted = json.loads(noted) if isinstance(noted, str) else noted
    assert noted == {"inserted": 7, "touched": 0, "rendered": "7", "version": 1}
    assert tables.count_rows(table) == 7
    assert tables.operations(table) == ["MERGE"]
