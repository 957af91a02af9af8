"""How a table's log is read: by the connection of the task that merges into it, within its ``allowed_locations``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.models.dagrun import DagRun
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from sqlalchemy import select, tuple_

from airflow_delta_merge.connections.policy import ConnectionPolicy
from airflow_delta_merge.connections.spark import ConnectionSettings, find_connection
from airflow_delta_merge.connections.stores import StoreConnections
from airflow_delta_merge.view.locations import is_allowed
from airflow_delta_merge.view.task_instances import TaskInstanceKey, in_batches

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@dataclass(frozen=True)
class LogAccess:
    """What a Spark connection says about reading logs.

    :param allowed_locations: where tables may be; None is everywhere.
    :param stores: its stores' connections.
    """

    allowed_locations: Sequence[str] | None
    stores: StoreConnections

    @classmethod
    def of(cls, conn_id: str) -> LogAccess | None:
        """Look a connection up; None when there is none, or it can't be read."""
        try:
            connection = find_connection(conn_id)
            policy = ConnectionPolicy.of(conn_id, connection.extra_dejson)
            return cls(policy.allowed_locations, ConnectionSettings.of(connection).stores)
        except Exception:  # also of Airflow, e.g. for a lost Fernet key: nobody knows what it allows
            return None

    def allows(self, location: str | None) -> bool:
        """Whether a log may be read.

        :param location: the table's folder or URI; None when it isn't known, hence allowed only without limits.
        """
        if location is None:
            return self.allowed_locations is None
        return is_allowed(location, self.allowed_locations)


def conn_ids_of(session: Session, keys: Iterable[TaskInstanceKey]) -> dict[TaskInstanceKey, str]:
    """The Spark connection of each task instance, from its rendered fields; if these are gone, of its task's newest."""
    rendered, wanted = RenderedTaskInstanceFields, list(dict.fromkeys(keys))
    columns = (rendered.dag_id, rendered.task_id, rendered.run_id, rendered.map_index)
    found: dict[TaskInstanceKey, str] = {}
    for part in in_batches(wanted):
        rows = session.execute(
            select(*columns, rendered.rendered_fields).where(tuple_(*columns).in_([tuple(key) for key in part]))
        )
        for *parts, fields in rows:
            if conn_id := _conn_id(fields):
                found[TaskInstanceKey(*parts)] = conn_id
    for key in wanted:
        if key not in found and (conn_id := _newest_conn_id(session, key)):
            found[key] = conn_id
    return found


def _newest_conn_id(session: Session, key: TaskInstanceKey) -> str | None:
    rendered = RenderedTaskInstanceFields
    fields = session.scalar(
        select(rendered.rendered_fields)
        .join(DagRun, (DagRun.dag_id == rendered.dag_id) & (DagRun.run_id == rendered.run_id))
        .where(rendered.dag_id == key.dag_id, rendered.task_id == key.task_id, rendered.map_index == key.map_index)
        .order_by(DagRun.run_after.desc())
        .limit(1)
    )
    return _conn_id(fields)


def _conn_id(fields: object) -> str | None:
    conn_id = fields.get("conn_id") if isinstance(fields, dict) else None
    return conn_id if isinstance(conn_id, str) and conn_id else None
