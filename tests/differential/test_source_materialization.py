"""Keeping the source for the whole merge: Delta's settings for it, and executors that lose it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.engine.read_once import MATERIALIZATION_REASON
from airflow_delta_merge.engine.strategies import two_phase
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.conftest import MadeOnce
from tests.differential.delta_log import DeltaTableLog
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.rows.touched_files import TouchedFiles

SETTING = "spark.databricks.delta.merge.materializeSource"
TARGET_ROWS = "SELECT id, 'old' AS v FROM range(4)"
SOURCE_ROWS = "SELECT id, 'new' AS v FROM range(2, 6)"
MERGE = "MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture
def table(made_once: MadeOnce, tmp_path: Path) -> str:
    return f"delta.`{made_once(tmp_path / 'target', made, 'delta', TARGET_ROWS)}`"


@pytest.fixture
def delta_source(made_once: MadeOnce, tmp_path: Path) -> str:
    return f"delta.`{made_once(tmp_path / 'source', made, 'delta', SOURCE_ROWS)}`"


@pytest.fixture
def parquet_source(made_once: MadeOnce, tmp_path: Path) -> str:
    return f"parquet.`{made_once(tmp_path / 'source_files', made, 'parquet', SOURCE_ROWS)}`"


def made(spark: SparkSession, path: Path, format_: str, rows: str) -> None:
    spark.sql(rows).write.format(format_).save(str(path))


def rows(spark: SparkSession, table: str) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in spark.sql(f"SELECT id, v FROM {table}").collect())


MERGED = [(0, "old"), (1, "old"), (2, "new"), (3, "new"), (4, "new"), (5, "new")]


def test_a_source_that_delta_trusts_is_kept_for_this_engines_own_reason(
    spark: SparkSession, table: str, delta_source: str
) -> None:
    result = merge_sql(spark, MERGE.format(t=table, s=delta_source))
    assert (result.source_materialization_reason, result.source_storage_level) == (
        MATERIALIZATION_REASON,
        "MEMORY_AND_DISK",
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "materializeNonDeterministicSourceNonDelta"),
        ({SETTING: "all"}, "materializeAll"),
        ({SETTING: "none"}, MATERIALIZATION_REASON),
    ],
    ids=["auto", "all", "none"],
)
def test_the_result_has_deltas_reason_to_materialize_plain_files(
    spark: SparkSession, table: str, parquet_source: str, settings: dict[str, str], reason: str
) -> None:
    with session_settings(spark, settings):
        result = merge_sql(spark, MERGE.format(t=table, s=parquet_source))
    assert result.source_materialization_reason == reason
    assert rows(spark, table) == MERGED


def test_the_storage_level_is_the_sessions(spark: SparkSession, table: str, delta_source: str) -> None:
    with session_settings(spark, {f"{SETTING}.rddStorageLevel": "disk_only"}):
        result = merge_sql(spark, MERGE.format(t=table, s=delta_source))
    assert result.source_storage_level == "DISK_ONLY"


def test_a_lost_source_makes_the_merge_begin_anew_and_keep_it_more_safely(
    spark: SparkSession, table: str, delta_source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_source(monkeypatch, spark, times=1)
    result = merge_sql(spark, MERGE.format(t=table, s=delta_source))
    assert result.source_storage_level == "DISK_ONLY_2"
    assert (result.num_updated_rows, result.num_inserted_rows, result.version) == (2, 2, 1)
    assert rows(spark, table) == MERGED


def test_a_source_lost_each_time_is_deltas_error_and_changes_nothing(
    spark: SparkSession, table: str, delta_source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_the_source(monkeypatch, spark, times=100)
    with pytest.raises(MergeExecutionError) as raised:
        merge_sql(spark, MERGE.format(t=table, s=delta_source))
    assert raised.value.condition == "DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY"
    assert len(lost) == 4, "Delta tries four times"
    assert DeltaTableLog.read(Path(table.split("`")[1])).version == 0


def lose_the_source(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, *, times: int) -> list[int]:
    """Let all persisted blocks vanish before the files are searched, as if their executor had died."""
    blocks = spark.sparkContext._jsc.sc().env().blockManager().master()
    lost: list[int] = []
    original = two_phase.find_touched_files

    def find_touched_files(merge: MergeContext, *, is_small: bool) -> TouchedFiles:
        if len(lost) < times:
            number = merge.source.rdd.id()
            blocks.removeRdd(number, True)
            lost.append(number)
        return original(merge, is_small=is_small)

    monkeypatch.setattr(two_phase, "find_touched_files", find_touched_files)
    return lost
