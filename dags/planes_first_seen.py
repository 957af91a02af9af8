"""InsertNew: when each plane was first seen in New York. A row that is there never changes."""

from __future__ import annotations

import pendulum
from airflow.sdk import dag
from airflow.timetables.interval import CronDataIntervalTimetable

import flights_feed
import planes_by_month
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import InsertNew


@dag(
    schedule=CronDataIntervalTimetable("@monthly", timezone="America/New_York"),
    start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["delta-merge", "pattern"],
)
def planes_first_seen() -> None:
    DeltaMergeOperator(
        task_id="merge",
        target=str(flights_feed.FOLDER / "planes_first_seen"),
        source={
            "path": planes_by_month.planes("first_seen"),
            # A plane that changed its carrier has two rows.
            "select": "SELECT tailnum, min(seen_at) AS first_seen_at FROM source GROUP BY tailnum",
        },
        pattern=InsertNew(keys=("tailnum",)),
        create_table=True,
    )


planes_first_seen()
