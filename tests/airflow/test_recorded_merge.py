"""The sensor that finds a merge in its table's log; the commits are made by ``deltalake``: no Spark anywhere."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from deltalake import CommitProperties, Transaction, write_deltalake

from airflow_delta_merge.contract.commit_record import CommitRecord
from airflow_delta_merge.contract.identity import MergeIdentity, application_id
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.history.awaited import RecordedMerge
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from airflow_delta_merge.triggers.delta_table import RecordedMergeTrigger
from tests.readable_ids import readable

RUN = {"dag_id": "load", "task_id": "merge", "run_id": "scheduled__2026-01-02T00:00:00+00:00"}
# The sensor of another DAG, in the run of the same interval.
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="report", task_id="wait", run_id=RUN["run_id"])}
RESULT = MergeResult(
    table="/t", version_read=0, version=None, executor="ClassicMergeExecutor", executor_reason="", num_inserted_rows=3
)


def commit(path: str, application: str | None = None, generation: int = 7, metadata: str | None = None) -> None:
    """Append a row, by a merge of this application or by anybody."""
    properties = None
    if application is not None:
        identity = MergeIdentity(application_id=application, generation=generation)
        record = CommitRecord(identity=identity, config_digest="d", result=replace(RESULT, num_updated_rows=generation))
        properties = CommitProperties(
            app_transactions=[Transaction(application, generation)],
            custom_metadata={"userMetadata": record.to_user_metadata() if metadata is None else metadata},
        )
    write_deltalake(path, pa.table({"id": [1]}), mode="append", commit_properties=properties)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table in version 0."""
    table = str(tmp_path / "table")
    commit(table)
    return table


def sensor(path: str, **arguments: Any) -> DeltaMergeSensor:
    return DeltaMergeSensor(
        task_id="wait", **{"external_dag_id": "load", "external_task_id": "merge", "path": path, **arguments}
    )


def look(path: str, **arguments: Any) -> Any:
    found = sensor(path, **arguments).poke(CONTEXT)
    return found.xcom_value if found.is_done else "waits"


def test_the_result_is_that_of_the_commit(path: str) -> None:
    assert look(path) == "waits"
    commit(path, application_id(**RUN))
    commit(path)
    assert MergeResult.from_dict(look(path)) == replace(RESULT, version=1, num_updated_rows=7)
    assert look(path, namespace="other") == "waits"
    assert look(path, map_index=0) == "waits"
    assert look(path, external_run_id="manual__2026-01-03") == "waits"
    assert look(path, external_task_id="other") == "waits"
    assert look(path, external_dag_id=None) == "waits"
    assert look(path + "_other") == "waits"


def test_a_merge_of_a_mapped_task_in_another_airflow(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(path, application_id(**RUN, map_index=3, namespace="other"))
    assert look(path, map_index="3", namespace="other")["version"] == 1
    monkeypatch.setenv("AIRFLOW__DELTA_MERGE__NAMESPACE", "other")
    assert look(path, map_index=3)["version"] == 1
    assert look(path, map_index=3, namespace="") == "waits"


def test_the_last_of_several_executions_counts(path: str) -> None:
    for generation in (7, 8):
        commit(path, application_id(**RUN), generation)
    assert look(path)["num_updated_rows"] == 8


def test_a_record_is_found_behind_many_commits(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_delta_merge.history.awaited._COMMITS_AT_FIRST", 2)
    commit(path, application_id(**RUN))
    for other in range(3):
        commit(path, application_id(**{**RUN, "run_id": f"other {other}"}))
    assert look(path)["version"] == 1


def test_its_version_is_known_also_behind_commits_that_say_nothing_of_themselves(path: str) -> None:
    commit(path, "app")
    for version in (2, 3):
        silent = Path(path) / "_delta_log" / f"{version:020}.json"
        silent.write_text('{"txn": {"appId": "other", "version": 1}}\n')
    found = RecordedMerge(path=path, application_id="app").found()
    assert found is not None
    assert found["result"]["version"] == 1


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"at_least": {"num_inserted_rows": 4}}, "num_inserted_rows = 3, but must have at least 4"),
        ({"at_most": {"num_updated_rows": 6}}, "num_updated_rows = 7, but must have at most 6"),
        ({"condition": lambda result: result.version == 2}, "does not meet the condition"),
    ],
    ids=readable,
)
def test_its_numbers_are_looked_at(path: str, conditions: dict[str, Any], said: str) -> None:
    commit(path, application_id(**RUN))
    with pytest.raises(AirflowFailException, match=rf"merge airflow:/load/merge/.* into {path} .*{said}"):
        look(path, **conditions)
    with pytest.raises(AirflowSkipException):
        look(path, soft_fail=True, **conditions)
    assert look(path, at_least={"num_inserted_rows": 3}, condition=lambda result: result.version == 1)["version"] == 1


