"""The benchmark of large tables: what makes its tables, and what reads its logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from bench.at_scale import _heap_after_collections, _most
from bench.many_files import make_files, make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("deletion_vectors", [False, True])
def test_a_table_with_a_log_by_hand_is_one(spark: SparkSession, tmp_path: Path, deletion_vectors: bool) -> None:
    make_files(tmp_path / "data", files=5, rows_per_file=4)
    table = tmp_path / "table"
    make_table(spark, table, data=tmp_path / "data", rows_per_file=4, deletion_vectors=deletion_vectors)
    assert list((table / "_delta_log").glob("*.checkpoint.parquet"))
    frame = spark.read.format("delta").load(str(table))
    assert sorted(row["id"] for row in frame.collect()) == list(range(20))
    result = merge_sql(
        spark,
        f"MERGE INTO delta.`{table}` AS t USING (SELECT 9L AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
    )
    # By the statistics in the log only the third file can hold 9.
    assert (result.num_files_before_skipping, result.num_candidate_files) == (5, 1)
    assert (result.num_deleted_rows, result.num_deletion_vectors_added) == (1, int(deletion_vectors))
    assert spark.read.format("delta").load(str(table)).count() == 19


def test_the_heap_is_what_collections_leave(tmp_path: Path) -> None:
    log = tmp_path / "gc.log"
    log.write_text(
        "[1000ms] Using G1\n"
        "[1100ms] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 24M->9M(130M) 3.456ms\n"
        "[1200ms] GC(1) Concurrent Mark Cycle\n"
        "[1300ms] GC(2) Pause Young (Mixed) (G1 Evacuation Pause) 99M->40M(130M) 3.456ms\n"
        "[1400ms] GC(3) Pause Full (System.gc()) 80M->12M(130M) 30.1ms\n"
    )
    heap = _heap_after_collections(log)
    assert heap == [(1100, 9), (1300, 40), (1400, 12)]
    assert [_most(heap, *times) for times in ((1000, 1200), (1200, 1400), (1150, 1250))] == [9, 40, None]
