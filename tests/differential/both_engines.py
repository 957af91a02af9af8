"""A merge by both engines, for tests that ask more of ours than that it leaves the same behind."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta_merge.engine import merge_sql

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from airflow_delta_merge.result import MergeResult


def merged_as_by_the_builtin(
    spark: SparkSession, table: Path, tmp_path: Path, statement: str
) -> tuple[MergeResult, Counter[Row]]:
    """Merge into a copy of the table by each engine, and compare the rows; what ours returned, and these rows.

    :param statement: with ``{t}`` for the table.
    """
    bags = {}
    for engine in ("ours", "builtin"):
        copy = tmp_path / engine
        shutil.copytree(table, copy)
        merge = statement.replace("{t}", f"delta.`{copy}`")
        if engine == "ours":
            result = merge_sql(spark, merge)
        else:
            spark.sql(merge).collect()
        bags[engine] = Counter(spark.read.format("delta").load(str(copy)).collect())
    assert bags["ours"] == bags["builtin"]
    return result, bags["ours"]
