"""The sensor on a table's log, on tables that ``deltalake`` writes: no Spark anywhere."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jinja2
import pendulum
import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.sdk import DAG, task
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from airflow_delta_merge.exceptions import TableLogError
from airflow_delta_merge.history.awaited import TableCondition, moment
from airflow_delta_merge.history.log_reader import PAUSES_SECONDS
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
from airflow_delta_merge.triggers.delta_table import DeltaTableTrigger
from tests.readable_ids import readable


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table in version 1, of two days."""
    table = str(tmp_path / "a b;ü")
    for day in ("2026-01-01", "2026-01-02"):
        write_deltalake(table, pa.table({"id": [1, 2], "day": [day, day]}), mode="append", partition_by=["day"])
    return table


def test_a_tables_name_that_a_task_returns_is_no_path() -> None:
    """Sensors would wait for a folder of the worker's working directory."""
    with DAG("run", schedule=None):
        sensor = DeltaTableSensor(task_id="wait", path="{{ params.table }}")
    with pytest.raises(AirflowFailException, match=r"path must be a folder or a URI, with a /, got 'sales\.orders'"):
        sensor.render_template_fields({"params": {"table": "sales.orders"}})  # type: ignore[typeddict-item]


def look(path: str, **condition: Any) -> Any:
    found = DeltaTableSensor(task_id="wait", path=path, **condition).poke({})  # type: ignore[typeddict-item]
    return found.xcom_value if found.is_done else "waits"


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({}, 1),
        ({"version": 1}, 1),
        ({"version": "1"}, 1),
        ({"version": 2}, "waits"),
        ({"partition": {"day": "2026-01-02"}}, 1),
        ({"partition": {"day": "2026-01-03"}}, "waits"),
        ({"updated_since": "2026-01-01"}, 1),
        ({"updated_since": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}, "waits"),
        ({"partition": {"day": "2026-01-02"}, "version": 2}, "waits"),
    ],
    ids=[
        "no condition",
        "a version that is there",
        "a version that is there, as text",
        "a later version",
        "a partition that is there",
        "a partition that is not",
        "changed since a day",
        "changed since a moment to come",
        "a partition that is there and a later version",
    ],
)
def test_what_the_log_tells(path: str, condition: dict[str, Any], found: Any) -> None:
    assert look(path, **condition) == found


@pytest.mark.parametrize(
    "actions",
    ['{"commitInfo": {"operation": "WRITE"}}\n', '{"txn": {"appId": "a", "version": 1}}\n', ""],
    ids=["without a time", "without a word", "empty"],
)
def test_commits_that_do_not_say_when_they_were_made(path: str, actions: str) -> None:
    """Those before them do; the newest was made no sooner."""
    (Path(path) / "_delta_log" / f"{2:020}.json").write_text(actions)
    assert look(path, updated_since="2026-01-01") == 2
    assert look(path, updated_since=(datetime.now(UTC) + timedelta(hours=1)).isoformat()) == "waits"


def test_a_table_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    assert look(str(tmp_path / "later")) == "waits"


def test_a_log_that_is_read_amid_a_commit_is_read_again(path: str) -> None:
    # What a listing shows while version 2 is written, of which it sees the checksum and not yet the commit.
    log = Path(path) / "_delta_log"
    (log / f"{2:020}.crc").write_text('{"tableSizeBytes":0,"numFiles":0,"numMetadata":1,"numProtocol":1}')
    with pytest.raises(DeltaError, match="newer"):
        DeltaTable(path)
    later = threading.Timer(0.4, (log / f"{2:020}.json").write_text, ['{"commitInfo":{"timestamp":1}}'])
    later.start()
    try:
        assert look(path, version=2) == 2
    finally:
        later.join()


def test_a_log_that_stays_broken_is_an_error(path: str) -> None:
    (Path(path) / "_delta_log" / f"{1:020}.json").write_text("{")
    with pytest.raises(AirflowException, match="can't be read, tried 5 times"):
        look(path)


def test_a_table_that_deltalake_cannot_read_fails_without_retries(path: str) -> None:
    log = Path(path) / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"minReaderVersion":1', '"minReaderVersion":99'))
    with pytest.raises(AirflowFailException, match="can't read"):
        look(path)


