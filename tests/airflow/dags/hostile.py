"""A merge whose every part comes from outside; what comes is in ``tests/airflow/test_hostile.py``."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG, task

from airflow_delta_merge.config import when_not_matched_insert
from airflow_delta_merge.identifiers import quote_text
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

with DAG("hostile", schedule=None, start_date=datetime(2026, 1, 1), user_defined_filters={"sql_text": quote_text}):

    @task
    def sources(dag_run=None) -> list[dict]:
        """A source's description as a task returns it, to be mapped over."""
        path, null = dag_run.conf["source"], dag_run.conf["null"]
        return [{"path": path, "format": "csv", "options": {"header": True, "nullValue": null}}]

    DeltaMergeOperator.partial(
        task_id="merge",
        target="{{ dag_run.conf['target'] }}",
        on=["id"],
        clauses=[
            when_not_matched_insert(
                values={"id": "source.id", "name": "coalesce(source.name, {{ dag_run.conf['value'] | sql_text }})"}
            )
        ],
        name="{{ dag_run.conf['value'] }}",
        conf={
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.databricks.delta.commitInfo.userMetadata": "{{ dag_run.conf['property'] }}",
        },
    ).expand(source=sources())
