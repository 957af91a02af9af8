"""The DAGs that the browser sees: a merge of orders, a report on its table, and a merge that doesn't end."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import when_matched_delete, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

LAKE = Path(os.environ.get("DELTA_MERGE_TESTS", "/tmp"))
ORDERS = str(LAKE / "orders")
FEED = "SELECT id AS order_id, 'shipped' AS status, id = 7 AS cancelled FROM range(10)"

with DAG("orders_upsert", schedule="@once", start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        target=ORDERS,
        source=FEED,
        on=["order_id"],
        clauses=[
            when_matched_delete(condition="source.cancelled"),
            when_matched_update_all(condition="source.status <> target.status"),
            when_not_matched_insert_all(condition="NOT source.cancelled"),
        ],
        create_table={"columns": "order_id BIGINT, status STRING"},
        conn_id="lake",
    )

with DAG("orders_report", schedule=[delta_asset(ORDERS)], start_date=datetime(2026, 1, 1)):

    @task
    def report() -> None:
        """Nothing: that it runs is enough."""

    report()

with DAG("orders_without_end", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        target=str(LAKE / "without_end"),
        source="SELECT id AS order_id, 'shipped' AS status FROM range(0, 1000000000000, 1, 1) WHERE hash(id) = 1",
        on=["order_id"],
        clauses=[when_not_matched_insert_all()],
        create_table=True,
        conf={"spark.ui.enabled": "true", "spark.ui.port": "0"},
        asset_events="never",  # it is no part of the graph of assets
        conn_id="lake",
    )