@pytest.mark.parametrize(
    ("partition", "sentence"),
    [
        ({"nope": "1"}, r"'nope', which is not a partition column of .*a b;ü \(day, n\)\. Correct partition"),
        ({"id": "1"}, "'id', which is not a partition column"),
        ({"Day": "2026-01-01"}, "'Day', which is not a partition column"),
        ({"n": "first"}, "Failed to parse value 'first' as 'long'"),
    ],
    ids=["no column", "no partition column", "in another case", "a value of another type"],
)
def test_a_partition_that_no_table_can_have_fails_without_retries(
    tmp_path: Path, partition: dict[str, str], sentence: str
) -> None:
    """Also before the table's log meets the other conditions."""
    path = str(tmp_path / "a b;ü")
    write_deltalake(path, pa.table({"id": [1], "day": ["2026-01-01"], "n": [1]}), partition_by=["day", "n"])
    began = time.monotonic()
    with pytest.raises(AirflowFailException, match=sentence):
        look(path, partition=partition, **({} if "n" in partition else {"version": 7}))
    assert time.monotonic() - began < sum(PAUSES_SECONDS)


def test_a_table_without_partitions_has_none_to_wait_for(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    with pytest.raises(
        AirflowFailException, match=r"'day', which is not a partition column of .*/t \(which has none\)"
    ):
        look(str(tmp_path / "t"), partition={"day": "2026-01-01"})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"updated_since": "yesterday"}, "no moment like"),
        ({"updated_since": 5}, "no moment like"),
        ({"version": "latest"}, "whole number"),
        ({"version": 1.5}, "whole number"),
        ({"version": True}, "whole number"),
        ({"path": None}, "path must be a string that is not empty, got None"),
        ({"path": ["/t"]}, "path must be a string"),
        ({"partition": "day=2026-01-01"}, "partition must be a dict of names and values, got 'day=2026-01-01'"),
        ({"storage_options": ["x"]}, "storage_options must be a dict"),
        ({"deferrable": "no"}, "deferrable must be True or False, got 'no'"),
        ({"aws_conn_id": "{{ params.aws }}"}, "aws_conn_id is not templated"),
    ],
    ids=readable,
)
def test_refused_at_parse(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        DeltaTableSensor(**{"task_id": "wait", "path": "/t", **arguments})


@pytest.mark.parametrize("name", DeltaTableSensor.template_fields)
def test_another_task_may_return_each_argument(name: str) -> None:
    """Some were read while the DAG was parsed, where an output is neither a dict nor a moment."""
    with DAG("waiting", schedule=None):

        @task
        def upstream() -> None: ...

        waiting = DeltaTableSensor(**{"task_id": "wait", "path": "/t", name: upstream()})
    assert waiting.upstream_task_ids == {"upstream"}


@pytest.mark.parametrize("name", ["partition", "storage_options"])
def test_what_is_no_dict_in_a_run_fails_without_retries(name: str) -> None:
    with DAG("waiting", schedule=None):
        waiting = DeltaTableSensor(**{"task_id": "wait", "path": "/t", name: "{{ params.given }}"})
    with pytest.raises(AirflowFailException, match=f"{name} must be a dict, but is 'day' in this run"):
        waiting.render_template_fields({"params": {"given": "day"}})


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", ["path", "version", "updated_since", "partition"])
def test_a_condition_of_none_in_a_run_is_not_left_out(name: str, native: bool) -> None:
    """In a DAG with native objects the sensor succeeded as soon as there was a table."""
    with DAG("waiting", schedule=None, render_template_as_native_obj=native):
        waiting = DeltaTableSensor(**{"task_id": "wait", "path": "/t", name: "{{ params.given }}"})
    with pytest.raises(AirflowFailException, match=f"{name} was given, but its value in this run is None"):
        waiting.render_template_fields({"params": {"given": None}})


def test_a_partition_of_none_in_a_run_is_not_waited_for() -> None:
    with DAG("waiting", schedule=None):
        waiting = DeltaTableSensor(task_id="wait", path="/t", partition={"day": "{{ params.day }}"})
    with pytest.raises(AirflowFailException, match=r"partition\.day was given, but its value in this run is None"):
        waiting.render_template_fields({"params": {"day": None}})


def test_a_condition_that_another_task_returned_as_none_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with DAG("waiting", schedule=None):
        returned = DeltaTableSensor(task_id="first", path="/t").output
        waiting = DeltaTableSensor(task_id="wait", path="/t", version=returned)  # type: ignore[arg-type]
        merged = DeltaMergeSensor(task_id="merged", external_task_id="merge", path=returned)  # type: ignore[arg-type]
    monkeypatch.setattr(type(returned), "resolve", lambda *_, **__: None)
    for sensor, name in ((waiting, "version"), (merged, "path")):
        with pytest.raises(AirflowFailException, match=f"{name} was given, but its value in this run is None"):
            sensor.render_template_fields({})


@pytest.mark.parametrize("native", [False, True])
def test_a_template_may_leave_a_condition_out(native: bool) -> None:
    with DAG("waiting", schedule=None, render_template_as_native_obj=native):
        waiting = DeltaTableSensor(task_id="wait", path="/t", version="{% if params.old %}3{% endif %}")
    waiting.render_template_fields({"params": {"old": False}})
    assert waiting._condition().version is None


def test_a_moment_and_a_path_may_be_values_of_python() -> None:
    since = datetime(2026, 1, 31, tzinfo=UTC)
    waiting = DeltaTableSensor(task_id="wait", path=Path("/t"), updated_since=since)  # type: ignore[arg-type]
    waiting.render_template_fields({})
    condition = waiting._condition()
    assert (condition.path, moment(condition.updated_since or "")) == ("/t", since)


def test_templates_are_taken_as_they_are_at_parse() -> None:
    DeltaTableSensor(task_id="wait", path="{{ params.path }}", version="{{ v }}", updated_since="{{ ts }}")


@pytest.mark.parametrize(
    "condition", [{"version": "{% if params.old %}3{% endif %}"}, {"updated_since": "{# #}{% x %}"}]
)
def test_templates_without_a_placeholder_are_taken_at_parse(condition: dict[str, str]) -> None:
    DeltaTableSensor(task_id="wait", path="/t", **condition)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_date_that_a_run_lacks_fails_without_retries(is_mapped: bool) -> None:
    waiting = DeltaTableSensor(task_id="wait", path="/t", updated_since="{{ data_interval_end }}")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    context, seen = {"dag_run": SimpleNamespace(run_after="2026-01-01")}, set()
    if is_mapped:
        render = partial(waiting._do_render_template_fields, parent=waiting, template_fields=waiting.template_fields)
        render = partial(render, context=context, jinja_env=environment, seen_oids=seen)
    else:
        fields = waiting.template_fields
        render = partial(waiting._do_render_template_fields, waiting, fields, context, environment, seen)
    with pytest.raises(
        AirflowFailException, match=r"no logical date.* so data_interval_end has no value\. Use dag_run"
    ):
        render()
    context["data_interval_end"] = "2026-01-02"
    render()
    assert waiting.updated_since == "2026-01-02"


def test_a_dag_may_render_templates_as_values_of_python(path: str) -> None:
    with DAG("native", schedule=None, render_template_as_native_obj=True) as dag:
        waiting = DeltaTableSensor(
            task_id="wait", path=path, updated_since="{{ data_interval_end }}", storage_options={"timeout": "{{ 30 }}"}
        )
        merged = DeltaMergeSensor(
            task_id="merged", external_task_id="1", external_run_id="{{ ds_nodash }}", namespace="{{ 7 }}", path=path
        )
    context: Any = {
        "data_interval_end": pendulum.datetime(2024, 1, 1),
        "ds_nodash": "20240101",
        "ti": SimpleNamespace(dag_id="native"),
    }
    for sensor, is_done in ((waiting, True), (merged, False)):
        sensor.render_template_fields(context, dag.get_template_env())
        assert sensor.poke(context).is_done is is_done
    assert merged._recorded_merge(context).application_id == "airflow:7/native/1/20240101/-1"


BROKEN, NEVER = AirflowException("no storage"), AirflowFailException("no such column")


@pytest.mark.parametrize("deferrable", [False, True], ids=["waits here", "is deferrable"])
@pytest.mark.parametrize(
    ("argument", "error", "raised"),
    [
        (None, BROKEN, AirflowException),
        (None, NEVER, AirflowFailException),
        ("soft_fail", BROKEN, AirflowException),
        ("soft_fail", NEVER, AirflowSkipException),
        ("never_fail", BROKEN, AirflowSkipException),
        ("never_fail", NEVER, AirflowSkipException),
        ("silent_fail", NEVER, AirflowFailException),
    ],
)
def test_the_first_check_that_fails_is_treated_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, deferrable: bool, argument: str | None, error: Exception, raised: type[Exception]
) -> None:
    monkeypatch.setattr(TableCondition, "met_by", Mock(side_effect=error))
    arguments = {argument: True} if argument else {}
    waiting = DeltaTableSensor(task_id="wait", path="/t", deferrable=deferrable, poke_interval=0, **arguments)
    with pytest.raises(raised) as found:
        waiting.execute({})
    assert found.type is raised


