"""Guards: a merge that would overstep a bound commits nothing and leaves no file; one within it is the same merge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import (
    MergeClause,
    MergeConfig,
    MergeSource,
    when_matched_delete,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_insert_all,
)
from airflow_delta_merge.engine import merge
from airflow_delta_merge.exceptions import EmptySourceError, MergeConfigError, MergeGuardError
from tests.differential.delta_log import files_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# 20 rows in the target; of the source's 11 rows 5 match, 3 of these are to be deleted, 6 are new.
SOURCE = "SELECT id, 'new' AS v, id % 2 = 1 AS gone FROM range(15, 26)"
UPSERT = (when_matched_update_all(), when_not_matched_insert_all())
CLAUSES = (when_matched_delete(condition="source.gone"), *UPSERT)
WITHIN = {
    "num_source_rows": 11,
    "num_target_rows": 20,
    "num_updated_rows": 2,
    "num_deleted_rows": 3,
    "num_inserted_rows": 6,
    "num_affected_rows": 11,
    "num_touched_files": 1,
    "updated_fraction": 0.1,
    "deleted_fraction": 0.15,
    "inserted_fraction": 0.3,
    "affected_fraction": 0.55,
}


@pytest.fixture(params=[False, True], ids=["copy on write", "deletion vectors"])
def path(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Four files of five ids each."""
    rows = spark.range(0, 20, 1, 4).selectExpr("id", "'old' AS v")
    rows.write.format("delta").option("delta.enableDeletionVectors", request.param).save(str(tmp_path / "t"))
    return tmp_path / "t"


def run(
    spark: SparkSession, path: Path, clauses: tuple[MergeClause, ...] = CLAUSES, source: str = SOURCE, **guards: Any
) -> tuple[int, int, int]:
    config = MergeConfig(target=str(path), source=MergeSource(query=source), on=["id"], clauses=clauses, guards=guards)
    result = merge(spark, config)
    return result.num_updated_rows, result.num_deleted_rows, result.num_inserted_rows


def test_what_is_within_all_bounds_is_merged(spark: SparkSession, path: Path) -> None:
    assert run(spark, path, fail_if=WITHIN) == (2, 3, 6)


@pytest.mark.parametrize("name", ["num_deleted_rows", "num_inserted_rows", "num_affected_rows", "deleted_fraction"])
def test_what_oversteps_a_bound_leaves_nothing_behind(spark: SparkSession, path: Path, name: str) -> None:
    before, value = files_in(path), WITHIN[name]
    with pytest.raises(MergeGuardError, match=rf"guard {name} > .*\b{name} is {value}[,.]"):
        run(spark, path, fail_if={**WITHIN, name: value * 0.99})
    assert files_in(path) == before


def test_a_condition_may_join_several_counts(spark: SparkSession, path: Path) -> None:
    assert run(spark, path, fail_if=["num_deleted_rows > 2 AND deleted_fraction > 0.2"]) == (2, 3, 6)
    with pytest.raises(MergeGuardError, match="num_source_rows is 11, num_inserted_rows is 11"):
        run(spark, path, source="SELECT id + 50 AS id, v, gone FROM (" + SOURCE + ")",
            fail_if=["num_inserted_rows = num_source_rows"])  # fmt: skip


def test_insert_only_merges_are_guarded(spark: SparkSession, path: Path) -> None:
    with pytest.raises(MergeGuardError, match="num_inserted_rows is 6"):
        run(spark, path, UPSERT[1:], fail_if={"num_inserted_rows": 5})
    assert run(spark, path, UPSERT[1:], fail_if={"num_inserted_rows": 6}) == (0, 0, 6)


def test_fractions_of_an_empty_target_are_unknown_and_stop_nothing(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'empty'}` (id BIGINT, v STRING) USING delta").collect()
    assert run(spark, tmp_path / "empty", UPSERT, fail_if={"inserted_fraction": 0.1}) == (0, 0, 11)


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ("num_dleted_rows > 1", "no condition over num_source_rows"),
        ("num_deleted_rows", "is bigint, not true or false"),
        ("num_deleted_rows >", "is not a SQL expression"),
    ],
)
def test_a_wrong_condition_is_told_before_anything_is_read(
    spark: SparkSession, path: Path, condition: str, sentence: str
) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        run(spark, path, source="SELECT raise_error('read') AS id", fail_if=[condition])


def test_an_empty_source_deletes_all_unless_a_guard_says_otherwise(spark: SparkSession, path: Path) -> None:
    nothing, sync = f"{SOURCE} WHERE id < 0", (*UPSERT, when_not_matched_by_source_delete())
    for choice in ("skip", "fail"):
        with pytest.raises(EmptySourceError, match="no rows"):
            run(spark, path, sync, nothing, on_empty_source=choice)
    assert spark.read.format("delta").load(str(path)).count() == 20
    assert run(spark, path, sync, nothing) == (0, 20, 0)
