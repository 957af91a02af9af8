"""A merge by both engines, for tests that ask more of ours than that it leaves the same behind."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.engine import merge_sql
from tests.differential.delta_log import DeltaTableLog
from tests.differential.plain_rows import read_plainly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult


def merged_as_by_the_builtin(
    spark: SparkSession, table: Path, tmp_path: Path, statement: str, builtin: Counter[str] | None = None
) -> MergeResult:
    """Merge into a copy of the table by each engine, and compare the rows; what ours returned.

    :param statement: with ``{t}`` for the table.
    :param builtin: what :func:`rows_by_the_builtin` gave for the same, where ours merges several times.
    """
    if builtin is None:
        builtin = rows_by_the_builtin(spark, table, tmp_path, statement)
    result: MergeResult
    result, rows = _merged(table, tmp_path / "ours", statement, lambda sql: merge_sql(spark, sql))
    assert rows == builtin
    return result


def rows_by_the_builtin(spark: SparkSession, table: Path, tmp_path: Path, statement: str) -> Counter[str]:
    """The rows, as a bag, after the built-in has merged into a copy of the table."""
    return _merged(table, tmp_path / "builtin", statement, lambda sql: spark.sql(sql).collect())[1]


def _merged(table: Path, copy: Path, statement: str, merge: Callable[[str], Any]) -> tuple[Any, Counter[str]]:
    shutil.copytree(table, copy)
    returned = merge(statement.replace("{t}", f"delta.`{copy}`"))
    return returned, read_plainly(copy, DeltaTableLog.read(copy), skip=(), without=())
