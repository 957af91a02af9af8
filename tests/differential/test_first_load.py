"""Merges into tables without files: the source is written as it is read, unless it must be looked at before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import (
    MergeConfig,
    MergeGuards,
    MergeSource,
    MergeTarget,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.engine import merge, merge_sql, plan
from airflow_delta_merge.engine.merge_into import NO_MATERIALIZATION_REASON
from airflow_delta_merge.engine.rows.inserts import append_rows
from airflow_delta_merge.engine.strategies import stream_inserts
from airflow_delta_merge.engine.strategies.stream_inserts import FIRST_LOAD
from tests.differential.cases import PEOPLE_SOURCE, Case, Table
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta_merge.contract.result import MergeResult
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.started_merge import StartedMerge

UPDATE, INSERT = "WHEN MATCHED THEN UPDATE SET *", "WHEN NOT MATCHED THEN INSERT *"
UPSERT = f"{UPDATE} {INSERT}"
SYNC = f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE"
COLUMNS = "id INT, name STRING, age INT"
NOBODY = "SELECT * FROM VALUES (1, 'x', 1) AS s(id, name, age) WHERE id > 1"
BY_AGE = Table(COLUMNS, partitioned_by="age")
MAPPED = {"delta.columnMapping.mode": "name"}
VECTORS, FEED = {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}

CASES = [
    Case("first load: upsert", UPSERT, does="insert", table=Table(COLUMNS), every_version=True),
    Case("first load: inserts only", INSERT, does="insert", table=Table(COLUMNS)),
    Case("first load: sync", SYNC, does="insert", table=Table(COLUMNS)),
    Case("first load: two insert clauses, the last for every row",
         f"WHEN NOT MATCHED AND s.age > 17 THEN INSERT (id) VALUES (s.id * 10) {INSERT}", does="insert",
         table=Table(COLUMNS)),
    Case("first load: an insert for some rows only", f"{UPDATE} WHEN NOT MATCHED AND s.age > 17 THEN INSERT *",
         does="insert", table=Table(COLUMNS)),
    Case("first load: updates and deletes only", f"{UPDATE} WHEN NOT MATCHED BY SOURCE THEN DELETE", does="nothing",
         table=Table(COLUMNS)),
    Case("first load: no source row", UPSERT, does="nothing", table=Table(COLUMNS), source=NOBODY),
    Case("first load: no source row, partitions", UPSERT, does="nothing", table=BY_AGE, source=NOBODY),
    Case("first load: several source rows of one key", UPSERT, does="insert", table=Table(COLUMNS),
         source="VALUES (1, 'a', 1), (1, 'a', 1), (1, 'b', 2) AS s(id, name, age)"),
    Case("first load: a value that raises", "WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, 10 DIV (s.age - 17))",
         fails="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE", table=Table(COLUMNS)),
    Case("first load: a source that raises", UPSERT, fails="DIVIDE_BY_ZERO", table=Table(COLUMNS),
         source="SELECT id, name, 10 DIV (age - 17) AS age FROM VALUES (7, 'gil', 17) AS s(id, name, age)"),
    Case("first load: a constraint that a row breaks", UPSERT, fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
         table=Table(COLUMNS, then="ALTER TABLE {t} ADD CONSTRAINT grown CHECK (age > 17)")),
    Case("first load: a NULL that may not be", UPSERT, fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
         table=Table("id INT, name STRING NOT NULL, age INT")),
    Case("first load: partitions of no key", UPSERT, does="insert", table=BY_AGE),
    Case("first load: partitions of a key", UPSERT, does="insert", table=BY_AGE, on="t.id = s.id AND t.age = s.age"),
    Case("first load: one partition of the condition", UPSERT, does="insert", table=BY_AGE,
         on="t.id = s.id AND t.age = 41"),
    Case("first load: deletion vectors", UPSERT, does="insert", table=Table(COLUMNS, properties=VECTORS)),
    Case("first load: change data feed", SYNC, does="insert", table=Table(COLUMNS, properties=FEED),
         every_version=True),
    Case("first load: mapped columns", UPSERT, does="insert", table=Table(COLUMNS, properties=MAPPED),
         every_version=True),
    Case("first load: clusters", UPSERT, does="insert", table=Table(COLUMNS, cluster_by="age")),
    Case("first load: row tracking", UPSERT, does="insert",
         table=Table(COLUMNS, properties={"delta.enableRowTracking": "true"})),
    Case("first load: a generated column", "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
         does="insert", table=Table("id INT, name STRING, twice INT GENERATED ALWAYS AS (id * 2)")),
    Case("first load: an identity column", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert",
         table=Table("id INT, k BIGINT GENERATED ALWAYS AS IDENTITY"), without=("k",)),
    Case("first load: more columns", UPSERT, does="insert", evolves=True, table=Table("id INT, name STRING")),
    Case("first load: a column that Spark computes anew each time", UPSERT, does="insert", table=Table(COLUMNS),
         source="SELECT id, name, cast(rand() * 9 AS INT) AS age FROM VALUES (7, 'g', 1) AS s(id, name, age)",
         without=("age",)),
    Case("first load: the table itself as source", UPSERT, does="nothing", table=Table(COLUMNS), source="{t}"),
    Case("first load: all rows were deleted", UPSERT, does="insert", before="DELETE FROM {t}"),
    Case("first load: no equality", UPSERT, does="insert", table=Table(COLUMNS), on="t.id > s.id"),
    Case("first load: no statistics", UPSERT, does="insert", table=Table(COLUMNS),
         confs={"spark.databricks.delta.stats.collect": "false"}),
    Case("first load: another first load meanwhile", UPSERT, fails="DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
         table=Table(COLUMNS), meanwhile="INSERT INTO {t} VALUES (7, 'gil', 17)"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tables_without_files(case: Case, engines: Harness) -> None:
    engines.check(case)


def merged(
    spark: SparkSession,
    table: Path,
    *,
    on: str = "t.id = s.id",
    columns: str = COLUMNS,
    layout: str = "",
    clauses: str = UPSERT,
) -> MergeResult:
    spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta {layout}").collect()
    return merge_sql(spark, f"MERGE INTO delta.`{table}` t USING ({PEOPLE_SOURCE}) s ON {on} {clauses}")


def test_source_is_not_kept(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_delta_merge.engine.read_once.materialize_source", None)
    result = merged(spark, tmp_path / "t")
    assert (result.executor, result.executor_reason) == ("InsertOnlyMergeExecutor", FIRST_LOAD)
    assert (result.source_storage_level, result.source_materialization_reason) == ("", NO_MATERIALIZATION_REASON)
    assert (result.metrics["numSourceRows"], result.num_inserted_rows) == (4, 4)
    assert (result.num_files_before_skipping, result.num_candidate_files, result.num_touched_files) == (0, 0, 0)
    assert "source" not in result.durations_ms


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ({"on": "t.id = s.id AND t.age = s.age", "layout": "PARTITIONED BY (age)"}, {}),
        (
            {
                "columns": "id INT, k BIGINT GENERATED ALWAYS AS IDENTITY",
                "clauses": "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
            },
            {},
        ),
        ({}, {"spark.databricks.delta.stats.collect": "false"}),
        ({}, {"spark.deltaMerge.shortcuts.enabled": "false"}),
    ],
    ids=[
        "a key is a partition column",
        "an identity column",
        "no statistics are collected",
        "first loads are switched off",
    ],
)
def test_source_is_kept(
    spark: SparkSession, tmp_path: Path, table: Mapping[str, Any], settings: Mapping[str, str]
) -> None:
    with session_settings(spark, settings):
        result = merged(spark, tmp_path / "t", **table)
    assert result.executor_reason != FIRST_LOAD
    assert result.source_storage_level == "MEMORY_AND_DISK"
    assert result.num_inserted_rows == 4


@pytest.mark.parametrize(
    "guards",
    [None, MergeGuards(fail_if=("num_inserted_rows > 4",))],
    ids=[
        "without guards",
        "with a guard",
    ],
)
def test_plan_tells_what_will_be_done(spark: SparkSession, tmp_path: Path, guards: MergeGuards | None) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` ({COLUMNS}) USING delta").collect()
    config = MergeConfig(
        target=MergeTarget.of({"path": str(tmp_path / "t")}),
        source=MergeSource.of({"query": f"SELECT * FROM {PEOPLE_SOURCE}"}),
        on=("id",),
        clauses=(when_matched_update_all(), when_not_matched_insert_all()),
        guards=guards or MergeGuards(),
    )
    planned = plan(spark, config, explain=True)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 0
    result = merge(spark, config)
    assert (planned.num_inserted_rows, planned.num_source_rows, result.num_inserted_rows) == (4, 4, 4)
    assert "inserted rows" in planned.spark_plans
    # Guards look at the counts before anything is written, so that the source is kept for them.
    assert planned.executor_reason == result.executor_reason
    assert (result.executor_reason == FIRST_LOAD) == (guards is None)


def test_a_first_load_reads_the_partitions_of_its_condition_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append_after_another_load(merge: StartedMerge, source: DataFrame, *, input_bytes: int) -> JavaObject:
        insert = f"INSERT INTO delta.`{tmp_path / 't'}` VALUES (7, 'gil', 17)"
        with ThreadPoolExecutor() as another:  # this thread has the merge's transaction
            another.submit(lambda: spark.newSession().sql(insert).collect()).result()
        return append_rows(merge, source, input_bytes=input_bytes)

    monkeypatch.setattr(stream_inserts, "append_rows", append_after_another_load)
    on = "t.id = s.id AND t.age = 41"
    result = merged(spark, tmp_path / "t", on=on, layout="PARTITIONED BY (age)")
    assert (result.executor_reason, result.version_read, result.version) == (FIRST_LOAD, 0, 2)
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 4 + 1


def test_log_tells_what_a_merge_is_at(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="airflow_delta_merge")
    merged(spark, tmp_path / "t")
    assert f"The source is not kept: {FIRST_LOAD}" in caplog.messages
    merge_sql(spark, f"MERGE INTO delta.`{tmp_path / 't'}` t USING ({PEOPLE_SOURCE}) s ON t.id = s.id {UPSERT}")
    assert any(message.startswith("Read the source: 4 rows, ") for message in caplog.messages)
    assert "Searching 1 of 1 files for matches" in caplog.messages


def test_rows_of_many_tasks_are_not_brought_into_one(spark: SparkSession, tmp_path: Path) -> None:
    """Spark knows nothing of the size of rows that come from an RDD."""
    spark.createDataFrame(
        spark.sparkContext.parallelize([(n,) for n in range(40)], 4), "id INT"
    ).createOrReplaceTempView("unknown_size")
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` (id INT) USING delta").collect()
    with session_settings(spark, WAYS["ours_as_small"]):
        result = merge_sql(spark, f"MERGE INTO delta.`{tmp_path / 't'}` t USING unknown_size s ON t.id = s.id {UPSERT}")
    assert (result.executor_reason, result.num_inserted_rows, result.num_added_files) == (FIRST_LOAD, 40, 4)
