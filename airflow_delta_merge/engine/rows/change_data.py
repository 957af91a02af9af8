"""Change data: rows for the change data feed beside the rows of the table.

Delta's writer sends rows whose ``_change_type`` is not NULL to change files and all others to data files. Each row
is computed once and then multiplied, so that values that differ at each evaluation (identity columns, ``rand()``)
are the same in both. Rows are packed into structs, so no user column can clash with ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def with_change_rows(rows: DataFrame, new: Sequence[Column], old: Column, kind: Column) -> DataFrame:
    """Data and change rows of the target rows that a merge rewrites and of the rows that it inserts.

    :param rows: one row for each of them.
    :param new: the values after the merge, under their final names; for deletes the old values.
    :param old: a struct of the values before, under the same names; any value for inserted rows.
    :param kind: ``update_postimage``, ``delete``, ``insert``, or NULL for a row that is only copied.
    :return: the columns of ``new`` and ``_change_type``.
    """
    computed = rows.select(F.struct(*new).alias("new"), old.alias("old"), kind.alias("kind"))
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
    return _explode(computed, packed)


def with_insert_rows(rows: DataFrame, new: Sequence[Column]) -> DataFrame:
    """Data and change rows of inserted rows, with the columns of :func:`with_change_rows`."""
    return _explode(rows.select(F.struct(*new).alias("new")), _inserted())


def _inserted() -> Column:
    return F.array(_change("new", F.lit("insert")), _change("new", _no_change()))


def _change(row: str, kind: Column) -> Column:
    return F.struct(F.col(row).alias("row"), kind.alias("kind"))


def _no_change() -> Column:
    return F.lit(None).cast("string")


def _explode(computed: DataFrame, packed: Column) -> DataFrame:
    # The array gets no column of its own: Spark would add a filter that it isn't empty, compute each row again for
    # that, and infer constraints on all columns, which takes seconds if a source computes some hundred columns.
    exploded = computed.select(F.explode(packed).alias("change"))
    return exploded.select("change.row.*", F.col("change.kind").alias("_change_type"))
