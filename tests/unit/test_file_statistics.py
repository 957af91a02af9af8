"""Files chosen by their statistics: never one too few."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta_merge.engine.data_files.file_statistics import (
    SoughtRanges,
    files_of_a_value,
    files_that_may_hold,
    has_readable_statistics,
    range_of_all,
    statistics_of,
)
from tests.readable_ids import readable


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
    ids=readable,
)
def test_whole_numbers(statistics: dict[str, Any], chosen: bool) -> None:
    wanted = SoughtRanges("k", "bigint", [(5, 10)], nulls=False)
    assert files_that_may_hold([wanted], [known(100, 200), statistics]) == ([1] if chosen else [])


def test_any_of_the_ranges_and_all_of_the_columns() -> None:
    files = [known(number * 10, number * 10 + 9) for number in range(5)]
    for number, statistics in enumerate(files):
        statistics["minValues"]["l"] = statistics["maxValues"]["l"] = "abcde"[number]
    k, both = (
        SoughtRanges("k", "int", [(5, 7), (35, 35)], nulls=False),
        SoughtRanges("l", "string", [("c", "d")], nulls=False),
    )
    assert files_that_may_hold([k], files) == [0, 3]
    assert files_that_may_hold([k, both], files) == [3]
    assert files_that_may_hold([SoughtRanges("k", "int", [], nulls=False)], files) == []


def test_null_may_be_in_files_with_nulls_or_unknown_null_counts() -> None:
    files = [known(1, 2, nulls=1), known(1, 2, nulls=0), {"minValues": {"k": 1}, "maxValues": {"k": 2}}]
    assert files_that_may_hold([SoughtRanges("k", "int", [(5, 5)], nulls=True)], files) == [0, 2]
    assert files_that_may_hold([SoughtRanges("k", "int", [(5, 5)], nulls=False)], files) == []


def test_dates() -> None:
    day = (datetime.date(2024, 7, 1) - datetime.date(1970, 1, 1)).days
    files = [known("2024-06-01", "2024-06-30"), known("2024-07-01", "2024-07-31"), known("1950-01-01", "+12024-01-01")]
    assert files_that_may_hold([SoughtRanges("k", "date", [(day, day)], nulls=False)], files) == [1, 2]


def test_partition_values_count_as_statistics() -> None:
    types = {"number": "int", "day": "date", "empty": "string", "null": "int"}
    values = {"number": "7", "day": "2024-07-01", "empty": "", "null": None}
    statistics = statistics_of({"partitionValues": values, "stats": '{"minValues": {"k": 1}}'}, types)
    assert statistics == {
        "minValues": {"k": 1, "number": 7, "day": "2024-07-01"},
        "maxValues": {"number": 7, "day": "2024-07-01"},
        "nullCount": {"number": 0, "day": 0, "empty": 1, "null": 1},
    }
    assert statistics_of({"partitionValues": {}}, {}) == NOTHING


NOTHING: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}

#: Statistics in which no bounds can be read, and whether Delta's classes can take them on the driver.
ODD_STATISTICS: list[tuple[Any, bool]] = [
    (None, True),
    ("", True),
    ("{}", True),
    ('{"numRecords":3}', True),
    ('{"numRecords":3,"minValues":null,"maxValues":null,"nullCount":null}', True),
    ('{"numRecords":3,"minValues":[1],"maxValues":"9","nullCount":0}', True),
    ('{"numRecords":3,"minVal', False),
    ("no JSON", False),
    ("[1,2]", False),
    ("7", False),
    ('"text"', False),
    ("null", False),
    ('{"numRecords":NaN}', False),
    ('{"numRecords":null}', False),
    ('{"numRecords":"3"}', False),
    ('{"numRecords":3.0}', False),
    ('{"numRecords":true}', False),
    ('{"numRecords":-1}', False),
    ('{"numRecords":3,"numRecords":4}', False),
    ('{"minValues":{"k":1,"k":2},"maxValues":{"k":3}}', False),
    ("[" * 100_000, False),
    (7, False),
]


@pytest.mark.parametrize(("stats", "is_readable"), ODD_STATISTICS, ids=[f"{stats}"[:40] for stats, _ in ODD_STATISTICS])
def test_statistics_that_tell_nothing(stats: Any, is_readable: bool) -> None:
    add = {"partitionValues": {}, "stats": stats}
    found = statistics_of(add, {})
    assert found == NOTHING
    assert has_readable_statistics(add) is is_readable
    assert files_that_may_hold([SoughtRanges("k", "bigint", [(5, 5)], nulls=False)], [found]) == [0]


def test_more_marked_rows_than_rows_are_no_count() -> None:
    counted = {"stats": '{"numRecords":3}', "deletionVector": {"cardinality": 3}}
    assert has_readable_statistics(counted)
    assert not has_readable_statistics({**counted, "deletionVector": {"cardinality": 4}})
    assert not has_readable_statistics({**counted, "deletionVector": {"cardinality": "3"}})


@pytest.mark.parametrize("bound", [None, True, 1.5, "1", [1], {"k": 1}])
@pytest.mark.parametrize("type_", ["bigint", "date", "string"])
def test_bounds_of_another_type_are_none(type_: str, bound: Any) -> None:
    statistics = known(bound, bound)
    key = {"bigint": 5, "date": 5, "string": "5"}[type_]
    if type_ != "string" or not isinstance(bound, str):
        assert files_that_may_hold([SoughtRanges("k", type_, [(key, key)], nulls=False)], [statistics]) == [0]


@pytest.mark.parametrize("text", ["x", "1_0", "\u0661", "1.0", "1e1", "9" * 30, 7, ["1"]])
def test_a_partition_of_which_only_spark_knows_the_value_may_hold_any(text: Any) -> None:
    statistics = statistics_of({"partitionValues": {"k": text}, "stats": '{"minValues":{"k":50}}'}, {"k": "int"})
    for wanted in ([(5, 5)], []):
        assert files_that_may_hold([SoughtRanges("k", "int", wanted, nulls=True, of_partition=True)], [statistics]) == [
            0
        ]


def test_no_partition_values_at_all() -> None:
    assert statistics_of({"partitionValues": None}, {"k": "int"}) == {**NOTHING, "nullCount": {"k": 1}}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([known(5, 7), known(1, 2), known(20, 30)], (1, 30)),
        ([known(5, 7), known(None, None, nulls=10)], None),
        ([known(5, 7), {}], None),
        ([], None),
    ],
    ids=readable,
)
def test_the_range_of_all_files(files: list[dict[str, Any]], expected: tuple[int, int] | None) -> None:
    assert range_of_all("k", "int", files) == expected


def test_the_range_of_texts_among_which_some_stand_for_other_bytes() -> None:
    """U+FFFD stands for any byte, also for one below ``é``."""
    bounds = [("x\ufffd", "x\ufffd"), ("xé1", "xé9")]
    files = [{"minValues": {"k": low}, "maxValues": {"k": high}, "nullCount": {}} for low, high in bounds]
    assert range_of_all("k", "string", files) == ("x", "y")


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
    chosen = files_that_may_hold([SoughtRanges("k", "string", [(key, key)], nulls=False)], [known(low, high)])
    if key in texts:
        assert chosen == [0]
