"""A deferrable merge, of which the test takes the place of Spark."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG

from airflow_delta_merge.config import when_matched_update_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

with DAG("deferred", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        target="/lake/t",
        source="SELECT 1 AS id",
        on=["id"],
        clauses=[when_matched_update_all()],
        deferrable=True,
    )
