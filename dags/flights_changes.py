"""ApplyChanges: the flights feed as a stream of changes. However often and in what order days are run, the last report
of each flight counts; a cancelled flight stays, marked."""

from __future__ import annotations

import pendulum
from airflow.sdk import dag, task
from airflow.timetables.interval import CronDataIntervalTimetable

import flights_feed
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import ApplyChanges


@dag(
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1),
    catchup=False,
    is_paused_upon_creation=True,
    doc_md=__doc__,
    tags=["delta-merge", "pattern"],
)
def flights_changes() -> None:
    @task
    def changes(data_interval_start: pendulum.DateTime | None = None) -> str:
        """Write the day's feed and return its path."""
        assert data_interval_start is not None
        day = data_interval_start.date()
        feed = flights_feed.changes(flights_feed.read_flights(), day)
        return str(flights_feed.write_parquet(feed, flights_feed.FOLDER / "feeds" / f"changes-{day}.parquet"))

    DeltaMergeOperator(
        task_id="merge",
        target=str(flights_feed.FOLDER / "flights_changes"),
        source={
            "path": changes(),
            "select": "SELECT * EXCEPT (cancelled), if(cancelled, 'D', 'U') AS operation FROM source",
        },
        pattern=ApplyChanges(
            keys=flights_feed.KEYS,
            sequence_by=("reported_on",),
            operation_column="operation",
            deleted_column="is_cancelled",
        ),
        create_table={
            "columns": f"{flights_feed.COLUMNS_SQL}, is_cancelled BOOLEAN",
            "partitioned_by": [flights_feed.PARTITION],
        },
    )


flights_changes()
