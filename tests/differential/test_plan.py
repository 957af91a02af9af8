"""Planning: what a merge would do is exactly what it then does, and the plan itself leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
from airflow_delta_merge.engine import merge, plan
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.delta_log import files_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "SELECT id, 'new' AS v, id % 2 = 0 AS gone FROM range(15, 26)"
UPSERT = (when_matched_update_all(), when_not_matched_insert_all())
CLAUSES: dict[str, tuple[MergeClause, ...]] = {
    "upsert": UPSERT,
    "insert only": UPSERT[1:],
    "update only": UPSERT[:1],
    "delete some": (when_matched_delete(condition="source.gone"), *UPSERT),
    "sync": (*UPSERT, when_not_matched_by_source_delete(condition="target.id > 12")),
    "nothing taken": (when_matched_delete(condition="source.id < 0"),),
    "nothing taken, all inserted": (
        when_matched_delete(condition="source.id < 0"),
        when_not_matched_insert_all(),
    ),
}
SAME = (
    *("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"),
    *("num_files_before_skipping", "num_bytes_before_skipping", "num_candidate_files", "num_candidate_bytes"),
    *("num_touched_files", "table", "version_read", "executor", "executor_reason"),
)


@pytest.mark.parametrize("deletion_vectors", [False, True], ids=["copy on write", "deletion vectors"])
@pytest.mark.parametrize("clauses", CLAUSES.values(), ids=CLAUSES)
def test_a_plan_tells_what_the_merge_then_does(
    spark: SparkSession, tmp_path: Path, clauses: tuple[MergeClause, ...], deletion_vectors: bool
) -> None:
    path = tmp_path / "target"
    rows = spark.sql("SELECT id, 'old' AS v FROM range(20)").repartitionByRange(4, "id")
    rows.write.format("delta").option("delta.enableDeletionVectors", deletion_vectors).save(str(path))
    config = MergeConfig(target=str(path), source=MergeSource(query=SOURCE), on=["id"], clauses=clauses)
    before = files_in(path)

    planned = plan(spark, config)

    assert files_in(path) == before, "a plan writes no file and commits nothing"
    assert planned.spark_plans == {}
    done = merge(spark, config)
    assert {name: getattr(planned, name) for name in SAME} == {name: getattr(done, name) for name in SAME}
    assert planned.num_copied_rows == done.metrics["numTargetRowsCopied"]
    assert planned.num_source_rows == done.metrics["numSourceRows"] == 11
    if done.num_removed_files == done.num_touched_files:
        assert planned.num_touched_bytes == done.num_removed_bytes


def test_a_plan_explains_itself_on_request(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "target"
    spark.sql("SELECT id, 'old' AS v FROM range(20)").write.format("delta").save(str(path))
    config = MergeConfig(target=str(path), source=MergeSource(query=SOURCE), on=["id"], clauses=UPSERT)
    plans = plan(spark, config, explain=True).spark_plans
    assert set(plans) == {"matches", "rewritten rows", "inserted rows"}
    assert all("== Physical Plan ==" in text for text in plans.values())


def test_a_plan_raises_what_the_merge_would(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "target"
    spark.sql("SELECT id, 'old' AS v FROM range(20)").write.format("delta").save(str(path))
    twice = f"{SOURCE} UNION ALL {SOURCE}"
    config = MergeConfig(target=str(path), source=MergeSource(query=twice), on=["id"], clauses=UPSERT)
    with pytest.raises(MergeExecutionError) as raised:
        plan(spark, config)
    assert raised.value.condition == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
