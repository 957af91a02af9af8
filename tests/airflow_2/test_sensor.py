"""Under Airflow 2.11: a sensor reads the states and results of another DAG's tasks from the database."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.dag import DAG
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XCom
from airflow.operators.empty import EmptyOperator
from airflow.utils.session import create_session
from airflow.utils.timezone import datetime

from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor

DATE, LATER = datetime(2026, 1, 2), datetime(2026, 1, 3)
RESULT = MergeResult(table="t", version_read=0, version=1, executor="", executor_reason="").to_dict()


@pytest.fixture(scope="module", autouse=True)
def mapped_run(airflow_2: None) -> None:
    """A run of another DAG, whose mapped merge once was expanded to one instance more."""
    with DAG("of_another", schedule=None, start_date=DATE):
        merge = EmptyOperator(task_id="merge")
    with create_session() as session:
        session.add(DagRun("of_another", "day", execution_date=DATE, run_type="manual", state="success"))
        session.flush()
        for index, state in enumerate(("success", "success", "removed")):
            session.add(TaskInstance(merge, run_id="day", state=state, map_index=index))
        session.flush()
        for index in range(2):
            names = {"dag_id": "of_another", "task_id": "merge", "run_id": "day", "map_index": index}
            XCom.set(key="return_value", value=RESULT, session=session, **names)


def poke(logical_date: Any, **arguments: Any) -> Any:
    sensor = DeltaMergeSensor(task_id="gate", external_dag_id="of_another", external_task_id="merge", **arguments)
    found = sensor.poke({"ti": SimpleNamespace(dag_id="own", run_id="own"), "logical_date": logical_date})
    return found.xcom_value if found.is_done else "waits"


def test_another_dags_run_is_found_by_its_logical_date() -> None:
    assert poke(DATE) == [RESULT, RESULT]
    assert poke(LATER) == "waits"
    assert poke(LATER, execution_date_fn=lambda date: [DATE, DATE]) == [RESULT, RESULT]
    assert poke(LATER, external_run_id="day", map_index=1) == RESULT
