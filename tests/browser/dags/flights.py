"""Real flights, as the demo merges them, on more days; a guarded table; one to which a script adds 10,000 merges."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import december
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_delta_merge.config import when_matched_delete, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

LAKE = Path(os.environ.get("DELTA_MERGE_TESTS", "/tmp"))
IS_NEWER = "source.reported_on > target.reported_on"

with DAG(
    "flights_of_december",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=december.FIRST_DAY,
    end_date=december.LAST_DAY,
    catchup=True,
    max_active_runs=1,
    default_args={"depends_on_past": True},
):
    DeltaMergeOperator(
        task_id="merge",
        target=str(LAKE / "flights"),
        source=f"{december.feeds(LAKE)}/{{{{ ds }}}}.parquet",
        on=list(december.flights_feed.KEYS),
        clauses=[
            when_matched_delete(condition=f"source.cancelled AND {IS_NEWER}"),
            when_matched_update_all(condition=IS_NEWER),
            when_not_matched_insert_all(condition="NOT source.cancelled"),
        ],
        create_table={"columns": december.flights_feed.COLUMNS_SQL, "partitioned_by": ["flight_date"]},
        keep_warm=30,
        conn_id="lake",
    )

with DAG("stock", schedule=None, start_date=datetime(2026, 1, 1), params={"articles": 3}):
    DeltaMergeOperator(
        task_id="merge",
        target=str(LAKE / "stock"),
        source="SELECT id AS article FROM range({{ params.articles }})",
        on=["article"],
        clauses=[when_not_matched_insert_all()],
        create_table=True,
        fail_if={"num_inserted_rows": 5},
        asset_events="never",  # it is no part of the graph of assets
        conn_id="lake",
    )

with DAG("hourly_prices", schedule="@once", start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        target=str(LAKE / "prices"),
        source="SELECT 1L AS id, 'one' AS name",
        on=["id"],
        clauses=[when_not_matched_insert_all()],
        create_table=True,
        conn_id="lake",
    )
