"""The engine's own settings: each switches a shortcut off or on, the result stays; a wrong value is an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError
from tests.differential.conftest import MadeOnce
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult

FILES, ROWS = 4, 40
SOURCE = "SELECT id, 'new' AS v FROM VALUES (3L), (35L) AS s(id)"
UPDATE = f"MERGE INTO {{t}} t USING ({SOURCE}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"


def setting(spark: SparkSession, name: str, value: str) -> AbstractContextManager[None]:
    return session_settings(spark, {f"spark.deltaMerge.{name}": value})


@pytest.fixture(autouse=True)
def as_a_larger_table(spark: SparkSession) -> Iterator[None]:
    """The table is small; what is tested is mostly for larger ones."""
    with setting(spark, "smallMergeBytes", "0"):
        yield


@pytest.fixture
def table(made_once: MadeOnce, tmp_path: Path) -> str:
    return f"delta.`{made_once(tmp_path / 't', made)}`"


def made(spark: SparkSession, path: Path) -> None:
    """Four files of ten consecutive ids each, with deletion vectors."""
    rows = spark.range(0, ROWS, 1, FILES).selectExpr("id", "'old' AS v")
    rows.write.format("delta").option("delta.enableDeletionVectors", True).save(str(path))


def merged(spark: SparkSession, table: str) -> MergeResult:
    result = merge_sql(spark, UPDATE.format(t=table))
    new = spark.sql(f"SELECT id FROM {table} WHERE v = 'new' ORDER BY id").collect()
    assert [row["id"] for row in new] == [3, 35]
    assert spark.sql(f"SELECT count(*) AS n FROM {table}").head().n == ROWS
    return result


def test_without_pruning_by_source_every_file_is_searched(spark: SparkSession, table: str) -> None:
    with setting(spark, "pruneBySource.enabled", "false"):
        assert merged(spark, table).num_candidate_files == FILES


@pytest.mark.parametrize(("small_merge", "candidates"), [("8388608", 4), ("100", 2)], ids=["few kilobytes", "more"])
def test_keys_are_clustered_for_a_few_files_that_are_large(
    spark: SparkSession, tmp_path: Path, small_merge: str, candidates: int
) -> None:
    """The two keys lie in the first and the fourth of six files; one range holds those between them, too."""
    path = f"delta.`{tmp_path / 'wide'}`"
    # Clusters are at least 64 apart, so the table's ids are.
    spark.range(0, 60, 1, 6).selectExpr("id * 100 AS id", "'old' AS v").write.format("delta").save(path[7:-1])
    source = "SELECT id, 'new' AS v FROM VALUES (300L), (3500L) AS s(id)"
    with setting(spark, "smallMergeBytes", small_merge):
        result = merge_sql(spark, UPDATE.format(t=path).replace(SOURCE, source))
    assert (result.num_candidate_files, result.num_touched_files, result.num_updated_rows) == (candidates, 2, 2)


def test_keys_and_copied_rows_are_grouped_where_groups_lack_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = f"delta.`{tmp_path / 'wide'}`"
    spark.range(0, ROWS, 1, FILES).selectExpr("id * 100 AS id", "'old' AS v").write.format("delta").save(path[7:-1])
    source = "SELECT id, 'new' AS v FROM VALUES (300L), (3500L) AS s(id)"
    settings = {
        "spark.sql.retainGroupColumns": "false",
        "spark.deltaMerge.copyFilesFromBytes": "0",
    }
    with session_settings(spark, settings):
        result = merge_sql(spark, UPDATE.format(t=path).replace(SOURCE, source))
    assert (result.num_candidate_files, result.num_touched_files, result.num_updated_rows) == (2, 2, 2)
    assert "copied" in result.executor_reason


def test_updates_can_be_made_to_read_the_old_rows(spark: SparkSession, table: str) -> None:
    with setting(spark, "shortcuts.enabled", "false"):
        assert "from the source alone" not in merged(spark, table).executor_reason


def test_updates_of_all_columns_come_from_the_source_alone(spark: SparkSession, table: str) -> None:
    assert "from the source alone" in merged(spark, table).executor_reason


def test_a_source_above_the_limit_is_shuffled(spark: SparkSession, table: str) -> None:
    with setting(spark, "broadcastBytes", "0"):
        assert "the source is shuffled" in merged(spark, table).executor_reason


def test_few_files_below_the_limit_are_not_pruned(spark: SparkSession, table: str) -> None:
    one, another = (UPDATE.format(t=table).replace("(3L), (35L)", key) for key in ("(3L)", "(35L)"))
    with setting(spark, "smallMergeBytes", "8000000"):
        assert merge_sql(spark, one).num_candidate_files == FILES
    assert merge_sql(spark, another).num_candidate_files == 1


def test_keys_of_a_merge_that_only_inserts_always_prune(spark: SparkSession, table: str) -> None:
    merge = f"MERGE INTO {table} t USING ({SOURCE}) s ON t.id = s.id + 0 AND t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    with setting(spark, "smallMergeBytes", "8000000"), setting(spark, "shortcuts.enabled", "false"):
        assert merge_sql(spark, merge.replace("(3L), (35L)", "(3L)")).num_candidate_files == 1


@pytest.mark.parametrize(("limit", "once"), [("0", False), ("1000000", True)])
def test_source_and_files_up_to_the_limit_are_joined_once(
    spark: SparkSession, table: str, limit: str, once: bool
) -> None:
    with setting(spark, "smallMergeBytes", limit):
        assert ("joined once" in merged(spark, table).executor_reason) == once


@pytest.mark.parametrize("listed", ["all files", "a file is missing", "no file", "no checksum file"])
def test_a_small_tables_files_come_from_its_checksum_file_if_it_has_them_all(
    spark: SparkSession, table: str, tmp_path: Path, listed: str
) -> None:
    (path,) = (tmp_path / "t" / "_delta_log").glob("*0.crc")
    checksum = json.loads(path.read_text())
    assert len(checksum["allFiles"]) == checksum["numFiles"] == FILES
    if listed == "no checksum file":
        path.unlink()
    elif listed != "all files":
        checksum["allFiles"] = checksum["allFiles"][1:]
        if listed == "no file":
            del checksum["allFiles"]
        path.write_text(json.dumps(checksum))
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's own, of the file's bytes
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    with setting(spark, "smallMergeBytes", "8000000"):
        assert merged(spark, table).num_candidate_files == FILES


def unnamed_rdds(spark: SparkSession) -> list[int]:
    """The numbers of what is kept in memory, Delta's states of tables left out, which have names."""
    kept = spark.sparkContext._jsc.getPersistentRDDs()
    return sorted(number for number in kept if kept[number].name() is None)


def test_what_was_joined_once_is_given_back(spark: SparkSession, table: str) -> None:
    before = unnamed_rdds(spark)
    with setting(spark, "smallMergeBytes", "8000000"):
        merged(spark, table)
        ambiguous = UPDATE.format(t=table).replace("(3L), (35L)", "(3L), (3L)")
        with pytest.raises(MergeExecutionError, match="multiple source rows"):
            merge_sql(spark, ambiguous)
    assert unnamed_rdds(spark) == before


@pytest.mark.parametrize(
    ("name", "value"), [("pruneBySource.enabled", "maybe"), ("broadcastBytes", "64m"), ("onePassFromRows", "-1")]
)
def test_a_wrong_value_fails_before_reading(spark: SparkSession, table: str, name: str, value: str) -> None:
    with setting(spark, name, value), pytest.raises(MergeConfigError, match=f"spark.deltaMerge.{name} is '{value}'"):
        merge_sql(spark, UPDATE.format(t=table))
