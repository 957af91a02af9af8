"""The pages as a FastAPI app: read-only, for users whom Airflow knows and lets read DAGs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session
from starlette.middleware.base import RequestResponseEndpoint
from starlette.responses import Response

from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.history.table_history import HistoryPage, read_details, read_history
from airflow_delta_merge.view.merged_tables import MergedTable, MergedTables, merged_tables, tables_of
from airflow_delta_merge.view.pages import rendered, security_policy
from airflow_delta_merge.view.reader import Reader
from airflow_delta_merge.view.shown import CommitRow, advice_for, shown_commit, shown_history
from airflow_delta_merge.view.task_instances import (
    TaskInstanceKey,
    existing,
    guards_that_stopped,
    rendered_statement,
    runs_without_commit,
)

#: Commits on a page.
PAGE = 100
_LARGEST_VERSION, _LARGEST_MAP_INDEX = 2**63 - 1, 2**31 - 1

app = FastAPI(
    title="Delta merges",
    dependencies=[Depends(requires_access_dag("GET"))],
    default_response_class=HTMLResponse,
    openapi_url=None,
    docs_url=None,
    redoc_url=None,
)

Location = Annotated[str, Query(max_length=4096)]
Version = Annotated[int, Query(ge=0, le=_LARGEST_VERSION)]


def _reader(user: GetUserDep) -> Reader:
    return Reader(user)


def _tables(session: SessionDep, reader: ReaderDep) -> MergedTables:
    return merged_tables(session, reader)


ReaderDep = Annotated[Reader, Depends(_reader)]
TablesDep = Annotated[MergedTables, Depends(_tables)]


@app.middleware("http")
async def add_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Keep pages out of caches and other sites' frames, and foreign scripts out of pages."""
    response = await call_next(request)
    response.headers["Content-Security-Policy"] = security_policy()
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


class _NotShownError(Exception):
    """There is no such table, or the user may not see it. The answer is the same for both."""


@app.exception_handler(_NotShownError)
def not_shown_page(request: Request, error: Exception) -> HTMLResponse:
    """The same sentence for each."""
    nothing = "There is no such table, or you may not see it."
    page = rendered("tables.html", heading="Nothing to show", tables=(), hidden=0, nothing=nothing)
    return HTMLResponse(page, status_code=404)


@app.get("/")
def tables_page(tables: TablesDep) -> str:
    """All tables that the user may see."""
    return rendered(
        "tables.html",
        heading="Delta tables",
        tables=tables.shown,
        hidden=tables.hidden,
        nothing="No DAG that you may read has merged into a Delta table yet.",
    )


@app.get("/table")
def table_page(
    location: Location,
    session: SessionDep,
    reader: ReaderDep,
    tables: TablesDep,
    before: Annotated[int | None, Query(ge=0, le=_LARGEST_VERSION)] = None,
) -> str:
    """A table's commits, a page at a time."""
    table = _table_at(tables, location)
    values: dict[str, Any] = {"table": table, "before": before, "trouble": None, "history": None, "links": {}}
    try:
        history = shown_history(_history(table, before), reader.dag_ids)
    except DeltaMergeError as error:
        values["trouble"] = str(error)
    else:
        values |= {"history": history, "links": _links(session, reader, history.rows)}
    tasks = [task for task in table.tasks if reader.may_read(task.dag_id, DagAccessEntity.TASK_INSTANCE)]
    runs = runs_without_commit(session, tasks) if before is None and tasks else []
    guards = _guards(session, reader, [run.key for run in runs])
    return rendered("table.html", **values, runs=runs, guards=guards)


@app.get("/merge")
def merge_page(location: Location, version: Version, session: SessionDep, reader: ReaderDep, tables: TablesDep) -> str:
    """One commit."""
    return _merge_page(_table_at(tables, location), version, session, reader)


@app.get("/task_instance")
def task_instance_page(
    dag_id: str,
    run_id: str,
    task_id: str,
    session: SessionDep,
    reader: ReaderDep,
    tables: TablesDep,
    map_index: Annotated[str, Query(max_length=100)] = "-1",
) -> str:
    """What a task instance merged: its commit, or the tables if there are several or none was committed."""
    # The UI leaves the placeholder alone if the task isn't mapped.
    is_mapped = map_index.isdecimal() and int(map_index) <= _LARGEST_MAP_INDEX
    key = TaskInstanceKey(dag_id, task_id, run_id, int(map_index) if is_mapped else -1)
    merged = tables_of(session, key) if reader.may_read(dag_id, DagAccessEntity.XCOM) else {}
    found = [table for location in merged if (table := tables.at(location)) is not None]
    version = merged[str(found[0].location)] if len(found) == 1 else None
    if version is not None:
        return _merge_page(found[0], version, session, reader)
    found = found or [table for table in tables.shown if key.task in table.tasks]
    return rendered(
        "tables.html",
        heading="Tables of this task",
        tables=found,
        hidden=0,
        nothing="This task has merged into no Delta table that you may see.",
        guard=_guards(session, reader, [key]).get(key),
    )


def _merge_page(table: MergedTable, version: int, session: Session, reader: Reader) -> str:
    values: dict[str, Any] = {"table": table, "version": version, "trouble": None, "commit": None, "links": {}}
    values |= {"statement": None, "advice": []}
    try:
        details = read_details(str(table.location), version, table.stores.deltalake_options())
        commit = shown_commit(details, reader.dag_ids)
        values["advice"] = advice_for(version, _history(table, None), reader.dag_ids)
    except DeltaMergeError as error:
        values["trouble"] = str(error)
    else:
        links = _links(session, reader, [commit.row])
        values |= {"commit": commit, "links": links}
        if (key := _key_of(commit.row)) and commit.row.task_instance in links:
            values["statement"] = rendered_statement(session, key)
    return rendered("merge.html", **values)


def _guards(session: Session, reader: Reader, keys: Sequence[TaskInstanceKey]) -> dict[TaskInstanceKey, str]:
    """What guards said that stopped these, as far as the user may read XComs."""
    return guards_that_stopped(session, [key for key in keys if reader.may_read(key.dag_id, DagAccessEntity.XCOM)])


def _history(table: MergedTable, before: int | None) -> HistoryPage:
    return read_history(str(table.location), table.stores.deltalake_options(), limit=PAGE, before=before)


def _table_at(tables: MergedTables, location: str) -> MergedTable:
    table = tables.at(location)
    if table is None:
        raise _NotShownError
    return table


def _links(session: Session, reader: Reader, rows: list[CommitRow]) -> dict[Any, str]:
    """The addresses of the task instances and tries that made these commits, of those that this Airflow has."""
    keys = {row.task_instance: key for row in rows if (key := _key_of(row)) is not None}
    readable = {each: key for each, key in keys.items() if reader.may_read(key.dag_id, DagAccessEntity.TASK_INSTANCE)}
    found = existing(session, readable.values())
    return {
        each: f"{key.address}?try_number={each.try_number}"
        for each, key in readable.items()
        if each is not None and key in found
    }


def _key_of(row: CommitRow) -> TaskInstanceKey | None:
    task = row.task_instance
    return None if task is None else TaskInstanceKey(task.dag_id, task.task_id, task.run_id, task.map_index)
