"""The sensor's arguments, while a DAG is parsed, and what a DAG that Airflow runs can hardly show."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
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
        ({"map_index": "a1"}, "map_index must be a whole number or a template of one, got 'a1'"),
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
    ],
    ids=readable,
)
def test_refused_at_parse(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        DeltaMergeSensor(**{"task_id": "gate", "external_task_id": "merge", **arguments})


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
