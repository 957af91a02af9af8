"""InsertNew: when each plane was first seen in New York. A row that is there never changes."""

from __future__ import annotations

import pendulum
from airflow.sdk import dag, task
from airflow.timetables.interval import CronDataIntervalTimetable

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
    @task
    def planes(
        data_interval_start: pendulum.DateTime | None = None, data_interval_end: pendulum.DateTime | None = None
    ) -> str:
        """Write the interval's planes and return the path."""
        assert data_interval_start is not None
        assert data_interval_end is not None
        return planes_by_month.write_planes("first_seen", data_interval_start, data_interval_end)

    DeltaMergeOperator(
        task_id="merge",
        target=str(planes_by_month.FOLDER / "planes_first_seen"),
        source={
            "path": planes(),
            # A plane that changed its carrier has two rows.
            "select": "SELECT tailnum, min(seen_at) AS first_seen_at FROM source GROUP BY tailnum",
        },
        pattern=InsertNew(keys=("tailnum",)),
        create_table=True,
    )


planes_first_seen()
