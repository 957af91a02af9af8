"""A merge whose source and target are in S3; the tests in ``tests/object_storage`` run it."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG

from airflow_delta_merge.config import when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor

BUCKET = "s3a://{{ dag_run.conf['bucket'] }}"
SPARK = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.databricks.delta.snapshotPartitions": "1",
}

with DAG("orders_in_s3", schedule=None, start_date=datetime(2026, 1, 1)):
    merge = DeltaMergeOperator(
        task_id="merge",
        target=f"{BUCKET}/orders",
        source={"path": f"{BUCKET}/landing/orders.csv", "options": {"header": True, "inferSchema": True}},
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
        create_table=True,
        conf=SPARK,
    )
    merge >> DeltaTableSensor(
        task_id="table", path=f"{BUCKET}/orders", version=1, aws_conn_id="my_lake", timeout=5, poke_interval=1
    )