@pytest.mark.parametrize(
    ("argument", "error", "raised"),
    [
        (None, BROKEN, AirflowException),
        (None, NEVER, AirflowFailException),
        ("soft_fail", BROKEN, TableLogError),
        ("soft_fail", NEVER, AirflowSkipException),
        ("never_fail", BROKEN, AirflowSkipException),
    ],
)
def test_a_later_check_that_fails_in_the_triggerer_is_treated_the_same(
    monkeypatch: pytest.MonkeyPatch, argument: str | None, error: Exception, raised: type[Exception]
) -> None:
    arguments = {argument: True} if argument else {}
    waiting = DeltaTableSensor(task_id="wait", path="/t", deferrable=True, poke_interval=0, **arguments)
    monkeypatch.setattr(TableCondition, "met_by", Mock(side_effect=[None, error]))
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute({})
    event = first_event(deferred.value.trigger)
    with pytest.raises(raised) as found:
        waiting.resume_execution("execute_complete", {"event": event}, {})
    assert found.type is raised


@pytest.mark.parametrize("version", ["latest", "-1"])
def test_a_version_that_is_no_number_in_a_run_fails_without_retries(version: str) -> None:
    waiting = DeltaTableSensor(task_id="wait", path="/t", version="{{ params.version }}")
    waiting.version = version  # as rendered
    sentence = f"version must be a whole number ≥ 0, but is '{version}' in this run"
    with pytest.raises(AirflowFailException, match=sentence):
        waiting.poke({})


