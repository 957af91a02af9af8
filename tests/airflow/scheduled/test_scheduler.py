"""A DAG run by a real scheduler: its tasks in processes of their own, their XComs through a real API server."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.airflow import tables
from tests.airflow.once import Once
from tests.airflow.scheduled.conftest import TRIGGERER

PATIENCE_SECONDS = 420
TASKS = ("merge", "merge_nothing", "gate", "note", "merged")


def rows(folder: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(folder / "airflow" / "airflow.db", timeout=30)) as database:
        return database.execute(query).fetchall()


def wait_for(folder: Path, query: str) -> list[tuple]:
    """Ask Airflow's database until it gives some rows."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := rows(folder, query)):
        assert time.monotonic() < deadline, (folder / "log").read_text(errors="replace")[-5000:]
        time.sleep(1)
    return found


def ended(folder: Path, dag_id: str) -> list[tuple]:
    """Wait for a run of a DAG to end; its state."""
    return wait_for(folder, f"SELECT state FROM dag_run WHERE dag_id = '{dag_id}' AND state IN ('success', 'failed')")


def xcom(folder: Path, dag_id: str, task_id: str) -> Any:
    """What a task returned."""
    ((value,),) = rows(
        folder,
        f"SELECT value FROM xcom WHERE dag_id = '{dag_id}' AND task_id = '{task_id}' AND key = 'return_value'",
    )
    while isinstance(value, str):  # SQLite makes numbers of their texts by itself
        value = json.loads(value)
    return value


def as_the_log_has_it(result: dict[str, Any]) -> dict[str, Any]:
    """A merge's result as its commit has it, which can't know how long it takes itself."""
    durations = {phase: ms for phase, ms in result["durations_ms"].items() if phase not in ("commit", "total")}
    return {**result, "durations_ms": durations}


def log_ends(folder: Path, dag_id: str) -> str:
    """The ends of the logs of a DAG's tasks, for who has nothing but a failure's text."""
    logs = sorted((folder / "airflow" / "logs" / f"dag_id={dag_id}").rglob("*.log"))
    return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)


