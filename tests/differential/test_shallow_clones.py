"""Shallow clones, whose files are in the folder of another table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.engine import merge_sql
from tests.differential.delta_log import DeltaTableLog
from tests.differential.harness import WAYS
from tests.differential.log_differences import ROW_METRICS
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLAUSES = """WHEN MATCHED AND s.n > 25 THEN DELETE WHEN MATCHED THEN UPDATE SET n = t.n + s.n
WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.n = 1 THEN UPDATE SET p = 'a/b'"""
MERGE = f"""MERGE INTO {{t}} t USING (VALUES (2, 'é=1', 20), (3, 'a b', 30), (9, 'new', 90) AS s(id, p, n))
ON t.id = s.id {CLAUSES}"""


@pytest.mark.parametrize("name", ["delta.enableDeletionVectors", "delta.enableChangeDataFeed"])
def test_clone_of_a_clone(spark: SparkSession, tmp_path: Path, name: str) -> None:
    changes = name == "delta.enableChangeDataFeed"
    first, second, clone = (f"delta.`{tmp_path / each}`" for each in ("first", "second", "clone"))
    for statement in (
        f"CREATE TABLE {first} (id INT, p STRING, n INT) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('{name}' = 'true')",
        f"INSERT INTO {first} VALUES (1, 'é=1', 1), (2, 'é=1', 2), (3, 'a b', 3), (4, 'a b', 4), (5, NULL, 5)",
        f"DELETE FROM {first} WHERE id = 4",
        f"CREATE TABLE {second} SHALLOW CLONE {first}",
        f"UPDATE {second} SET n = 7 WHERE id = 5",
        f"CREATE TABLE {clone} SHALLOW CLONE {second}",
        f"INSERT INTO {clone} VALUES (6, 'é=1', 6)",
    ):
        spark.sql(statement).collect()
    before = [_files(tmp_path / each) for each in ("first", "second")]
    _check_all_ways(spark, tmp_path, changes=changes)
    assert [_files(tmp_path / each) for each in ("first", "second")] == before


def test_clone_of_parquet_files(spark: SparkSession, tmp_path: Path) -> None:
    """In a folder whose name is encoded in the log."""
    folder = tmp_path / "a b%20c#d?+é"
    rows = spark.range(1, 9, numPartitions=3).selectExpr("CAST(id AS INT) AS id", "'a b' AS p", "CAST(id AS INT) AS n")
    rows.write.parquet(str(folder))
    before = _files(folder)
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'clone'}` SHALLOW CLONE parquet.`{folder}`").collect()
    _check_all_ways(spark, tmp_path, changes=False)
    assert _files(folder) == before


def _check_all_ways(spark: SparkSession, folder: Path, *, changes: bool) -> None:
    builtin = _merged(spark, folder, "builtin", changes=changes)
    for way, settings in WAYS.items():
        with session_settings(spark, settings):
            assert _merged(spark, folder, way, changes=changes) == builtin


def _merged(spark: SparkSession, folder: Path, who: str, *, changes: bool) -> tuple[Any, ...]:
    """Rows, changes and metrics after a merge into a copy of the clone."""
    path = folder / who
    shutil.copytree(folder / "clone", path)
    statement = MERGE.replace("{t}", f"delta.`{path}`")
    spark.sql(statement).collect() if who == "builtin" else merge_sql(spark, statement)
    log = DeltaTableLog.read(path)
    metrics = log.actions("commitInfo", since=-1)[-1]["operationMetrics"]
    changed: list[Any] = []
    if changes:
        changed = spark.sql(f"SELECT * FROM table_changes_by_path('{path}', 2, 2)").drop("_commit_timestamp").collect()
    rows = spark.read.format("delta").load(str(path)).collect()
    return sorted(map(str, rows)), sorted(map(str, changed)), [metrics[name] for name in ROW_METRICS]


def _files(table: Path) -> set[Path]:
    return set(table.rglob("*"))
