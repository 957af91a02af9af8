"""The Delta tables that this Airflow merges into, from asset events and XComs of tasks that the user may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.providers.common.compat.sdk import Asset
from sqlalchemy import func, select

from airflow_delta_merge.connections.stores import StoreConnections
from airflow_delta_merge.contract.result import is_whole_number
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.locations import as_target
from airflow_delta_merge.view.access import LogAccess, conn_ids_of
from airflow_delta_merge.view.locations import plain_location
from airflow_delta_merge.view.task_instances import Task, TaskInstanceKey, xcom_values

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from airflow_delta_merge.view.reader import Reader

# The XCom of a merge's counts that no other operator has.
_COUNTS_KEY = "num_touched_files"
_RESULT_KEY = "return_value"


class _Merge(NamedTuple):
    """The newest merge that a task reported for a table."""

    task_instance: TaskInstanceKey
    table: str
    location: str | None
    version: int | None
    time: datetime


@dataclass(frozen=True, kw_only=True)
class MergedTable:
    """A table that the user may see.

    :param name: the name or path by which merges know it.
    :param location: its folder or URI; None when no merge reported it.
    :param tasks: the tasks that merge into it and that the user may read.
    :param time: when the newest merge that is known was reported.
    :param version: the version that it committed.
    :param stores: the connections by which its log is read.
    """

    name: str
    location: str | None
    tasks: tuple[Task, ...]
    time: datetime
    version: int | None
    stores: StoreConnections


@dataclass(frozen=True, kw_only=True)
class MergedTables:
    """All tables that the user may see.

    :param shown: by name.
    :param hidden: how many others there are, whose connection forbids their location or can't be read.
    """

    shown: tuple[MergedTable, ...]
    hidden: int

    def at(self, location: str) -> MergedTable | None:
        """The table at a location; None when there is none that the user may see."""
        return next((table for table in self.shown if table.location == location), None)


def merged_tables(session: Session, reader: Reader) -> MergedTables:
    """Find the tables."""
    merges = [*_of_xcoms(session, reader), *_of_events(session, reader)]
    conn_ids = conn_ids_of(session, [merge.task_instance for merge in merges])
    # Each look-up may go to a secrets backend, and most tables share a connection.
    of_connection = {conn_id: LogAccess.of(conn_id) for conn_id in set(conn_ids.values())}
    accesses = {key: access for key, conn_id in conn_ids.items() if (access := of_connection[conn_id]) is not None}
    shown, hidden = [], 0
    for found in _by_table(merges).values():
        table = _accessible(found, accesses)
        if table is None:
            hidden += 1
        else:
            shown.append(table)
    return MergedTables(shown=tuple(sorted(shown, key=lambda table: table.name)), hidden=hidden)


def tables_of(session: Session, key: TaskInstanceKey) -> dict[str, int | None]:
    """What a task instance merged: the version of its commit by the table's location."""
    results = _results(session, [key]).get(key, ())
    return {location: version for _, location, version in results if location is not None}


def _by_table(merges: Iterable[_Merge]) -> dict[str, list[_Merge]]:
    """The newest first."""
    found: dict[str, list[_Merge]] = {}
    for merge in sorted(merges, key=lambda merge: merge.time, reverse=True):
        found.setdefault(merge.location or f"table {merge.table}", []).append(merge)
    return found


def _accessible(merges: list[_Merge], accesses: Mapping[TaskInstanceKey, LogAccess]) -> MergedTable | None:
    """The table, if the connection of one of its tasks lets it be read."""
    location = merges[0].location
    for merge in merges:
        access = accesses.get(merge.task_instance)
        if access is not None and access.allows(location):
            return MergedTable(
                name=merges[0].table,
                location=location,
                tasks=tuple(dict.fromkeys(merge.task_instance.task for merge in merges)),
                time=merges[0].time,
                version=merges[0].version,
                stores=access.stores,
            )
    return None


def _of_xcoms(session: Session, reader: Reader) -> Iterator[_Merge]:
    newest = (
        select(XComModel.dag_id, XComModel.task_id, XComModel.map_index, func.max(XComModel.dag_run_id).label("run"))
        .where(XComModel.key == _COUNTS_KEY)
        .group_by(XComModel.dag_id, XComModel.task_id, XComModel.map_index)
        .subquery()
    )
    rows = session.execute(
        select(newest.c.dag_id, newest.c.task_id, newest.c.map_index, DagRun.run_id, DagRun.run_after).join(
            DagRun, DagRun.id == newest.c.run
        )
    )
    times = {
        TaskInstanceKey(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index): time
        for dag_id, task_id, map_index, run_id, time in rows
        if reader.may_read(dag_id, DagAccessEntity.XCOM)
    }
    for key, results in _results(session, times).items():
        for table, location, version in results:
            yield _Merge(key, table, location, version, times[key])


def _of_events(session: Session, reader: Reader) -> Iterator[_Merge]:
    """Events that merges announced; others have no table and version in their extra."""
    if not reader.may_read_assets:
        return
    newest = (
        select(func.max(AssetEvent.id))
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetModel.uri.startswith("delta://", autoescape=True), AssetEvent.source_dag_id.is_not(None))
        .group_by(AssetEvent.asset_id, AssetEvent.source_dag_id, AssetEvent.source_task_id, AssetEvent.source_map_index)
    )
    rows = session.execute(
        select(AssetEvent, AssetModel.uri)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetEvent.id.in_(newest))
    )
    events = [
        (_key_of(event), event, uri)
        for event, uri in rows
        if event.source_dag_id in reader.dag_ids and _COUNTS_KEY in (event.extra or {})
    ]
    results = _results(session, [key for key, _, _ in events])
    for key, event, uri in events:
        name = str(event.extra.get("table") or uri)
        locations = {table: location for table, location, _ in results.get(key, ())}
        yield _Merge(
            key,
            name,
            locations.get(name) or _location_of(uri),
            _whole(event.extra.get("version")),
            event.timestamp,
        )


def _key_of(event: AssetEvent) -> TaskInstanceKey:
    map_index = -1 if event.source_map_index is None else event.source_map_index
    return TaskInstanceKey(
        dag_id=str(event.source_dag_id),
        task_id=str(event.source_task_id),
        run_id=str(event.source_run_id),
        map_index=map_index,
    )


def _results(
    session: Session, keys: Iterable[TaskInstanceKey]
) -> dict[TaskInstanceKey, list[tuple[str, str | None, int | None]]]:
    """Table, location and version of what task instances merged, as far as their XComs are still there."""
    return {key: [*_tables_in(value)] for key, value in xcom_values(session, _RESULT_KEY, keys)}


def _tables_in(value: Any) -> Iterator[tuple[str, str | None, int | None]]:
    """What a task returned: a result as a dict, or a list of them."""
    for result in value if isinstance(value, list) else [value]:
        if isinstance(result, Mapping) and "result_version" in result and isinstance(result.get("table"), str):
            location = result.get("location")
            yield (
                result["table"],
                plain_location(location) if isinstance(location, str) else None,
                _whole(result.get("version")),
            )


def _location_of(uri: str) -> str | None:
    """The folder that an asset's URI names; None for a table by name."""
    try:
        target = as_target(Asset(uri=uri))
    except (MergeConfigError, ValueError):
        return None
    return plain_location(target["path"]) if "path" in target else None


def _whole(value: Any) -> int | None:
    return value if is_whole_number(value) else None