def test_a_record_that_is_gone_has_no_numbers(path: str) -> None:
    commit(path, application_id(**RUN), metadata="")
    assert look(path) is None
    with pytest.raises(AirflowFailException, match="no longer in the table's log, so its counts can't be checked"):
        look(path, at_least={"num_inserted_rows": 1})


def test_a_task_with_several_merges_is_not_waited_for(path: str) -> None:
    several = MergeIdentity(application_id=application_id(**RUN), generation=7).of_one_of_several("`t`", 1)
    commit(path, several.application_id.replace("merge", "merge_2"))
    assert look(path) == "waits"
    commit(path, several.application_id)
    with pytest.raises(AirflowFailException, match="one of its several merges into"):
        look(path)


def test_a_record_of_another_release_is_an_error(path: str) -> None:
    record = {"airflow_delta_merge": {"record_version": 99, "application_id": application_id(**RUN)}}
    commit(path, application_id(**RUN), metadata=json.dumps(record))
    with pytest.raises(AirflowFailException, match=r"can't be read: .* has version 99"):
        look(path)


def test_it_waits_in_the_triggerer(path: str) -> None:
    waiting = sensor(path, deferrable=True, poke_interval=0.1, at_least={"num_inserted_rows": 4})
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(CONTEXT)
    trigger = deferred.value.trigger
    assert isinstance(trigger, RecordedMergeTrigger)
    _, arguments = trigger.serialize()
    json.dumps(arguments)

    async def first_event() -> Any:
        return (await anext(RecordedMergeTrigger(**arguments).run())).payload

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(first_event(), 1))
    commit(path, application_id(**RUN))
    event = asyncio.run(first_event())
    with pytest.raises(AirflowFailException, match="at least 4"):
        waiting.execute_complete(CONTEXT, event)
    assert sensor(path, deferrable=True).execute_complete(CONTEXT, event)["version"] == 1  # type: ignore[index]
    assert sensor(path, deferrable=True).execute(CONTEXT)["version"] == 1, "nothing to wait for"
    with pytest.raises(AirflowException, match=r"Waiting for .* failed: no storage"):
        waiting.execute_complete(CONTEXT, {"error": "no storage", "type": "OSError"})


def test_the_deferrable_default_applies_only_with_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert sensor("/t").deferrable
    assert not sensor(None).deferrable  # type: ignore[arg-type]
    assert not sensor("/t", deferrable=False).deferrable


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"path": None, "deferrable": True}, "deferrable needs path"),
        ({"path": None, "namespace": "other"}, "namespace needs path"),
        ({"path": None, "storage_options": {}}, "storage_options needs path"),
        ({"execution_date_fn": lambda date: date}, "execution_date_fn is not available with path"),
    ],
    ids=readable,
)
def test_refused_at_parse(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sensor(**{"path": "/t", **arguments})


def test_a_merge_is_asked_for_by_plain_json() -> None:
    merge = RecordedMerge(path="/t", application_id="a")
    assert json.loads(json.dumps(merge.to_dict())) == merge.to_dict()
