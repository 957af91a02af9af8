"""Airflow's task instances of merges: which are there, how they ended, and what they merged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select, tuple_

from airflow_delta_merge.operators.stopped_merges import STOPPED_BY_GUARD

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_AT_ONCE = 500  # values in one query
MOST_RUNS = 20
_WITHOUT_COMMIT = (TaskInstanceState.FAILED, TaskInstanceState.SKIPPED, TaskInstanceState.UP_FOR_RETRY)


class Task(NamedTuple):
    """A task of a DAG, or one of its mapped ones."""

    dag_id: str
    task_id: str
    map_index: int


class TaskInstanceKey(NamedTuple):
    """A task in a run."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int

    @property
    def task(self) -> Task:
        return Task(self.dag_id, self.task_id, self.map_index)

    @property
    def address(self) -> str:
        """Its page in Airflow's UI, relative to Airflow's own address."""
        mapped = f"/mapped/{self.map_index}" if self.map_index >= 0 else ""
        dag_id, run_id, task_id = (quote(part, safe="") for part in (self.dag_id, self.run_id, self.task_id))
        return f"dags/{dag_id}/runs/{run_id}/tasks/{task_id}{mapped}"


@dataclass(frozen=True, kw_only=True)
class RunWithoutCommit:
    """A task instance that failed or was skipped.

    :param key: which one.
    :param state: ``failed``, ``skipped`` or ``up_for_retry``.
    :param try_number: its newest try.
    :param time: when that began, or the task ended.
    """

    key: TaskInstanceKey
    state: str
    try_number: int
    time: datetime | None


def existing(session: Session, keys: Iterable[TaskInstanceKey]) -> set[TaskInstanceKey]:
    """Those of the task instances that this Airflow has."""
    columns = (TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.run_id, TaskInstance.map_index)
    found: set[TaskInstanceKey] = set()
    for part in in_batches(keys):
        rows = session.execute(select(*columns).where(tuple_(*columns).in_([tuple(key) for key in part])))
        found |= {TaskInstanceKey(*row) for row in rows}
    return found


def runs_without_commit(session: Session, tasks: Sequence[Task]) -> list[RunWithoutCommit]:
    """The newest task instances that failed or were skipped, the newest first."""
    columns = (TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.map_index)
    rows = session.scalars(
        select(TaskInstance)
        .where(tuple_(*columns).in_([tuple(task) for task in tasks]), TaskInstance.state.in_(_WITHOUT_COMMIT))
        .order_by(TaskInstance.updated_at.desc())
        .limit(MOST_RUNS)
    )
    return [
        RunWithoutCommit(
            key=TaskInstanceKey(row.dag_id, row.task_id, row.run_id, row.map_index),
            state=str(row.state),
            try_number=row.try_number,
            time=row.start_date or row.end_date,
        )
        for row in rows
    ]


def guards_that_stopped(session: Session, keys: Iterable[TaskInstanceKey]) -> dict[TaskInstanceKey, str]:
    """What guards said that stopped the newest tries of task instances; others are left out."""
    values = xcom_values(session, STOPPED_BY_GUARD, keys)
    return {key: said if isinstance(said, str) else "" for key, said in values}


def xcom_values(
    session: Session, xcom_key: str, keys: Iterable[TaskInstanceKey]
) -> Iterator[tuple[TaskInstanceKey, Any]]:
    """What task instances left under a key, of those whose XCom is still there. Any task may have left anything."""
    columns = (XComModel.dag_id, XComModel.task_id, XComModel.run_id, XComModel.map_index)
    for part in in_batches(keys):
        rows = session.scalars(
            select(XComModel).where(XComModel.key == xcom_key, tuple_(*columns).in_([tuple(key) for key in part]))
        )
        for row in rows:
            key = TaskInstanceKey(row.dag_id, row.task_id, row.run_id, row.map_index)
            yield key, _plain(row.value)


def _plain(stored: Any) -> Any:
    """A stored value as JSON types; Airflow's own way would make objects of what a task's text names."""
    if not isinstance(stored, str):
        return stored
    try:
        return json.loads(stored)
    except (ValueError, RecursionError):
        return stored


def rendered_statement(session: Session, key: TaskInstanceKey) -> str | None:
    """The statement of the newest try, with secrets masked by Airflow; None when Airflow no longer has it."""
    fields = session.scalar(
        select(RenderedTaskInstanceFields.rendered_fields).where(
            RenderedTaskInstanceFields.dag_id == key.dag_id,
            RenderedTaskInstanceFields.task_id == key.task_id,
            RenderedTaskInstanceFields.run_id == key.run_id,
            RenderedTaskInstanceFields.map_index == key.map_index,
        )
    )
    statement = (fields or {}).get("statement") or (fields or {}).get("sql")
    return statement if isinstance(statement, str) else None


def in_batches(keys: Iterable[TaskInstanceKey]) -> Iterator[tuple[TaskInstanceKey, ...]]:
    """Keys in parts of a size that each database takes."""
    distinct = tuple(dict.fromkeys(keys))
    for begin in range(0, len(distinct), _AT_ONCE):
        yield distinct[begin : begin + _AT_ONCE]
