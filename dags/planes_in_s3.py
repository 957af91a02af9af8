"""Upsert into S3: with which carrier each plane was last seen, month by month.

Needs the connection ``spark_s3``, whose extra names an AWS connection (``aws_conn_id``), and a bucket ``lake``;
``docker-compose.yaml`` has them.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag
from airflow.timetables.interval import CronDataIntervalTimetable

import planes_by_month
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Upsert


@dag(
    schedule=CronDataIntervalTimetable("@monthly", timezone="America/New_York"),
    start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"),
    end_date=pendulum.datetime(2013, 2, 1, tz="America/New_York"),
    catchup=True,
    is_paused_upon_creation=True,
    max_active_runs=1,  # months must be merged in order
    default_args={"depends_on_past": True},  # a later month must not be overwritten by an earlier one
    doc_md=__doc__,
    tags=["delta-merge", "pattern"],
)
def planes_in_s3() -> None:
    DeltaMergeOperator(
        task_id="merge",
        conn_id="spark_s3",
        target="s3a://lake/planes",
        source=planes_by_month.planes("in_s3"),
        pattern=Upsert(keys=("tailnum",), latest_by=("seen_at",)),
        create_table=True,
    )


planes_in_s3()
