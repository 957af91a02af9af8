"""Rows of Airflow's database as tasks leave them behind: runs, task instances, XComs, rendered fields, asset events."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import insert
from sqlalchemy.orm import Session

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.operators.stopped_merges import STOPPED_BY_GUARD
from tests.history.test_table_history import RESULT

BUNDLE = "view"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Database:
    """Adds rows.

    :param session: an open session; nothing is committed.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._runs: dict[tuple[str, str], int] = {}
        session.add(DagBundleModel(name=BUNDLE))
        session.flush()

    def task_instance(
        self, dag_id: str, task_id: str, run_id: str, *, map_index: int = -1, state: str = "success", **rendered: Any
    ) -> dict[str, Any]:
        """A task instance, its run and its DAG; returns its key.

        :param rendered: its rendered fields.
        """
        if self.session.get(DagModel, dag_id) is None:
            self.session.execute(
                insert(DagModel).values(
                    dag_id=dag_id,
                    bundle_name=BUNDLE,
                    is_stale=False,
                    max_active_tasks=1,
                    max_consecutive_failed_dag_runs=0,
                    has_task_concurrency_limits=False,
                )
            )
        if (dag_id, run_id) not in self._runs:
            number = len(self._runs) + 1
            values = {"dag_id": dag_id, "run_id": run_id, "run_type": "manual", "run_after": NOW + timedelta(number)}
            run = self.session.execute(insert(DagRun).values(id=number + 10_000, **values))
            self._runs[dag_id, run_id] = run.inserted_primary_key[0]
        key = {"dag_id": dag_id, "task_id": task_id, "run_id": run_id, "map_index": map_index}
        self.session.execute(
            insert(TaskInstance).values(
                id=uuid.uuid4(), **key, state=state, try_number=1, pool="default_pool", start_date=NOW
            )
        )
        if rendered:
            self.session.execute(insert(RenderedTaskInstanceFields).values(**key, rendered_fields=rendered))
        return key

    def merged(
        self,
        path: Path | str,
        dag_id: str,
        run_id: str = "r1",
        *,
        task_id: str = "merge",
        version: int = 1,
        name: str | None = None,
        conn_id: str = "spark_default",
        xcom: bool = True,
        event: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """A merge that a task did, recorded by its XComs, its asset event or both."""
        key = self.task_instance(
            dag_id, task_id, run_id, conn_id=conn_id, statement=f"MERGE INTO {name or path}", **more
        )
        result = replace(RESULT, table=name or str(path), location=f"file:{path}", version=version)
        if xcom:
            self.xcom(key, result)
        if event:
            self.event(key, result, name or str(path))
        return key

    def xcom(self, key: dict[str, Any], result: MergeResult | list[MergeResult]) -> None:
        value = [each.to_dict() for each in result] if isinstance(result, list) else result.to_dict()
        XComModel.set("return_value", value, **key, session=self.session)
        if not isinstance(result, list):
            XComModel.set("num_touched_files", result.num_touched_files, **key, session=self.session)

    def said_by_guard(self, key: dict[str, Any], said: str) -> None:
        XComModel.set(STOPPED_BY_GUARD, said, **key, session=self.session)

    def event(self, key: dict[str, Any], result: MergeResult, target: str) -> None:
        uri = delta_asset(target).uri
        asset = self.session.query(AssetModel).filter_by(uri=uri).one_or_none()
        if asset is None:
            asset = AssetModel(name=uri, uri=uri, group="asset")
            self.session.add(asset)
            self.session.flush()
        counts = {name: value for name, value in result.to_dict().items() if name.startswith("num_")}
        source = {f"source_{name}": value for name, value in key.items()}
        extra = {"table": result.table, "version": result.version, **counts}
        self.session.add(AssetEvent(asset_id=asset.id, extra=extra, **source, timestamp=NOW))
        self.session.flush()
