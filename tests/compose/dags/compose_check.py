"""What ``make compose-check`` runs beside the examples: merges that count how often they were applied to each row.

``n`` of every row is the number of runs, or some run was lost or applied twice. ``{"work": 5000}`` in a run's conf
makes each row take some milliseconds, so that the merge can be met halfway.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

import flights_feed
from airflow_delta_merge.config import when_matched_update, when_not_matched_insert
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

WORK = "aggregate(sequence(1, source.work), 0, (sum, i) -> sum | (hash(i, source.id) & 0))"


def counting(name: str, *, deferrable: bool) -> None:
    @dag(
        dag_id=name,
        schedule=None,
        is_paused_upon_creation=False,
        max_active_runs=1,
        default_args={"retries": 3, "retry_delay": timedelta(seconds=5)},
        doc_md=__doc__,
    )
    def counts() -> None:
        DeltaMergeOperator(
            task_id="merge",
            target=str(flights_feed.FOLDER / name),
            source="SELECT id, {{ (dag_run.conf or {}).get('work', 1) }} AS work FROM range(0, 4000, 1, 4)",
            on=["id"],
            clauses=[
                when_matched_update(set={"n": f"target.n + 1 + {WORK}"}),
                when_not_matched_insert(values={"id": "source.id", "n": f"1 + {WORK}"}),
            ],
            create_table={"columns": "id BIGINT, n INT"},
            deferrable=deferrable,
            pool="spark" if deferrable else "default_pool",
        )

    counts()


counting("counted", deferrable=False)
counting("counted_deferred", deferrable=True)
