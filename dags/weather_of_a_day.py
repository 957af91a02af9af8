"""Sync in a window: the hours of weather of each day in New York, as often restated as a day's run is cleared.

The runs of different days keep to their own rows, also on days with 23 or 25 hours.
"""

from __future__ import annotations

import shutil
import uuid

import pendulum
from airflow.sdk import dag, task
from airflow.timetables.interval import CronDataIntervalTimetable

import flights_feed
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Sync


@dag(
    schedule=CronDataIntervalTimetable("@daily", timezone="America/New_York"),
    start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"),
    catchup=False,
    is_paused_upon_creation=True,
    doc_md=__doc__,
    tags=["delta-merge", "pattern"],
)
def weather_of_a_day() -> None:
    @task
    def year() -> str:
        """Put the whole year where Spark's executors reach it, too, and return its path."""
        path = flights_feed.FOLDER / "feeds" / "weather.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        copy = path.with_name(f".{uuid.uuid4()}")  # runs of other days may read meanwhile
        shutil.copy(flights_feed.packaged_data() / "weather.csv", copy)
        copy.rename(path)
        return str(path)

    DeltaMergeOperator(
        task_id="merge",
        target=str(flights_feed.FOLDER / "weather"),
        source={
            "path": year(),
            "options": {"header": True, "inferSchema": True},
            "select": "SELECT origin, time_hour AS observed_at, temp, wind_speed, visib FROM source",
        },
        pattern=Sync(keys=("origin", "observed_at")),
        window="observed_at",
        create_table=True,
    )


weather_of_a_day()
