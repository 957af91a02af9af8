"""Ids of parametrised tests: what stands in a value, in short."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta_merge.config import MergeSource
from tests.readable_ids import readable


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("a text", None, id="a text"),
        pytest.param(7, None, id="a number"),
        pytest.param("x" * 101, f"{'x' * 57}...", id="a text that pytest would number"),
        pytest.param({}, "nothing", id="an empty dict"),
        pytest.param({"spark.deltaMerge.onePassFromRows": "1"}, "onePassFromRows=1", id="settings"),
        pytest.param({"a": None, "b": [1, 2]}, "b=1, 2, a=None", id="a list in a dict"),
        pytest.param({3, 1}, "1, 3", id="a set"),
        pytest.param(MergeSource(table="t"), "MergeSource(table=t)", id="a dataclass"),
        pytest.param({"when": lambda: None}, "when=a function", id="a function in a dict"),
    ],
)
def test_an_id_tells_what_stands_in_the_value(value: Any, expected: str | None) -> None:
    assert readable(value) == expected


def test_a_value_without_a_readable_text_raises() -> None:
    with pytest.raises(ValueError, match="has no readable id"):
        readable(object())
