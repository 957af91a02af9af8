"""A merge whose source and target are in S3; the tests in ``tests/object_storage`` run it."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG

from airflow_delta_merge.config import when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from tests.airflow.conftest import SPARK

BUCKET = "s3a://{{ dag_run.conf['bucket'] }}"

with DAG("orders_in_s3", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        target=f"{BUCKET}/orders",
        source={"path": f"{BUCKET}/landing/orders.csv", "options": {"header": True, "inferSchema": True}},
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
        create_table=True,
        conf=SPARK,
    )
