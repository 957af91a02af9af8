"""DAGs whose runs have no logical date: one that is triggered by hand, and one by an asset."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG, Asset, task

from airflow_delta_merge.config import when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

FOLDER = Path(os.environ.get("DELTA_MERGE_TESTS", "/tmp"))
FEED = Asset("words://dates/feed")
INSERT = {
    "target": str(FOLDER / "dates"),
    "on": ["day"],
    "clauses": [when_not_matched_insert_all()],
    "conf": {"spark.driver.memory": "700m", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
}

with DAG("dates_by_hand", schedule=None, start_date=datetime(2026, 1, 1)):

    @task(outlets=[FEED])
    def feed() -> None:
        """Tell that there is something to merge."""

    DeltaMergeOperator(task_id="by_ds", source="SELECT '{{ ds }}' AS day", retries=3, **INSERT)
    DeltaMergeOperator(task_id="merge", source="SELECT '{{ dag_run.run_after | ds }}' AS day", **INSERT) >> feed()

with DAG("dates_by_asset", schedule=[FEED], start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(task_id="by_ds", source="SELECT '{{ ds }}' AS day", retries=3, **INSERT)
    DeltaMergeOperator(
        task_id="merge", source="SELECT 'asset {{ ds | default(dag_run.run_after | ds) }}' AS day", **INSERT
    )
