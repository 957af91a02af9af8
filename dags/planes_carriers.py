"""Scd2: by which carrier each plane flew, and from when to when.

In the spring of 2013 some planes passed from Endeavor Air (9E) to ExpressJet (EV): these have two versions.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag
from airflow.timetables.interval import CronDataIntervalTimetable

import flights_feed
import planes_by_month
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Scd2


@dag(
    schedule=CronDataIntervalTimetable("@monthly", timezone="America/New_York"),
    start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["delta-merge", "pattern"],
)
def planes_carriers() -> None:
    DeltaMergeOperator(
        task_id="merge",
        target=str(flights_feed.FOLDER / "planes_carriers"),
        source=planes_by_month.planes("carriers"),
        pattern=Scd2(keys=("tailnum",), columns=("carrier",), effective_at="seen_at"),
        create_table={
            "columns": "tailnum STRING, carrier STRING, valid_from TIMESTAMP, valid_to TIMESTAMP, is_current BOOLEAN"
        },
    )


planes_carriers()
