"""States and XComs of other tasks in any run, from the task instance in Airflow 3 and the database in Airflow 2."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

if TYPE_CHECKING:
    from sqlalchemy.sql import ColumnElement


def task_states(
    ti: Any,
    *,
    dag_id: str,
    task_id: str,
    map_index: int | None = None,
    run_ids: Sequence[str] | None = None,
    logical_dates: Sequence[datetime] | None = None,
) -> dict[str, dict[str, str | None]]:
    """The states of a task in existing runs, by the runs' ids and the instances' names.

    :param ti: the current task instance.
    :param map_index: the instance of a mapped task; by default all.
    :param run_ids: the ids of the runs.
    :param logical_dates: the logical dates of the runs.
    :return: an instance of a mapped task is named ``<task>_<map index>``.
    """
    states: dict[str, dict[str, str | None]]
    if AIRFLOW_V_3_0_PLUS:
        states = ti.get_task_states(
            dag_id=dag_id, task_ids=[task_id], map_index=map_index, run_ids=run_ids, logical_dates=logical_dates
        )
        return states
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    conditions: list[ColumnElement[bool]] = [TaskInstance.dag_id == dag_id, TaskInstance.task_id == task_id]
    if map_index is not None:
        conditions.append(TaskInstance.map_index == map_index)
    if run_ids is not None:
        conditions.append(TaskInstance.run_id.in_(run_ids))
    if logical_dates is not None:
        # Airflow 2 has it as a column only by its old name.
        conditions.append(DagRun.execution_date.in_(logical_dates))
    states = {}
    with create_session() as session:
        columns = (TaskInstance.run_id, TaskInstance.map_index, TaskInstance.state)
        for run_id, index, state in session.query(*columns).join(TaskInstance.dag_run).filter(*conditions):
            name = task_id if index < 0 else f"{task_id}_{index}"
            states.setdefault(run_id, {})[name] = state
    return states


def xcom_of(ti: Any, *, dag_id: str, task_id: str, run_id: str, map_index: int | None = None) -> Any:
    """The value that a task returned in a run.

    :param ti: the current task instance.
    :param map_index: the instance of a mapped task.
    """
    if AIRFLOW_V_3_0_PLUS:
        return ti.xcom_pull(task_ids=task_id, dag_id=dag_id, run_id=run_id, map_indexes=map_index)
    from airflow.models.xcom import XCOM_RETURN_KEY
    from airflow.providers.common.compat.sdk import XCom

    index = -1 if map_index is None else map_index
    return XCom.get_one(key=XCOM_RETURN_KEY, dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=index)