def lineage(folder: Path, task_id: str, event_type: str) -> dict[str, Any]:
    """The event that OpenLineage has of a task; the task may have ended before it is written."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        lines = (folder / "lineage").read_text().splitlines() if (folder / "lineage").exists() else []
        for event in map(json.loads, filter(None, lines)):
            if (event["job"]["name"], event["eventType"]) == (f"scheduled_once.{task_id}", event_type):
                return event
        assert time.monotonic() < deadline, lines
        time.sleep(1)


def input_fields(fields: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """Datasets, columns and how they take part, of a column lineage."""
    return {
        (each["namespace"], each["name"], each["field"], f"{how['type']} {how['subtype']}")
        for each in fields
        for how in each["transformations"]
    }


def check_lineage(folder: Path) -> None:
    """OpenLineage to a file: what a merge read and wrote, and a merge that found nothing to do."""
    start, done = (lineage(folder, "merge", event_type) for event_type in ("START", "COMPLETE"))
    (before,), (after,) = start["outputs"], done["outputs"]
    for output in (before, after):
        assert (output["namespace"], output["name"]) == ("file", str(folder / "scheduled"))
        assert output["facets"]["storage"]["storageLayer"] == "delta"
    assert not before.get("outputFacets")
    assert after["facets"]["version"]["datasetVersion"] == "1"
    result = xcom(folder, "scheduled_once", "merge")
    written = after["outputFacets"]["outputStatistics"]
    assert (written["rowCount"], written["size"]) == (7, result["num_added_bytes"])
    assert written["fileCount"] == result["num_added_files"]
    assert done["job"]["facets"]["sql"]["query"].startswith("MERGE INTO")
    assert done["run"]["runId"] == start["run"]["runId"]

    nothing = lineage(folder, "merge_nothing", "COMPLETE")
    assert [(each["namespace"], each["name"]) for each in nothing["inputs"]] == [("file", str(folder / "nothing"))]
    (read,), (unchanged,) = nothing["inputs"], nothing["outputs"]
    for table in (read, unchanged):
        assert [(field["name"], field["type"]) for field in table["facets"]["schema"]["fields"]] == [
            ("id", "bigint"), ("name", "string"),
        ]  # fmt: skip
    columns = unchanged["facets"]["columnLineage"]
    source, itself = ((table["namespace"], table["name"]) for table in (read, unchanged))
    assert {name: input_fields(column["inputFields"]) for name, column in columns["fields"].items()} == {
        name: {(*source, name, "DIRECT IDENTITY")} for name in ("id", "name")
    }
    assert input_fields(columns["dataset"]) == {(*table, "id", "INDIRECT JOIN") for table in (source, itself)}
    assert "columnLineage" not in before["facets"]
    assert "version" not in unchanged["facets"]
    assert unchanged["outputFacets"]["outputStatistics"]["rowCount"] == 0


def test_scheduler_runs_merge_gate_and_report_and_the_dag_scheduled_on_the_table(folder: Path) -> None:
    table = folder / "scheduled"
    found = ended(folder, "scheduled_once")
    states = dict(rows(folder, "SELECT task_id, state FROM task_instance WHERE dag_id = 'scheduled_once'"))
    assert (found, states) == ([("success",)], dict.fromkeys(TASKS, "success")), log_ends(folder, "scheduled_once")
    noted = xcom(folder, "scheduled_once", "note")
    assert noted == {"inserted": 7, "touched": 0, "rendered": "7", "version": 1}
    assert tables.count_rows(table) == 7
    assert tables.operations(table) == ["MERGE"]
    assert xcom(folder, "scheduled_once", "merged") == as_the_log_has_it(xcom(folder, "scheduled_once", "merge"))
    assert ended(folder, "on_merge") == [("success",)]
    (event,) = xcom(folder, "on_merge", "heard")
    assert (event["version"], event["num_inserted_rows"], event["num_touched_files"]) == (1, 7, 0)
    assert rows(folder, "SELECT * FROM dag_run WHERE dag_id = 'on_no_merge'") == []

    check_lineage(folder)

    logs = (folder / "airflow" / "logs" / "dag_id=scheduled_once").rglob("task_id=merge_nothing/*.log")
    assert any("Pausing task as DEFERRED" in log.read_text() for log in logs)

    # A sensor that waits in the triggerer for what nobody has made so far.
    wait_for(folder, "SELECT * FROM task_instance WHERE task_id = 'there' AND state = 'deferred'")
    tables.create_table(folder / "later")
    assert ended(folder, "waits_for_a_table") == [("success",)]
    assert xcom(folder, "waits_for_a_table", "there") == 0


def test_a_dag_runs_on_commits_made_while_the_triggerer_is_down(airflow: Once, folder: Path) -> None:
    kept = "SELECT value FROM asset_state_store WHERE \"key\" LIKE 'delta_commit_%' AND value = '{}'"
    wait_for(folder, kept.format(-1))
    table = tables.create_table(folder / "watched")
    tables.commit(table)
    wait_for(folder, kept.format(1))
    select_events = "SELECT extra FROM asset_event WHERE extra LIKE '%previous_version%' ORDER BY id"
    before = rows(folder, select_events)

    triggerer = airflow.processes.pop(TRIGGERER)
    os.killpg(triggerer.pid, signal.SIGKILL)
    triggerer.wait()
    tables.commit(table)
    tables.commit(table, "OPTIMIZE")
    airflow.start(TRIGGERER)
    wait_for(folder, kept.format(3))
    events = [json.loads(extra)["payload"] for (extra,) in rows(folder, select_events)]
    assert len(events) == len(before) + 1
    # One look may have seen the first two commits, or each of two looks one.
    versions = [(event["previous_version"], event["version"]) for event in events]
    assert versions in ([(-1, 1), (1, 3)], [(-1, 0), (0, 1), (1, 3)])
    assert (events[-1]["path"], events[-1]["operations"]) == (str(table), ["OPTIMIZE", "WRITE"])

    ran = "SELECT * FROM dag_run WHERE dag_id = 'on_commit' AND state = 'success'"
    wait_for(folder, f"{ran} AND (SELECT count(*) FROM ({ran})) >= 2")
    ((heard,),) = rows(folder, "SELECT value FROM xcom WHERE dag_id = 'on_commit' AND key = 'return_value' ORDER BY "
        "timestamp DESC LIMIT 1")  # fmt: skip
    assert '"version": 3' in str(heard)
