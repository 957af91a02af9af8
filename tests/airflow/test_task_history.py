"""What the last run tells of the next one, and what becomes of that."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.preparation import SHORT_SECONDS, Preparation
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.task_history import seconds_of_last_run
from tests.airflow.conftest import DAGS
from tests.airflow.test_operator import GOOD
from tests.airflow.test_operator_in_a_run import context
from tests.readable_ids import readable

A_SECOND = {"durations_ms": {"total": 1_000, "scan": 400}}


def recorded_seconds(result: Any) -> float | None:
    return seconds_of_last_run(SimpleNamespace(task_id="merge", map_index=-1, xcom_pull=lambda **_: result))


@pytest.mark.parametrize(
    ("result", "seconds"),
    [
        (A_SECOND, 1.0),
        ([A_SECOND, None, A_SECOND], 2.0),
        (None, None),
        ([], None),
        ([None], None),
        ({"of": "another version"}, None),
        ("a text", None),
    ],
    ids=[
        "one merge",
        "several merges",
        "None",
        "an empty result",
        "a result without a merge",
        "another version",
        "a text",
    ],
)
def test_seconds_of_last_run(result: Any, seconds: float | None) -> None:
    assert recorded_seconds(result) == seconds


def test_only_the_last_run_of_the_same_task_counts() -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    dag = DagBag(DAGS / "history.py", bundle_name="dags-folder").dags["history"]
    runs = [dag.test(logical_date=datetime(2026, 3, day, tzinfo=UTC)) for day in (1, 2, 3)]
    with create_session() as session:
        found = [
            {
                f"{row.task_id}[{row.map_index}]": XComModel.deserialize_value(row)["of_last_run"]
                for row in session.scalars(XComModel.get_many(run_id=run.run_id, dag_ids="history", key="return_value"))
            }
            for run in runs
        ]
    first, *later = found
    assert first == {"alone[-1]": None, "mapped[0]": None, "mapped[1]": None}
    assert later == [{"alone[-1]": 1.0, "mapped[0]": 1.0, "mapped[1]": 2.0}] * 2


@pytest.mark.parametrize("is_scheduled", [True, False])
def test_a_run_of_dag_test_asks_for_no_last_run(*, is_scheduled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow shows an error in the terminal when there is none, with the first DAG that somebody tries."""

    def merge(*_: Any, **__: Any) -> None:
        raise RuntimeError("merges")

    asked: list[str] = []
    monkeypatch.setattr(DeltaMergeHook, "merge", merge)
    date = datetime(2026, 3, 1, tzinfo=UTC)
    values = context() if is_scheduled else context(start_date=date, logical_date=date)
    values["ti"].xcom_pull = lambda task_ids, **_: asked.append(task_ids)
    with pytest.raises(RuntimeError, match="merges"):
        DeltaMergeOperator(task_id="merge", **GOOD).execute(values)  # type: ignore[arg-type]
    assert bool(asked) is is_scheduled


def test_no_merge_fails_for_want_of_a_hint() -> None:
    def fails(**_: Any) -> Any:
        raise RuntimeError("Airflow doesn't answer")

    assert seconds_of_last_run(SimpleNamespace(task_id="merge", map_index=-1, xcom_pull=fails)) is None
    assert seconds_of_last_run(SimpleNamespace(task_id="merge")) is None


@pytest.mark.parametrize(
    ("seconds", "options"),
    [
        (None, []),
        (SHORT_SECONDS + 1, []),
        (SHORT_SECONDS - 1, ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]),
    ],
    ids=readable,
)
def test_only_short_merges_run_without_the_second_compiler(seconds: float | None, options: list[str]) -> None:
    preparation = Preparation("spark_default", {}, {})
    preparation.expected_seconds = seconds
    assert preparation._compiler_options() == options
