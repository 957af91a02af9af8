"""A result survives JSON, and what is no result of this version is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta_merge.contract.result import RESULT_VERSION, MergeResult
from airflow_delta_merge.exceptions import DeltaMergeError, MergeResultError
from tests.readable_ids import readable

COUNTS = st.integers(min_value=-1, max_value=2**63 - 1)
NAMES = st.text(min_size=1)
RESULTS = st.builds(
    MergeResult,
    table=NAMES,
    location=st.text(),
    version_read=COUNTS,
    version=st.none() | COUNTS,
    executor=st.sampled_from(["ClassicMergeExecutor", "InsertOnlyMergeExecutor"]),
    executor_reason=st.text(),
    num_affected_rows=COUNTS,
    num_updated_rows=COUNTS,
    num_touched_files=COUNTS,
    metrics=st.dictionaries(NAMES, COUNTS),
    durations_ms=st.dictionaries(NAMES, COUNTS),
    num_commit_attempts=COUNTS,
    already_committed=st.booleans(),
)
GOOD = MergeResult(
    table="spark_catalog.default.orders",
    version_read=3,
    version=4,
    executor="ClassicMergeExecutor",
    executor_reason="some rows may match",
    num_affected_rows=2,
    num_updated_rows=2,
    metrics={"numTargetRowsUpdated": 2},
    durations_ms={"total": 1200},
)


@given(RESULTS)
def test_a_result_survives_json(result: MergeResult) -> None:
    assert MergeResult.from_json(result.to_json()) == result


@given(RESULTS)
def test_a_result_survives_a_dict_of_json_types(result: MergeResult) -> None:
    data = json.loads(json.dumps(result.to_dict()))
    assert MergeResult.from_dict(data) == result


def test_the_dict_is_flat_and_names_its_version() -> None:
    data = GOOD.to_dict()
    assert data["result_version"] == RESULT_VERSION
    assert data["num_affected_rows"] == 2
    dicts = {"metrics", "durations_ms", "failed_expectations"}
    assert {name for name, value in data.items() if isinstance(value, dict)} == dicts


def test_the_json_is_the_same_for_the_same_result() -> None:
    assert GOOD.to_json() == MergeResult.from_json(GOOD.to_json()).to_json()
    keys = list(json.loads(GOOD.to_json()))
    assert keys == sorted(keys)


def test_a_merge_without_a_commit_has_no_version() -> None:
    data = {**GOOD.to_dict(), "version": None}
    assert MergeResult.from_dict(data).version is None


@pytest.mark.parametrize("end", [0, 1, 10, -1, -20])
def test_torn_json_is_refused(end: int) -> None:
    with pytest.raises(MergeResultError, match="not JSON"):
        MergeResult.from_json(GOOD.to_json()[:end])


@pytest.mark.parametrize("text", ["[]", "1", "null", '"text"'])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(MergeResultError, match="not a JSON object"):
        MergeResult.from_json(text)


@pytest.mark.parametrize("version", [None, 0, RESULT_VERSION + 1, str(RESULT_VERSION)])
def test_another_version_is_refused(version: Any) -> None:
    with pytest.raises(MergeResultError, match="the same release on both ends"):
        MergeResult.from_dict({**GOOD.to_dict(), "result_version": version})


def test_a_dict_of_something_else_is_refused() -> None:
    with pytest.raises(MergeResultError, match="version None"):
        MergeResult.from_dict({"num_inserted_rows": 1})


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(MergeResultError, match="unknown keys: more, other"):
        MergeResult.from_dict({**GOOD.to_dict(), "other": 1, "more": 2})


@pytest.mark.parametrize("key", ["table", "version_read", "version", "executor", "executor_reason"])
def test_missing_keys_are_refused(key: str) -> None:
    data = GOOD.to_dict()
    del data[key]
    with pytest.raises(MergeResultError, match=f"not complete.*{key}"):
        MergeResult.from_dict(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("table", None),
        ("table", 1),
        ("executor", []),
        ("version_read", None),
        ("version_read", "3"),
        ("version", 1.5),
        ("num_affected_rows", True),
        ("num_affected_rows", None),
        ("num_removed_files", "1"),
        ("metrics", None),
        ("metrics", [1]),
        ("metrics", {"numSourceRows": "1"}),
        ("metrics", {"numSourceRows": True}),
        ("durations_ms", {"total": 1.5}),
    ],
    ids=readable,
)
def test_values_of_a_wrong_type_are_refused(key: str, value: Any) -> None:
    with pytest.raises(MergeResultError, match=f"wrong value for {key}"):
        MergeResult.from_dict({**GOOD.to_dict(), key: value})


def test_a_result_error_is_a_delta_merge_error_and_a_value_error() -> None:
    assert issubclass(MergeResultError, DeltaMergeError)
    assert issubclass(MergeResultError, ValueError)
