"""Scd2 against a fold over all changes in the order of their moments."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError
from airflow_delta_merge.patterns import Scd2
from tests.patterns.histories import History, Row, history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "id INT, at TIMESTAMP, name STRING, city STRING, op STRING"
TARGET = "id INT, name STRING, city STRING, valid_from TIMESTAMP, valid_to TIMESTAMP, is_current BOOLEAN"
PATTERN = {"keys": ("id",), "columns": ("name", "city"), "effective_at": "at", "operation_column": "op"}


def day(number: int) -> datetime:
    return datetime(2024, 1, number, tzinfo=UTC)


def changes(operations: list[str]) -> st.SearchStrategy[list[Row]]:
    """No two changes of a key have the same moment; keys and values may be NULL."""
    cities = st.sampled_from(["x", "y", None])
    change = st.tuples(
        st.sampled_from([1, 2, 3, None]), st.integers(1, 28).map(day), st.just("n"), cities, st.sampled_from(operations)
    )
    return st.lists(change, unique_by=lambda each: each[:2], min_size=10, max_size=24)


def versions(all_changes: list[Row], *, keep_unchanged: bool) -> list[Row]:
    """The history as it should be: (id, city, from, to)."""
    found = []
    ordered = sorted(all_changes, key=lambda each: (repr(each[0]), each[1]))
    for key, of_key in groupby(ordered, key=lambda each: each[0]):
        open_version: tuple[str | None, datetime] | None = None
        for _, moment, _, city, operation in of_key:
            gone = operation == "D"
            if open_version is not None and not gone and city == open_version[0] and not keep_unchanged:
                continue
            if open_version is not None:
                found.append((key, *open_version, moment))
            open_version = None if gone else (city, moment)
        if open_version is not None:
            found.append((key, *open_version, None))
    return sorted(found, key=repr)


def check_table(table: History, expected: list[Row]) -> None:
    assert table.rows("id", "city", "valid_from", "valid_to") == expected
    assert all(row[0] == (row[1] is None) for row in table.rows("is_current", "valid_to"))


@pytest.mark.slow
def test_in_any_order_and_twice_the_history_is_what_the_changes_say(spark: SparkSession, few: settings) -> None:
    pattern = Scd2(**PATTERN, keep_unchanged=True)

    @few
    @given(all_changes=changes(["U"]))
    def check(all_changes: list[Row]) -> None:
        with history(spark, pattern, source=SOURCE, target=TARGET) as table:
            for batch in (all_changes[:6], all_changes[6:12], all_changes[12:]):
                table.merge(batch)
            assert table.merge(all_changes[3:9]).version is None, "they are known"
            check_table(table, versions(all_changes, keep_unchanged=True))

    check()


@pytest.mark.slow
def test_in_order_with_deletes_only_what_changes_makes_a_version(spark: SparkSession, few: settings) -> None:
    pattern = Scd2(**PATTERN)

    @few
    @given(all_changes=changes(["U", "U", "U", "D"]))
    def check(all_changes: list[Row]) -> None:
        in_order = sorted(all_changes, key=lambda change: change[1])
        with history(spark, pattern, source=SOURCE, target=TARGET) as table:
            for batch in (in_order[:6], in_order[6:12], in_order[12:]):
                table.merge(reversed(batch))
            check_table(table, versions(all_changes, keep_unchanged=False))

    check()


def test_late_changes_split_absorb_end_and_replace_versions(spark: SparkSession) -> None:
    with history(spark, Scd2(**PATTERN), source=SOURCE, target=TARGET) as table:
        table.merge([(1, day(1), "n", "x", "I"), (1, day(10), "n", "y", "U"), (2, day(1), "n", "x", "I")])
        table.merge([(1, day(5), "n", "z", "U")])
        split = [(1, "x", day(1), day(5)), (1, "y", day(10), None), (1, "z", day(5), day(10)), (2, "x", day(1), None)]
        check_table(table, split)
        table.merge([(1, day(7), "n", "y", "U"), (2, day(3), None, None, "D")])
        absorbed = [
            (1, "x", day(1), day(5)), (1, "y", day(7), None), (1, "z", day(5), day(7)), (2, "x", day(1), day(3))
        ]  # fmt: skip
        check_table(table, absorbed)
        table.merge([(1, day(5), "n", "x", "U"), (2, day(2), None, None, "D"), (2, day(4), "n", "x", "I")])
        replaced = [
            (1, "x", day(1), day(7)), (1, "y", day(7), None), (2, "x", day(1), day(2)), (2, "x", day(4), None)
        ]  # fmt: skip
        check_table(table, replaced)


def test_two_rows_of_one_moment_and_rows_without_one_are_refused(spark: SparkSession) -> None:
    with history(spark, Scd2(**PATTERN), source=SOURCE, target=TARGET) as table:
        for wrong in ([(1, day(1), "n", "x", "I"), (1, day(1), "n", "y", "I")], [(1, None, "n", "x", "I")]):
            with pytest.raises(MergeExecutionError, match="a row has no at, or several rows have the same valid_from"):
                table.merge(wrong)
        table.merge([(1, day(1), "n", "x", "I"), (1, day(1), "n", "x", "I")])
        assert table.rows("id", "city") == [(1, "x")]


def test_a_target_called_source_would_be_mistaken() -> None:
    with pytest.raises(MergeConfigError, match="with its schema"):
        Scd2(**PATTERN).to_config(target="source", source="batch")
