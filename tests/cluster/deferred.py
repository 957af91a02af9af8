"""Merges that go on without the process that started them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from airflow_delta_merge.config import MergeConfig
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.applications import application_of
from airflow_delta_merge.launch.spark_application import ApplicationEnd
from airflow_delta_merge.launch.started_application import StartedApplication
from airflow_delta_merge.launch.submitted_application import SubmittedApplication
from airflow_delta_merge.triggers.delta_merge import DeltaMergeTrigger


def started(
    conn_id: str, what: MergeConfig, name: str, identity: MergeIdentity | None = None, **conf: str
) -> SubmittedApplication:
    """Start a merge whose driver runs on the cluster."""
    begun = DeltaMergeHook(conn_id=conn_id, name=name, conf=conf).start(JobRequest(merges=what, identity=identity))
    assert isinstance(begun, SubmittedApplication)
    return begun


def trigger(begun: StartedApplication) -> DeltaMergeTrigger:
    """A trigger as another process has it: made of what the database keeps, which is JSON."""
    _, kept = DeltaMergeTrigger(started=begun.to_dict()).serialize()
    return DeltaMergeTrigger(**json.loads(json.dumps(kept)))


def followed(begun: StartedApplication) -> ApplicationEnd:
    """Follow it to its end as a triggerer does."""
    return ApplicationEnd.from_dict(asyncio.run(anext(trigger(begun).run())).payload)


def finished(conn_id: str, begun: StartedApplication, table: Path, *, exactly_once: bool = False) -> MergeResult:
    """Follow it to its end, and take its result as the task does."""
    end = followed(begun)
    resumed = DeltaMergeHook(conn_id=conn_id)
    end = resumed.finish(application_of(begun.to_dict()), end)
    return resumed.result_of(end, str(table), exactly_once=exactly_once)
