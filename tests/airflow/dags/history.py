"""A DAG whose tasks return what they know of their own last run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, task

from airflow_delta_merge.operators.task_history import seconds_of_last_run


@task
def merge(seconds: int, ti: Any = None) -> dict[str, Any]:
    return {"durations_ms": {"total": seconds * 1000}, "of_last_run": seconds_of_last_run(ti)}


with DAG("history", schedule=None, start_date=datetime(2026, 1, 1)):
    merge.override(task_id="alone")(seconds=1)
    merge.override(task_id="mapped").expand(seconds=[1, 2])
