"""What the last run tells of the next one, and what becomes of that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta_merge.launch.preparation import SHORT_SECONDS, Preparation
from airflow_delta_merge.operators.task_history import seconds_of_last_run
from tests.readable_ids import readable

A_SECOND = {"durations_ms": {"total": 1_000, "scan": 400}}


def recorded_seconds(result: Any) -> float | None:
    return seconds_of_last_run(SimpleNamespace(task_id="merge", xcom_pull=lambda **_: result))


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


def test_no_merge_fails_for_want_of_a_hint() -> None:
    def fails(**_: Any) -> Any:
        raise RuntimeError("Airflow doesn't answer")

    assert seconds_of_last_run(SimpleNamespace(task_id="merge", xcom_pull=fails)) is None
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
