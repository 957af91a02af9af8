"""A DAG run by a real scheduler: its tasks in processes of their own, their XComs through a real API server."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.airflow import tables

PATIENCE_SECONDS = 420


@pytest.fixture
def airflow_processes(airflow_home: Path) -> Iterator[Path]:
    """API server, DAG processor and scheduler on the tests' database; yields the folder of their logs."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logs = airflow_home / "processes"
    logs.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
    }
    commands = {
        "api-server": ["api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
        "dag-processor": ["dag-processor"],
        "scheduler": ["scheduler", "--skip-serve-logs"],
    }
    processes = []

    def start(name: str) -> None:
        with (logs / f"{name}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "airflow", *commands[name]],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            )

    start("api-server")
    start("dag-processor")
    # Tasks that start before the API answers are lost, so there is no scheduler before it does.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not answers(port):
        assert time.monotonic() < deadline, logs_of(logs)
        time.sleep(0.5)
    start("scheduler")
    yield logs
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/monitor/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def rows(home: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(home / "airflow.db", timeout=30)) as database:
        return database.execute(query).fetchall()


def test_scheduler_runs_merge_gate_and_report(airflow_home: Path, airflow_processes: Path) -> None:
    table = tables.create_table(airflow_home / "scheduled")
    state = "SELECT state FROM dag_run WHERE dag_id = 'scheduled_once' AND state IN ('success', 'failed')"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := rows(airflow_home, state)):
        assert time.monotonic() < deadline, logs_of(airflow_processes)
        time.sleep(1)
    states = dict(rows(airflow_home, "SELECT task_id, state FROM task_instance WHERE dag_id = 'scheduled_once'"))
    assert (found, states) == ([("success",)], {"merge": "success", "gate": "success", "note": "success"})
    xcom = "SELECT value FROM xcom WHERE dag_id = 'scheduled_once' AND task_id = 'note' AND key = 'return_value'"
    ((value,),) = rows(airflow_home, xcom)
    noted = json.loads(value)
    noted = json.loads(noted) if isinstance(noted, str) else noted
    assert noted == {"inserted": 7, "touched": 0, "rendered": "7", "version": 1}
    assert tables.count_rows(table) == 7
    assert tables.operations(table) == ["MERGE"]


def logs_of(folder: Path) -> str:
    return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in folder.iterdir())
