"""Severities of expectations: how they are written, and when they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta_merge.config import RowCondition, SourceExpectations
from airflow_delta_merge.exceptions import MergeConfigError
from tests.readable_ids import readable

POSITIVE = {"condition": "amount > 0", "on_failure": "set_aside"}
PATH = {"failed_rows_path": "/lake/failed"}


@pytest.mark.parametrize(
    "expected",
    [
        {"positive": {"condition": "amount > 0"}},
        {"positive": POSITIVE, **PATH},
        {"unique": {"columns": ["id"], "on_failure": "warn"}},
        {"not_null": {"columns": "id", "on_failure": "set_aside"}, "known": {"condition": "a = 1"}, **PATH},
    ],
    ids=readable,
)
def test_severities_survive_their_dict(expected: dict[str, Any]) -> None:
    built = SourceExpectations.of(expected)
    assert SourceExpectations.of(built.to_dict()) == built
    assert built.sets_aside == ("failed_rows_path" in expected)


def test_to_fail_is_the_default() -> None:
    built = SourceExpectations.of({"unique": {"columns": ["id"]}, "positive": {"condition": "amount > 0"}})
    assert built == SourceExpectations(
        unique=("id",), conditions=(RowCondition(name="positive", condition="amount > 0", on_failure="fail"),)
    )
    assert built.to_dict()["unique"] == ["id"]


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"positive": POSITIVE}, "and failed_rows_path need each other"),
        ({"positive": {"condition": "a > 0"}, **PATH}, "and failed_rows_path need each other"),
        ({"unique": {"columns": ["id"], "on_failure": "set_aside"}}, "need each other"),
        (
            {"positive": {"condition": "a > 0", "on_failure": "drop"}},
            "on_failure of positive must be one of fail, warn, set_aside, got 'drop'",
        ),
        ({"unique": {"columns": ["id"], "on_failure": None}}, "on_failure of unique must be one of"),
        ({"positive": {"on_failure": "warn"}}, "expectation positive lacks: condition"),
        ({"positive": {"condition": " "}}, "the condition of positive in expect_source"),
        ({"positive": {"condition": "a > 0", "path": "/x"}}, "unknown keys: path"),
        ({"not_null": {"on_failure": "warn"}}, "not_null lacks: columns"),
        ({"positive": "amount > 0"}, "unknown keys: positive"),
        ({"unique": ["id"], "failed_rows_path": ""}, "failed_rows_path"),
    ],
    ids=readable,
)
def test_what_can_not_be_meant_is_refused(expected: dict[str, Any], reason: str) -> None:
    with pytest.raises(MergeConfigError, match=reason):
        SourceExpectations.of(expected)


def test_a_condition_has_a_name_of_its_own() -> None:
    with pytest.raises(MergeConfigError, match="Choose another name"):
        RowCondition(name="unique", condition="a > 0")
    twins = tuple(RowCondition(name="positive", condition=f"{column} > 0") for column in "ab")
    with pytest.raises(MergeConfigError, match="a name twice: positive, positive"):
        SourceExpectations(conditions=twins)
