"""Change data: rows for the change data feed beside the rows of the table.

Delta's writer sends rows whose ``_change_type`` is not NULL to change files and all others to data files. Each row
is computed once and then multiplied, so that values which differ at each evaluation (identity columns, ``rand()``)
are the same in both. Rows travel as structs with positional fields, so that no name of a user can get in the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

CHANGE_TYPE = "_change_type"


def with_change_rows(
    rows: DataFrame, new: Sequence[Column], old: Sequence[Column], kind: Column
) -> tuple[DataFrame, list[Column], Column]:
    """Data and change rows of target rows that a merge rewrites, and of rows that it inserts among them.

    :param rows: one row for each of them.
    :param new: the values after the merge; for deletes the old ones.
    :param old: the values before; of any value for inserted rows.
    :param kind: ``update_postimage``, ``delete``, ``insert``, or NULL for a row that is only copied.
    :return: a frame, its value columns in the order of ``new``, and its ``_change_type``.
    """
    computed = rows.select(_struct(new).alias("new"), _struct(old).alias("old"), kind.alias("kind"))
    updated = F.array(
        _change("old", F.lit("update_preimage")),
        _change("new", F.lit("update_postimage")),
        _change("new", _no_change()),
    )
    packed = (
        F.when(F.col("kind") == "update_postimage", updated)
        .when(F.col("kind") == "insert", _inserted())
        .otherwise(F.array(_change("new", F.col("kind"))))
    )
    return _explode(computed, packed, len(new))


def with_insert_rows(rows: DataFrame, new: Sequence[Column]) -> tuple[DataFrame, list[Column], Column]:
    """Data and change rows of inserted rows, in the shape of :func:`with_change_rows`."""
    computed = rows.select(_struct(new).alias("new"))
    return _explode(computed, _inserted(), len(new))


def _struct(values: Sequence[Column]) -> Column:
    return F.struct(*[value.alias(f"c{position}") for position, value in enumerate(values)])


def _inserted() -> Column:
    return F.array(_change("new", F.lit("insert")), _change("new", _no_change()))


def _change(row: str, kind: Column) -> Column:
    return F.struct(F.col(row).alias("row"), kind.alias("kind"))


def _no_change() -> Column:
    return F.lit(None).cast("string")


def _explode(computed: DataFrame, packed: Column, width: int) -> tuple[DataFrame, list[Column], Column]:
    # No column of its own for the array: Spark would add a filter that it isn't empty, compute each row a second time
    # for that, and infer constraints of all columns, which takes seconds when a source computes some hundred.
    exploded = computed.select(F.explode(packed).alias("change"))
    row = F.col("change").getField("row")
    values = [row.getField(f"c{position}") for position in range(width)]
    return exploded, values, F.col("change").getField("kind")
