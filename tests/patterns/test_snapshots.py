"""Upsert, InsertNew, Sync and SoftDelete against dicts that do the same."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta_merge.patterns import InsertNew, Pattern, SoftDelete, Sync, Upsert
from tests.patterns.histories import history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "id INT, value STRING, created INT"
VALUES = st.sampled_from(["a", "b", "protected", None])
BATCHES = st.lists(st.dictionaries(st.integers(1, 6), VALUES, max_size=6), min_size=3, max_size=3)

State = dict[int, tuple[str | None, int, bool]]


def insert_new(state: State, batch: State) -> State:
    return {**batch, **state}


def upsert(state: State, batch: State) -> State:
    """``created`` is what the first insert said."""
    new = {key: (value, state[key][1] if key in state else made, gone) for key, (value, made, gone) in batch.items()}
    return {**state, **new}


def sync(state: State, batch: State) -> State:
    """What isn't there any more is deleted, but not what ``where`` leaves out: NULL isn't different from anything."""
    kept = {key: row for key, row in state.items() if key in batch or row[0] in ("protected", None)}
    return upsert(kept, batch)


def soft_delete(state: State, batch: State) -> State:
    marked = {key: (value, made, key not in batch or gone) for key, (value, made, gone) in state.items()}
    return upsert(marked, batch)


@pytest.mark.parametrize(
    ("pattern", "model"),
    [
        (InsertNew(keys=("id",)), insert_new),
        (Upsert(keys=("id",), keep=("created",)), upsert),
        (Sync(keys=("id",), keep=("created",), where="target.value <> 'protected'"), sync),
        (SoftDelete(keys=("id",), keep=("created",), deleted_column="is-gone"), soft_delete),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Pattern) else "",
)
def test_any_history_gives_what_the_model_gives(spark: SparkSession, pattern: Pattern, model, few: settings) -> None:
    marks = isinstance(pattern, SoftDelete)
    columns = ["id", "value", "created", *(["is-gone"] if marks else [])]

    @few
    @given(batches=BATCHES)
    def check(batches: list[dict[int, str | None]]) -> None:
        target = SOURCE + (", `is-gone` BOOLEAN" if marks else "")
        with history(spark, pattern, source=SOURCE, target=target) as table:
            state: State = {}
            for number, batch in enumerate(batches):
                rows = {key: (value, number, False) for key, value in batch.items()}
                table.merge((key, value, made) for key, (value, made, _) in rows.items())
                state = model(state, rows)
                expected = [(key, *row)[: len(columns)] for key, row in state.items()]
                assert table.rows(*columns) == sorted(expected, key=repr)

    check()


def test_a_window_bounds_what_a_sync_deletes(spark: SparkSession) -> None:
    days = "id INT, day DATE"
    with history(spark, Sync(keys=("id",)), source=days, target=days) as table:
        first, second = date(2024, 3, 31), date(2024, 4, 1)
        table.merge([(1, first), (2, first), (3, second)])
        # The day on which Berlin's clocks go forward has 23 hours.
        window = {"column": "day", "column_type": "date", "timezone": "Europe/Berlin"}
        window |= {"start": "2024-03-30T23:00Z", "end": "2024-03-31T22:00Z"}
        result = table.merge([(2, first), (4, first), (5, second)], window=window)
        assert table.rows("id", "day") == [(2, first), (3, second), (4, first)]
        assert (result.num_deleted_rows, result.num_inserted_rows) == (1, 1)


def test_a_deletion_time_is_set_and_cleared(spark: SparkSession) -> None:
    pattern = SoftDelete(keys=("id",), deleted_at_column="deleted_at")
    target = "id INT, is_deleted BOOLEAN, deleted_at TIMESTAMP"
    with history(spark, pattern, source="id INT", target=target) as table:
        table.merge([(1,), (2,)])
        table.merge([(1,)])
        ((_, marked, moment),) = [row for row in table.rows("id", "is_deleted", "deleted_at") if row[0] == 2]
        assert marked
        assert moment is not None
        assert table.merge([(1,)], update_only_changed=True).version is None, "it is marked once"
        table.merge([(2,)])
        assert (2, False, None) in table.rows("id", "is_deleted", "deleted_at")
