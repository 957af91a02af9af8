"""Files chosen by their statistics: never one too few."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta_merge.engine.file_statistics import (
    Wanted,
    files_of_a_value,
    files_that_may_hold,
    range_of_all,
    statistics_of,
)


def known(low: Any, high: Any, nulls: int = 0) -> dict[str, Any]:
    return {"numRecords": 10, "minValues": {"k": low}, "maxValues": {"k": high}, "nullCount": {"k": nulls}}


@pytest.mark.parametrize(
    ("statistics", "chosen"),
    [
        (known(5, 10), True),
        (known(10, 20), True),
        (known(1, 4), False),
        (known(11, 20), False),
        (known(1, 20), True),
        ({}, True),
        ({"numRecords": 10}, True),
        ({"minValues": {"k": 50}}, True),
        ({"minValues": {"other": 50}, "maxValues": {"other": 60}}, True),
        (known(None, None, nulls=10), True),
        (known(50.5, 60), True),  # not what a column of whole numbers has
    ],
)
def test_whole_numbers(statistics: dict[str, Any], chosen: bool) -> None:
    wanted = Wanted("k", "bigint", [(5, 10)], nulls=False)
    assert files_that_may_hold([wanted], [known(100, 200), statistics]) == ([1] if chosen else [])


def test_any_of_the_ranges_and_all_of_the_columns() -> None:
    files = [known(number * 10, number * 10 + 9) for number in range(5)]
    for number, statistics in enumerate(files):
        statistics["minValues"]["l"] = statistics["maxValues"]["l"] = "abcde"[number]
    k, both = Wanted("k", "int", [(5, 7), (35, 35)], nulls=False), Wanted("l", "string", [("c", "d")], nulls=False)
    assert files_that_may_hold([k], files) == [0, 3]
    assert files_that_may_hold([k, both], files) == [3]
    assert files_that_may_hold([Wanted("k", "int", [], nulls=False)], files) == []


def test_null_is_in_files_with_nulls_and_in_those_that_do_not_tell() -> None:
    files = [known(1, 2, nulls=1), known(1, 2, nulls=0), {"minValues": {"k": 1}, "maxValues": {"k": 2}}]
    assert files_that_may_hold([Wanted("k", "int", [(5, 5)], nulls=True)], files) == [0, 2]
    assert files_that_may_hold([Wanted("k", "int", [(5, 5)], nulls=False)], files) == []


def test_dates() -> None:
    day = (datetime.date(2024, 7, 1) - datetime.date(1970, 1, 1)).days
    files = [known("2024-06-01", "2024-06-30"), known("2024-07-01", "2024-07-31"), known("1950-01-01", "+12024-01-01")]
    assert files_that_may_hold([Wanted("k", "date", [(day, day)], nulls=False)], files) == [1, 2]


def test_the_values_of_partitions_are_told_as_statistics() -> None:
    types = {"number": "int", "day": "date", "empty": "string", "null": "int"}
    values = {"number": "7", "day": "2024-07-01", "empty": "", "null": None}
    statistics = statistics_of({"partitionValues": values, "stats": '{"minValues": {"k": 1}}'}, types)
    assert statistics == {
        "minValues": {"k": 1, "number": 7, "day": "2024-07-01"},
        "maxValues": {"number": 7, "day": "2024-07-01"},
        "nullCount": {"number": 0, "day": 0, "empty": 1, "null": 1},
    }
    assert statistics_of({"partitionValues": {}}, {}) == {}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([known(5, 7), known(1, 2), known(20, 30)], (1, 30)),
        ([known(5, 7), known(None, None, nulls=10)], None),
        ([known(5, 7), {}], None),
        ([], None),
    ],
)
def test_the_range_of_all_files(files: list[dict[str, Any]], expected: tuple[int, int] | None) -> None:
    assert range_of_all("k", "int", files) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([known(0, 9), known(10, 19), known(20, 29), known(30, 39)], 1),
        ([known(2, 90), known(0, 97), known(5, 99), known(1, 95)], 4),
        ([known(0, 50), known(40, 90), known(60, 99)], 2),
        ([known(0, 9), {}, known(20, 29), {}], 3),
        ([{}, {}], 2),
        ([], 0),
    ],
    ids=["beside each other", "each over all", "overlapping", "some not known", "none known", "no files"],
)
def test_how_many_files_one_value_may_be_in(files: list[dict[str, Any]], expected: int) -> None:
    assert files_of_a_value("k", "int", files) == expected


@given(st.lists(st.text(max_size=5), min_size=1), st.text(max_size=5))
def test_texts_are_compared_as_their_bytes(texts: list[str], key: str) -> None:
    low, high = (pick(texts, key=lambda text: text.encode("utf-8", "surrogatepass")) for pick in (min, max))
    chosen = files_that_may_hold([Wanted("k", "string", [(key, key)], nulls=False)], [known(low, high)])
    if key in texts:
        assert chosen == [0]
