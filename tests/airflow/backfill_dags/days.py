"""Days of Berlin, each the business of one run: the table has for a day what the source has for it."""

from __future__ import annotations

import os
from pathlib import Path

import pendulum
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Sync

FOLDER = Path(os.environ.get("DELTA_MERGE_TESTS", "/tmp"))

with DAG(
    "days",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="Europe/Berlin"),
    start_date=pendulum.datetime(2026, 3, 14, tz="Europe/Berlin"),
    end_date=pendulum.datetime(2026, 4, 12, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=4,
):
    DeltaMergeOperator(
        task_id="merge",
        target=str(FOLDER / "readings"),
        source=str(FOLDER / "source.parquet"),
        pattern=Sync(keys="id"),
        window={"column": "at", "date_column": "day"},
        retries=0,
        conf={
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    )
