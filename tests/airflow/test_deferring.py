"""The operator on both sides of a deferral, with a hook that starts nothing; with Spark it is in test_deferrable.py."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from airflow_delta_merge.config import when_matched_update_all
from airflow_delta_merge.contract.lineage import TARGET, ColumnInput, ColumnLineage
from airflow_delta_merge.contract.outcome import JobError, JobOutcome, MergeOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import EmptySourceError, MergeExecutionError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.local_application import LocalApplication
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.links.delta_merge import SparkApplicationLink
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.conftest import DAGS

RESULT = MergeResult(
    table="/lake/t", version_read=1, version=2, executor="E", executor_reason="why", num_updated_rows=3
)
APPLICATION = SparkApplication("app-1", "http://driver:4040", event_log=True)
DONE = MergeOutcome(target="t", result=RESULT)
FINISHED = ApplicationEnd(outcome=JobOutcome(merges=(DONE,)), exit_code=0, application=APPLICATION)

EMPTY = JobOutcome(error=JobError.of(EmptySourceError("The source has no rows.")))
COLUMN = JobOutcome(error=JobError.of(MergeExecutionError("No.", condition="UNRESOLVED_COLUMN", sql_state="42703")))


def operator(**arguments: Any) -> DeltaMergeOperator:
    merge = {"target": "/lake/t", "source": "SELECT 1 AS id", "on": ["id"], "clauses": [when_matched_update_all()]}
    return DeltaMergeOperator(
        task_id="merge", deferrable=True, exactly_once=False, asset_events="never", **merge | arguments
    )


def deferred(folder: Path, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> TaskDeferred:
    """How the task leaves its worker."""
    monkeypatch.setattr(DeltaMergeHook, "start", lambda *_, **__: LocalApplication(folder))
    with pytest.raises(TaskDeferred) as caught:
        operator(**arguments).execute({"ti": SimpleNamespace(start_date=datetime.now(UTC))})  # type: ignore[typeddict-item]
    return caught.value


def resumed(leave: TaskDeferred, end: ApplicationEnd, **arguments: Any) -> tuple[dict[str, Any], DeltaMergeOperator]:
    """What another process makes of it."""
    merge = operator(**arguments)
    return merge.resume_execution(str(leave.method_name), {**(leave.kwargs or {}), "event": end.to_dict()}, {}), merge


def test_it_comes_back_with_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = '{"conn_type": "spark", "host": "local[1]", "extra": {"history_server_url": "http://history"}}'
    monkeypatch.setenv("AIRFLOW_CONN_LINKED", connection)
    folder = tmp_path / "staging"
    folder.mkdir()
    leave = deferred(folder, monkeypatch, conn_id="linked")
    assert leave.timeout is None
    returned, merge = resumed(leave, FINISHED, conn_id="linked")
    assert returned == RESULT.to_dict()
    assert SparkApplicationLink().get_link(merge, ti_key=None) == "http://history/history/app-1"  # type: ignore[arg-type]
    assert not folder.exists()


def test_dag_test_defers_no_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """It resumes a task with the event alone, so the task would fail after its merge, and each retry merge again."""
    from airflow.dag_processing.dagbag import DagBag

    merges: list[Any] = []
    monkeypatch.setattr(DeltaMergeHook, "start", lambda *_, **__: pytest.fail("It was deferred."))
    monkeypatch.setattr(DeltaMergeHook, "merge", lambda *_, **__: merges.append(1) or RESULT)
    dag = DagBag(DAGS / "deferred.py", bundle_name="dags-folder").dags["deferred"]
    assert (dag.test(logical_date=datetime(2026, 3, 1, tzinfo=UTC)).state, merges) == ("success", [1])


def test_it_is_asked_for_its_columns_where_lineage_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def start(_: DeltaMergeHook, request: JobRequest, **__: Any) -> LocalApplication:
        asked.append(request.lineage)
        return LocalApplication(tmp_path / "none")

    for transport in ("{}", "{broken", '{"type": "console"}'):
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", transport)
        monkeypatch.setattr(DeltaMergeHook, "start", start)
        with pytest.raises(TaskDeferred) as caught:
            operator().execute({"ti": SimpleNamespace(start_date=datetime.now(UTC))})  # type: ignore[typeddict-item]
    assert asked == [False, False, True]

    columns = ColumnLineage(columns={"id": "int"}, tables=(), inputs={}, rows=(ColumnInput(TARGET, "id", "JOIN"),))
    with_columns = replace(FINISHED, outcome=JobOutcome(merges=(replace(DONE, lineage=columns),)))
    returned, merge = resumed(caught.value, with_columns)
    assert returned == RESULT.to_dict()
    reported = merge.get_openlineage_facets_on_complete(None)
    assert reported is not None
    (decides,) = reported.outputs[0].facets["columnLineage"].dataset
    assert (decides.namespace, decides.name, decides.field) == ("file", "/lake/t", "id")

    broken = with_columns.to_dict()
    broken["outcome"]["merges"][0]["lineage"] = {"columns": {}}
    returned, _ = resumed(caught.value, ApplicationEnd.from_dict(broken))
    assert returned == RESULT.to_dict()


def test_several_merges_come_back_with_their_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Any] = dict.fromkeys(("target", "source", "on", "clauses"))
    merge = {"target": "/lake/t", "source": "SELECT 1 AS id", "on": ["id"], "clauses": [when_matched_update_all()]}
    arguments = {**parts, "merges": [merge, {**merge, "target": "/lake/u"}]}
    leave = deferred(tmp_path / "none", monkeypatch, **arguments)
    skipped = MergeOutcome(target="u", skipped="No rows.")
    returned, _ = resumed(leave, replace(FINISHED, outcome=JobOutcome(merges=(DONE, skipped))), **arguments)
    assert returned == [RESULT.to_dict(), None]
    with pytest.raises(DeltaMergeException, match="The merge into 2 tables was not completed: It is gone"):
        resumed(leave, ApplicationEnd(error="It is gone."), **arguments)
    failed = JobOutcome(merges=(DONE, MergeOutcome(target="u", error=COLUMN.error)))
    with pytest.raises(AirflowFailException, match=r"1 of 2 merges failed; the others are done.\nThe merge into u"):
        resumed(leave, replace(FINISHED, outcome=failed, exit_code=1), **arguments)


def test_the_trigger_knows_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave = deferred(tmp_path, monkeypatch, execution_timeout=timedelta(seconds=100))
    _, arguments = leave.trigger.serialize()
    assert 90 < arguments["deadline"] - time.time() <= 100
    # Airflow itself comes after, for want of a triggerer.
    assert timedelta(seconds=150) < leave.timeout <= timedelta(seconds=160)
    with pytest.raises(AirflowTaskTimeout, match="within the task's execution_timeout"):
        resumed(leave, ApplicationEnd(timed_out=True))


@pytest.mark.parametrize(
    ("end", "on_empty_source", "error", "sentence"),
    [
        (replace(FINISHED, outcome=EMPTY), "skip", AirflowSkipException, "has no rows"),
        (replace(FINISHED, outcome=EMPTY), "fail", AirflowFailException, "has no rows"),
        (replace(FINISHED, outcome=COLUMN), "merge", AirflowFailException, r"delta.`/lake/t` failed"),
        (replace(FINISHED, outcome=None, exit_code=-9), "merge", DeltaMergeException, "killed from outside by SIGKILL"),
        (
            replace(FINISHED, outcome=None, exit_code=1, reason="Oh."),
            "merge",
            DeltaMergeException,
            "left no result: Oh",
        ),
        (ApplicationEnd(error="It is gone."), "merge", DeltaMergeException, "not completed: It is gone"),
        (ApplicationEnd(error="There.", another_try_helps=False), "merge", AirflowFailException, "There"),
    ],
    ids=[
        "an empty source that skips",
        "an empty source that fails",
        "an error of the merge",
        "killed by a signal",
        "an exit code",
        "an application that is gone",
        "an error that another try cannot help",
    ],
)
def test_it_comes_back_with_an_error(
    end: ApplicationEnd, on_empty_source: str, error: type[Exception], sentence: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    leave = deferred(tmp_path / "none", monkeypatch, on_empty_source=on_empty_source)
    with pytest.raises(error, match=sentence) as caught:
        resumed(leave, end)
    assert isinstance(caught.value, AirflowFailException) is (error is AirflowFailException)