def test_silent_failures_are_waited_through_here_and_in_the_triggerer(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = DeltaTableSensor(task_id="wait", path="/t", silent_fail=True, deferrable=True, poke_interval=0)
    monkeypatch.setattr(TableCondition, "met_by", Mock(side_effect=[BROKEN, None]))
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute({})
    monkeypatch.setattr(TableCondition, "met_by", Mock(side_effect=[BROKEN, None, 7]))
    assert first_event(deferred.value.trigger) == {"found": 7}
    monkeypatch.setattr(TableCondition, "met_by", Mock(side_effect=NEVER))
    assert first_event(deferred.value.trigger) == {"error": "no such column", "type": "AirflowFailException"}


def first_event(trigger: Any) -> Any:
    """What a trigger says that comes back from the database."""
    _, arguments = trigger.serialize()

    async def first() -> Any:
        return (await anext(type(trigger)(**arguments).run())).payload

    return asyncio.run(asyncio.wait_for(first(), 10))


def test_the_trigger_comes_back_from_the_database_and_fires_when_the_table_is_there(path: str) -> None:
    async def first_event(condition: TableCondition) -> Any:
        _, arguments = DeltaTableTrigger(condition=condition.to_dict(), poke_interval=0.1).serialize()
        return (await anext(DeltaTableTrigger(**arguments).run())).payload

    assert asyncio.run(first_event(TableCondition(path=path, version=1))) == {"found": 1}
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(first_event(TableCondition(path=path, version=2)), 1))
