"""The engine's own settings: each switches a shortcut off or on, the result stays; a wrong value is told."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.exceptions import MergeConfigError
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.result import MergeResult

FILES, ROWS = 4, 40
SOURCE = "SELECT id, 'new' AS v FROM VALUES (3L), (35L) AS s(id)"
UPDATE = f"MERGE INTO {{t}} t USING ({SOURCE}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"


def setting(spark: SparkSession, name: str, value: str) -> AbstractContextManager[None]:
    return session_settings(spark, {f"spark.deltaMerge.{name}": value})


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """Four files of ten consecutive ids each, with deletion vectors."""
    rows = spark.range(0, ROWS, 1, FILES).selectExpr("id", "'old' AS v")
    rows.write.format("delta").option("delta.enableDeletionVectors", True).save(str(tmp_path / "t"))
    return f"delta.`{tmp_path / 't'}`"


def merged(spark: SparkSession, table: str) -> MergeResult:
    result = merge_sql(spark, UPDATE.format(t=table))
    new = spark.sql(f"SELECT id FROM {table} WHERE v = 'new' ORDER BY id").collect()
    assert [row["id"] for row in new] == [3, 35]
    assert spark.sql(f"SELECT count(*) AS n FROM {table}").head().n == ROWS
    return result


def test_without_pruning_by_source_every_file_is_searched(spark: SparkSession, table: str) -> None:
    with setting(spark, "pruneBySource.enabled", "false"):
        assert merged(spark, table).num_candidate_files == FILES


def test_a_small_table_is_pruned_by_one_range_unless_told_otherwise(spark: SparkSession, table: str) -> None:
    # 3 and 35 lie in the first and the last file: one range from 3 to 35 meets all four.
    assert merged(spark, table).num_candidate_files == FILES


def test_keys_of_a_small_table_are_clustered_on_request(spark: SparkSession, table: str, tmp_path: Path) -> None:
    # Clusters are at least 64 apart, so the table's ids are stretched.
    path = f"delta.`{tmp_path / 'wide'}`"
    rows = spark.range(0, ROWS, 1, FILES).selectExpr("id * 100 AS id", "'old' AS v")
    rows.write.format("delta").save(str(tmp_path / "wide"))
    source = "SELECT id, 'new' AS v FROM VALUES (300L), (3500L) AS s(id)"
    with setting(spark, "clusterKeysFrom", "1"):
        result = merge_sql(spark, UPDATE.format(t=path).replace(SOURCE, source))
    assert (result.num_candidate_files, result.num_touched_files, result.num_updated_rows) == (2, 2, 2)


def test_updates_can_be_made_to_read_the_old_rows(spark: SparkSession, table: str) -> None:
    with setting(spark, "updateFromSource.enabled", "false"):
        assert "from the source alone" not in merged(spark, table).executor_reason


def test_updates_of_all_columns_come_from_the_source_alone(spark: SparkSession, table: str) -> None:
    assert "from the source alone" in merged(spark, table).executor_reason


def test_a_source_above_the_limit_is_shuffled(spark: SparkSession, table: str) -> None:
    with setting(spark, "broadcastBytes", "0"):
        assert "the source is shuffled" in merged(spark, table).executor_reason


@pytest.mark.parametrize(
    ("name", "value"), [("pruneBySource.enabled", "maybe"), ("broadcastBytes", "64m"), ("clusterKeysFrom", "-1")]
)
def test_a_wrong_value_is_told_before_anything_is_read(spark: SparkSession, table: str, name: str, value: str) -> None:
    with setting(spark, name, value), pytest.raises(MergeConfigError, match=f"spark.deltaMerge.{name} is '{value}'"):
        merge_sql(spark, UPDATE.format(t=table))
