"""DAGs as people write them for Airflow 2."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from airflow import DAG
from airflow.decorators import dag, task
from airflow.exceptions import AirflowException
from airflow.operators.empty import EmptyOperator
from airflow.sensors.python import PythonSensor

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor

HOME = Path(os.environ["DELTA_MERGE_TESTS"])
START = datetime(2026, 1, 1)
MERGE = {
    "on": ["id"],
    "clauses": [when_matched_update_all(), when_not_matched_insert_all()],
    "create_table": True,
    "conn_id": "lake",
}
PEOPLE = "SELECT 1 AS id, 'Ada' AS name UNION ALL SELECT 2, '{{ ds }}'"


def lose_first_result(context, result) -> None:
    """Fail once the merge is committed, at the first try of a run."""
    if context["ti"].try_number == 1:
        raise AirflowException("The first try loses its result.")


def is_let_go(run: str) -> bool:
    return (HOME / f"{run}.go").exists()


with DAG("upsert", schedule=None, start_date=START, catchup=False) as upsert:
    merge = DeltaMergeOperator(
        task_id="merge",
        target=f"{HOME}/people",
        source=PEOPLE,
        retries=1,
        retry_delay=timedelta(0),
        post_execute=lose_first_result,
        **MERGE,
    )
    gate = DeltaMergeSensor(task_id="gate", external_task_id="merge", at_least={"num_affected_rows": 2})
    # A run that goes on while its merge is done.
    wait = PythonSensor(
        task_id="wait",
        python_callable=is_let_go,
        op_args=["{{ run_id }}"],
        mode="reschedule",
        poke_interval=1,
        timeout=600,
    )
    merge >> gate >> wait

with DAG("hears_of_people", schedule=[delta_asset(f"{HOME}/people")], start_date=START, catchup=False):
    EmptyOperator(task_id="heard")

with DAG("mapped", schedule=None, start_date=START, catchup=False):
    merges = DeltaMergeOperator.partial(task_id="merge", target=f"{HOME}/mapped", max_active_tis_per_dag=1, **MERGE)
    merges.expand(source=["SELECT 1 AS id", "SELECT 2 AS id"]) >> DeltaMergeSensor(
        task_id="gate", external_task_id="merge", at_most={"num_inserted_rows": 1}
    )

with DAG("deferred", schedule=None, start_date=START, catchup=False):
    DeltaMergeOperator(task_id="merge", target=f"{HOME}/deferred", source=PEOPLE, deferrable=True, **MERGE)

with DAG("waits_for_another", schedule=None, start_date=START, catchup=False):
    other = {"external_dag_id": "decorated", "external_task_id": "people", "mode": "reschedule", "poke_interval": 1}
    DeltaMergeSensor(task_id="by_task", external_run_id="{{ run_id }}", **other)
    DeltaMergeSensor(task_id="by_log", path=f"{HOME}/decorated", at_least={"num_inserted_rows": 2}, **other)
    DeltaTableSensor(task_id="by_version", path=f"{HOME}/decorated", version=1, deferrable=True, poke_interval=1)


@dag("decorated", schedule=None, start_date=START, catchup=False)
def decorated():
    @task.delta_merge(target=f"{HOME}/decorated", **MERGE)
    def people(ds: str) -> str:
        return f"SELECT 1 AS id, 'Ada' AS name UNION ALL SELECT 2, '{ds}'"

    people()


decorated()
