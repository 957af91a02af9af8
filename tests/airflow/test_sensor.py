"""The sensor's arguments, while a DAG is parsed, and what a DAG that Airflow runs can hardly show."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, task

from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
from tests.readable_ids import readable


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"at_least": {"num_inserted": 1}}, r"at_least has the unknown count 'num_inserted'\. .*num_inserted_rows"),
        ({"at_most": {"table": 1}}, "unknown count 'table'"),
        ({"at_least": {"num_inserted_rows": "1"}}, r"at_least\['num_inserted_rows'\] must be a whole number, got '1'"),
        ({"at_least": {"num_inserted_rows": True}}, "must be a whole number"),
        ({"at_least": 5}, "dict"),
        ({"condition": "num_inserted_rows > 1"}, "callable"),
        ({"execution_delta": timedelta(1), "execution_date_fn": lambda date: date}, "exclude each other"),
        ({"execution_delta": timedelta(1), "external_run_id": "r"}, "exclude each other"),
        ({"external_task_id": "gate"}, "waits for itself"),
        ({"map_index": "first"}, "map_index"),
        ({"at_most": {"num_deleted_rows": float("nan")}}, "must be a whole number, got nan"),
        ({"at_most": {"num_deleted_rows": 2**63}}, "must be a whole number, got 9223372036854775808"),
        ({"map_index": "a1"}, "map_index must be a whole number ≥ -1 or a template of one, got 'a1'"),
        ({"map_index": -2}, "map_index must be a whole number ≥ -1"),
        ({"map_index": True}, "map_index must be a whole number"),
        ({"execution_delta": 2}, "execution_delta must be a timedelta, got 2"),
        ({"execution_date_fn": "{{ ds }}"}, "execution_date_fn must be a callable"),
        ({"external_task_id": None}, "external_task_id must be a string that is not empty, got None"),
        ({"external_task_id": ["merge"]}, "external_task_id must be a string"),
        ({"path": 7}, "path must be a string"),
        ({"path": "sales.orders"}, "path must be a folder or a URI, with a /, got 'sales.orders'"),
        ({"path": "/t", "deferrable": "no"}, "deferrable must be True or False"),
        ({"path": "/t", "gcp_conn_id": "{{ params.gcp }}"}, "gcp_conn_id is not templated"),
        ({"path": "/t", "storage_options": "x"}, "storage_options must be a dict"),
        (
            {"external_dag_id": DAG("load", schedule=None)},
            "external_dag_id must be a string that is not empty, got <DAG",
        ),
        ({"external_run_id": True}, "external_run_id must be a string"),
        ({"path": "/t", "namespace": 7}, "namespace must be a string"),
        ({"path": "/t", "aws_conn_id": True}, "aws_conn_id must be a string"),
    ],
    ids=readable,
)
def test_refused_at_parse(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        DeltaMergeSensor(**{"task_id": "gate", "external_task_id": "merge", **arguments})


@pytest.mark.parametrize(
    ("sensor", "shared", "mapped", "sentence"),
    [
        (DeltaMergeSensor, {"at_least": {"rows": 1}}, None, "at_least has the unknown count 'rows'"),
        (DeltaMergeSensor, {"execution_delta": timedelta(1), "path": "/t"}, None, "not available with path"),
        (DeltaMergeSensor, {"external_task_id": "merge"}, {"map_index": [0, "a"]}, "map_index must be a whole number"),
        (DeltaMergeSensor, {"external_task_id": "merge", "namespace": "x"}, {"map_index": [0]}, "needs path"),
        (DeltaMergeSensor, {}, {"external_task_id": ["merge", "gate"]}, "waits for itself"),
        (DeltaMergeSensor, {}, {"map_index": [0]}, "external_task_id must be a string"),
        (DeltaMergeSensor, {}, [{"external_task_id": "merge"}, {"external_task_id": ""}], "of map index 1"),
        (DeltaTableSensor, {"version": "x"}, None, "version must be a whole number"),
        (DeltaTableSensor, {"version": -1}, None, "version must be a whole number ≥ 0"),
        (DeltaTableSensor, {}, {"path": ["/lake/day", "lake.day"]}, "path must be a folder or a URI"),
        (DeltaTableSensor, {"path": "/t"}, {"updated_since": ["{{ ds }}", "yesterday"]}, "is no moment"),
        (DeltaTableSensor, {"aws_conn_id": "{{ params.aws }}"}, {"path": ["/t"]}, "is not templated"),
        (DeltaTableSensor, {"path": "/t"}, [{"partition": "2026-01-01"}], "partition must be a dict"),
        (DeltaTableSensor, {}, {"version": [1]}, "path must be a string"),
    ],
    ids=readable,
)
def test_mapped_sensors_are_refused_at_parse(sensor: Any, shared: Any, mapped: Any, sentence: str) -> None:
    """Airflow builds mapped tasks only in a run, so each of these failed in each run."""
    with DAG("some", schedule=None), pytest.raises(ValueError) as caught:
        _mapped(sensor, shared, mapped or {})
    said = "".join([str(caught.value), *caught.value.__notes__])
    assert sentence in said
    assert "This is about the task 'gate'" in said


@pytest.mark.parametrize(
    ("sensor", "shared", "mapped"),
    [
        (DeltaMergeSensor, {"external_task_id": "merge", "namespace": ""}, {"path": ["/a", "{{ params.path }}"]}),
        (
            DeltaMergeSensor,
            {"external_dag_id": "load"},
            {"external_task_id": ["gate"], "map_index": [0, None, "{{ 1 }}"]},
        ),
        (DeltaTableSensor, {}, [{"path": "/a", "version": 1}, {"path": "/b", "partition": {"day": "{{ ds }}"}}]),
        (DeltaTableSensor, {"deferrable": True}, {"path": ["/a"], "updated_since": ["2026-01-01"]}),
    ],
    ids=readable,
)
def test_mapped_sensors_may_have_anything_that_fits(sensor: Any, shared: Any, mapped: Any) -> None:
    with DAG("some", schedule=None):
        assert _mapped(sensor, shared, mapped).is_mapped


@pytest.mark.parametrize("name", ["at_least", "execution_delta", "map_index", "condition"])
def test_sensors_may_be_mapped_over_an_output(name: str) -> None:
    @task
    def upstream() -> list[Any]:
        return []

    with DAG("some", schedule=None):
        assert _mapped(DeltaMergeSensor, {"external_task_id": "merge"}, {name: upstream()}).is_mapped


@pytest.mark.parametrize(
    ("sensor", "given", "sentence"),
    [
        (DeltaMergeSensor, {"external_task_id": "merge", "at_least": {"rows": 1}}, "has the unknown count 'rows'"),
        (DeltaMergeSensor, {"external_task_id": None}, "external_task_id must be a string"),
        (DeltaTableSensor, {"path": "lake.day"}, "A sensor can't look up a table's name"),
        (DeltaTableSensor, {"path": "/t", "partition": ["day"]}, "partition must be a dict"),
    ],
    ids=readable,
)
def test_arguments_that_another_task_returned_are_checked_in_the_run(
    sensor: Any, given: dict[str, Any], sentence: str
) -> None:
    @task
    def upstream() -> list[dict[str, Any]]:
        return [given]

    with DAG("some", schedule=None):
        mapped = sensor.partial(task_id="gate").expand_kwargs(upstream())
    with pytest.raises(ValueError, match=sentence):
        mapped.unmap(given)


def _mapped(sensor: Any, shared: dict[str, Any], over: dict[str, Any] | list[Any]) -> Any:
    partial = sensor.partial(task_id="gate", **shared)
    return partial.expand_kwargs(over) if isinstance(over, list) else partial.expand(**over)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"at_least": {"num_inserted_rows": 1, "num_touched_files": 0}, "at_most": {"num_deleted_rows": 0}},
        {"at_most": {"failed_expectations.positive": 0}},
        {"map_index": 3},
        {"map_index": -1},
        {"map_index": "{{ ti.map_index }}"},
        {"map_index": "{% if params.first %}{% endif %}"},
        {"external_dag_id": "{{ params.dag }}", "external_run_id": "{{ params.run }}"},
        {"external_task_id": "gate", "execution_delta": timedelta(days=1)},
    ],
    ids=readable,
)
def test_accepted_at_parse(arguments: dict[str, Any]) -> None:
    DeltaMergeSensor(**{"task_id": "gate", "external_task_id": "merge", **arguments})


DATE = datetime(2026, 1, 2, tzinfo=UTC)
RESULT = MergeResult(table="t", version_read=0, version=1, executor="", executor_reason="")


def poke(states: dict[str, str], **arguments: Any) -> tuple[Any, Any]:
    """What a sensor finds if a run's merge has these states, and the dates of the runs that it asks for."""
    asked = {}

    def get_task_states(**named: Any) -> dict[str, dict[str, str]]:
        asked.update(named)
        return {"run": states}

    ti = SimpleNamespace(
        dag_id="report", run_id="run", get_task_states=get_task_states, xcom_pull=lambda **_: RESULT.to_dict()
    )
    sensor = DeltaMergeSensor(task_id="gate", external_dag_id="load", external_task_id="merge", **arguments)
    found = sensor.poke({"ti": ti, "logical_date": DATE})  # type: ignore[arg-type]
    return found.xcom_value if found.is_done else "waits", asked["logical_dates"]


