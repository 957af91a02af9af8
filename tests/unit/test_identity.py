"""Application ids never clash, generations rise with each intended execution, and both survive JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta_merge.contract.identity import (
    APPLICATION_ID_LENGTH,
    MergeIdentity,
    TaskInstanceIdentity,
    airflow_generation,
    application_id,
)
from airflow_delta_merge.exceptions import MergeConfigError
from tests.readable_ids import readable

START = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)
PARTS = st.tuples(*[st.text(st.sampled_from("ab/%#: é\n"), max_size=90)] * 4, st.integers(-1, 2000))
NUMBERS = st.integers(0, 999)
STARTS = st.datetimes(datetime(2020, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
WHO = TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r")


def id_of(namespace: str, dag_id: str, task_id: str, run_id: str, map_index: int) -> str:
    return application_id(namespace=namespace, dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=map_index)


def test_application_id_can_be_read() -> None:
    composed = id_of("", "sales.daily", "merge", "scheduled__2026-03-01T00:00:00+00:00", -1)
    assert composed == "airflow:/sales.daily/merge/scheduled__2026-03-01T00:00:00+00:00/-1"


@given(PARTS, PARTS)
def test_application_ids_are_bounded_and_do_not_clash(one: tuple, other: tuple) -> None:
    assert (id_of(*one) == id_of(*other)) == (one == other)
    assert len(id_of(*one)) <= APPLICATION_ID_LENGTH
    assert id_of(*one).isascii()


@given(STARTS, NUMBERS, NUMBERS, STARTS, NUMBERS, NUMBERS)
def test_generations_are_ordered_by_start_then_clear_number(s1, c1, m1, s2, c2, m2) -> None:
    one = airflow_generation(started=s1, clear_number=c1, max_tries=m1)
    other = airflow_generation(started=s2, clear_number=c2, max_tries=m2)
    assert 0 < one < 2**63
    if s2 - s1 >= timedelta(milliseconds=1) or (s1 == s2 and c1 < c2):
        assert one < other


@pytest.mark.parametrize(
    ("what", "later", "same"),
    [
        ("a retry", {}, True),
        ("the run was cleared after it had ended", {"started": START + timedelta(hours=1), "clear_number": 1}, False),
        ("the run was deleted and made anew", {"started": START + timedelta(days=1)}, False),
        ("the task was cleared in a run that goes on", {"clear_number": 1, "max_tries": 5}, False),
        ("the same, after the DAG's retries were lowered", {"clear_number": 1, "max_tries": 1}, False),
        ("another task of the run was cleared", {"clear_number": 1}, True),
        ("clears beyond what is counted", {"clear_number": 2000}, True),
    ],
    ids=readable,
)
def test_which_executions_are_the_same(what: str, later: dict, same: bool) -> None:
    first = {"started": START, "clear_number": 0, "max_tries": 2}
    before = airflow_generation(**first)
    now = MergeIdentity(application_id="a", generation=airflow_generation(**first | later), task_instance=WHO)
    assert now.is_same_execution(before) is same
    assert now.generation >= before, "a zombie must never be taken for the later one"


def test_clear_after_clears_that_are_not_counted() -> None:
    before = airflow_generation(started=START, clear_number=1000, max_tries=2)
    now = airflow_generation(started=START, clear_number=1001, max_tries=5)
    assert not MergeIdentity(application_id="a", generation=now, task_instance=WHO).is_same_execution(before)


@pytest.mark.parametrize(
    ("what", "later", "same"),
    [
        ("a retry", {}, True),
        ("the task was cleared in a run that goes on", {"max_tries": 5}, False),
        ("the run was cleared after it had ended", {"started": START + timedelta(hours=1)}, False),
    ],
    ids=readable,
)
def test_which_executions_are_the_same_where_clears_are_not_counted(what: str, later: dict, same: bool) -> None:
    """Before Airflow 3.2 the clear number stays as long as the run goes on: a clear would look like a retry."""
    first = {"started": START, "clear_number": None, "max_tries": 2}
    before = airflow_generation(**first)
    now = MergeIdentity(application_id="a", generation=airflow_generation(**first | later), task_instance=WHO)
    assert now.is_same_execution(before) is same
    assert now.generation >= before


def test_a_callers_own_generations_are_plain_numbers() -> None:
    assert MergeIdentity(application_id="a", generation=3).is_same_execution(3)
    assert not MergeIdentity(application_id="a", generation=3).is_same_execution(1003)


@pytest.mark.parametrize(
    "who",
    [None, TaskInstanceIdentity(dag_id="ä", task_id="t", run_id="'", map_index=2)],
    ids=["no task", "a task"],
)
def test_survives_json(who: TaskInstanceIdentity | None) -> None:
    identity = MergeIdentity(application_id="ä/\n'\"", generation=2**63 - 1, task_instance=who)
    assert MergeIdentity.from_json(identity.to_json()) == identity


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ('{"application_id": "a"}', "identity lacks: generation"),
        ('{"application_id": "a", "generation": 1, "version": 2}', "identity has unknown keys: version"),
        ('{"application_id": "", "generation": 1}', "1 to 1000 characters"),
        ('{"application_id": "a", "generation": -1}', "must be a whole number"),
        ('{"application_id": "a", "generation": 9223372036854775808}', "must be a whole number"),
        ('{"application_id": "a", "generation": true}', "must be a whole number"),
        ('{"application_id": "a", "generation": 1, "task_instance": []}', "JSON object"),
        (
            json.dumps({"application_id": "a", "generation": 1, "task_instance": {"dag_id": "d", "task_id": "t"}}),
            "identity lacks: run_id",
        ),
        (
            json.dumps(
                {"application_id": "a", "generation": 1, "task_instance": {"dag_id": 1, "task_id": "t", "run_id": "r"}}
            ),
            "wrong value for dag_id",
        ),
    ],
    ids=readable,
)
def test_refused(text: str, sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        MergeIdentity.from_json(text)
