"""SoftDelete: the planes that flew in the last month. One that didn't is marked, and unmarked when it flies again."""

from __future__ import annotations

import pendulum
from airflow.sdk import dag
from airflow.timetables.interval import CronDataIntervalTimetable

import flights_feed
import planes_by_month
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import SoftDelete


@dag(
    schedule=CronDataIntervalTimetable("@monthly", timezone="America/New_York"),
    start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["delta-merge", "pattern"],
)
def planes_in_service() -> None:
    DeltaMergeOperator(
        task_id="merge",
        target=str(flights_feed.FOLDER / "planes_in_service"),
        source=planes_by_month.planes("in_service"),
        pattern=SoftDelete(keys=("tailnum",), latest_by=("seen_at",), deleted_column="is_grounded"),
        create_table=True,
        on_empty_source="fail",  # a month without planes is a month without data
    )


planes_in_service()
