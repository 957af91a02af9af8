"""ApplyChanges against the last change of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta_merge.exceptions import MergeExecutionError
from airflow_delta_merge.patterns import ApplyChanges
from tests.differential.session_settings import session_settings
from tests.patterns.histories import Row, history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "id INT, seq INT, op STRING, value STRING"
TARGET = "id INT, seq INT, value STRING"
#: No two changes of a key have the same sequence.
CHANGES = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 20), st.sampled_from(["i", "U", "d", None]), st.sampled_from("ab")),
    unique_by=lambda change: change[:2],
    min_size=6,
    max_size=20,
)


def last_changes(changes: list[Row]) -> dict[int, Row]:
    last: dict[int, Row] = {}
    for change in sorted(changes, key=lambda each: each[1]):
        last[change[0]] = change
    return last


def is_delete(change: Row) -> bool:
    return (change[2] or "").upper() == "D"


def in_batches(changes: list[Any]) -> list[list[Any]]:
    return [changes[:4], changes[4:10], changes[10:]]


@pytest.mark.slow
def test_in_any_order_and_twice_the_last_change_of_each_key_counts(spark: SparkSession, few: settings) -> None:
    pattern = ApplyChanges(keys=("id",), sequence_by=("seq",), operation_column="op", deleted_column="gone")

    @few
    @given(changes=CHANGES)
    def check(changes: list[Row]) -> None:
        with history(spark, pattern, source=SOURCE, target=f"{TARGET}, gone BOOLEAN") as table:
            for batch in in_batches(changes):
                table.merge(batch)
            assert table.merge(changes[:4]).num_affected_rows == 0, "they are known"
            last = last_changes(changes)
            rows = [(key, change[1], is_delete(change)) for key, change in last.items()]
            assert table.rows("id", "seq", "gone") == sorted(rows, key=repr)
            values = [(key, change[3], False) for key, change in last.items() if not is_delete(change)]
            assert [r for r in table.rows("id", "value", "gone") if not r[2]] == sorted(values, key=repr)

    check()


@pytest.mark.slow
def test_in_order_deleted_rows_may_go_at_once(spark: SparkSession, few: settings) -> None:
    pattern = ApplyChanges(keys=("id",), sequence_by=("seq",), operation_column="op")

    @few
    @given(changes=CHANGES)
    def check(changes: list[Row]) -> None:
        with history(spark, pattern, source=SOURCE, target=TARGET) as table:
            for batch in in_batches(sorted(changes, key=lambda change: change[1])):
                table.merge(batch)
            last = last_changes(changes).values()
            expected = [(change[0], change[1], change[3]) for change in last if not is_delete(change)]
            assert table.rows("id", "seq", "value") == sorted(expected, key=repr)

    check()


def test_ties_over_several_sequence_columns_fail_unless_picking_is_allowed(spark: SparkSession) -> None:
    columns = "id INT, day INT, seq INT"
    pattern = ApplyChanges(keys=("id",), sequence_by=("day", "seq"))
    with history(spark, pattern, source=columns, target=columns) as table:
        table.merge([(1, 1, 9), (1, 2, 1)])
        table.merge([(1, 1, 10), (2, 1, 1)])
        assert table.rows("id", "day", "seq") == [(1, 2, 1), (2, 1, 1)]
        with pytest.raises(MergeExecutionError, match="several source rows with the same id are the latest"):
            table.merge([(1, 3, 3), (1, 3, 3)])
        table.pattern = ApplyChanges(keys=("id",), sequence_by=("day", "seq"), on_ties="pick")
        table.merge([(1, 3, 3), (1, 3, 3)])
        assert table.rows("id", "day", "seq") == [(1, 3, 3), (2, 1, 1)]


@pytest.mark.parametrize("escaped", ["false", "true"])
def test_deletes_are_known_by_any_text_whatever_a_backslash_is_in_sql(spark: SparkSession, escaped: str) -> None:
    deletes = ("it's gone", "a\\b")
    pattern = ApplyChanges(keys=("id",), sequence_by=("seq",), operation_column="op", delete_operations=deletes)
    settings = {"spark.sql.parser.escapedStringLiterals": escaped}
    with session_settings(spark, settings), history(spark, pattern, source=SOURCE, target=TARGET) as table:
        table.merge([(1, 1, "i", "a"), (2, 1, "i", "a"), (3, 1, "i", "a")])
        table.merge([(1, 2, "It's gone", "b"), (2, 2, "A\\B", "b"), (3, 2, "gone", "b")])
        assert table.rows("id", "seq", "value") == [(3, 2, "b")]


@pytest.mark.parametrize("on_ties", ["fail", "pick"])
def test_quoted_names_may_be_patterns_in_the_session(spark: SparkSession, on_ties: str) -> None:
    pattern = ApplyChanges(keys=("a-b",), sequence_by=("s-q",), operation_column="o-p", on_ties=on_ties)
    columns, settings = "`a-b` INT, `s-q` INT", {"spark.sql.parser.quotedRegexColumnNames": "true"}
    source = f"{columns}, `o-p` STRING"
    with session_settings(spark, settings), history(spark, pattern, source=source, target=columns) as table:
        table.merge([(1, 1, "i"), (1, 2, "u"), (2, 1, "i")])
        table.merge([(1, 3, "d"), (2, 2, "u")])
        assert table.rows("a-b", "s-q") == [(2, 2)]