def test_instances_of_a_mapped_merge_that_are_no_longer_expanded_do_not_count() -> None:
    assert poke({"merge_0": "success", "merge_1": "success", "merge_2": "removed"})[0] == [RESULT.to_dict()] * 2
    assert poke({"merge_0": "running", "merge_1": "removed"})[0] == "waits"
    with pytest.raises(AirflowFailException, match=r"merge_0 .* is failed"):
        poke({"merge_0": "failed", "merge_1": "removed"})


def test_a_merge_that_is_removed_is_lost() -> None:
    for states in ({"merge": "removed"}, {"merge_0": "removed", "merge_1": "removed"}):
        with pytest.raises(AirflowFailException, match="is removed, so it has no result"):
            poke(states)


@pytest.mark.parametrize("returned", [None, [], "2026-01-01", [DATE, None]], ids=readable)
def test_what_is_no_date_to_wait_for_fails_without_retries(returned: Any) -> None:
    said = "execution_date_fn returned .*, but must return a logical date, or a list of one or more"
    with pytest.raises(AirflowFailException, match=said):
        poke({"merge": "success"}, execution_date_fn=lambda date: returned)
    with pytest.raises(AirflowSkipException, match=said):
        poke({"merge": "success"}, execution_date_fn=lambda date: returned, soft_fail=True)


@pytest.mark.parametrize(
    "returned",
    [DATE, [DATE], [DATE, DATE], (DATE, DATE.astimezone(timezone(timedelta(hours=2))))],
    ids=["a date", "a list", "twice", "twice, in two time zones"],
)
def test_equal_dates_to_wait_for_are_one_run(returned: Any) -> None:
    found = poke({"merge": "success"}, execution_date_fn=lambda date: returned)
    assert found == (RESULT.to_dict(), [DATE])


@pytest.mark.parametrize(("name", "is_met"), [("positive", True), ("unique", False), ("unheard", False)])
def test_the_count_of_an_expectation_is_a_gate(name: str, *, is_met: bool) -> None:
    counts = {"positive": 1, "unique": 2}
    result = MergeResult(
        table="t", version_read=0, version=1, executor="", executor_reason="", failed_expectations=counts
    )
    sensor = DeltaMergeSensor(task_id="gate", external_task_id="merge", at_most={f"failed_expectations.{name}": 1})
    with nullcontext() if is_met else pytest.raises(AirflowFailException, match=f"failed_expectations.{name} = "):
        sensor._check_conditions("merge", result)
