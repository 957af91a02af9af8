"""Inserts of a source that is written as it is read, unless it must be looked at before or is better kept.

That rows, schema and metrics are those of the built-in MERGE is shown by all cases with insert clauses only, as their
tables are small; one way of the harness keeps the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import (
    MergeConfig,
    MergeGuards,
    MergeSource,
    MergeTarget,
    when_not_matched_insert_all,
)
from airflow_delta_merge.engine import merge, merge_sql, plan
from airflow_delta_merge.engine.merge_into import NO_MATERIALIZATION_REASON
from airflow_delta_merge.engine.strategies import stream_inserts
from airflow_delta_merge.engine.strategies.stream_inserts import LARGE_SOURCE, SMALL_TABLE
from tests.differential.both_engines import merged_as_by_the_builtin
from tests.differential.cases import Case, Table
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult

INSERT = "WHEN NOT MATCHED THEN INSERT *"
COLUMNS = "id INT, name STRING, age INT"
ROWS = "SELECT CAST(id AS INT) AS id, CONCAT('name ', id) AS name, CAST(id AS INT) AS age FROM RANGE({rows})"
#: Ten rows of which ROWS has the first five, if it has so many.
SOURCE = "SELECT CAST(id - 5 AS INT) AS id, 'new' AS name, 1 AS age FROM RANGE({rows})"
MANY = "SELECT CAST(id * 7 AS INT) AS id, 'x' AS name, 1 AS age FROM RANGE(1000)"

CASES = [
    Case("small table: a source of many rows and several tasks", INSERT, does="insert", source=MANY),
    Case("small table: a source that is shuffled by itself", INSERT, does="insert",
         source="SELECT id % 9 AS id, MIN(name) AS name, MAX(age) AS age FROM VALUES (1, 'a', 1), (10, 'b', 2),"
                " (7, 'c', 3), (8, 'd', 4) AS s(id, name, age) GROUP BY id % 9"),
    Case("small table: no source row", INSERT, does="nothing",
         source="SELECT * FROM VALUES (1, 'x', 1) AS s(id, name, age) WHERE id > 1"),
    Case("small table: a source that Spark computes anew each time", INSERT, does="insert", without=("age",),
         source="SELECT id, name, CAST(RAND() * 9 AS INT) AS age FROM VALUES (1, 'a', 1), (7, 'g', 1)"
                " AS s(id, name, age)"),
    Case("small table: the table itself, moved on", INSERT, does="insert",
         source="SELECT id + 2 AS id, name, age FROM {t}"),
    Case("small table: rows are written into their partitions", INSERT, does="insert", source=MANY,
         table=Table(COLUMNS, "(1, 'a', 1), (14, 'b', 2)", partitioned_by="name")),
    Case("small table: a file is removed meanwhile", INSERT, fails="DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT",
         table=Table(COLUMNS, rows=("(2, 'a', 1)", "(9, 'b', 2)")), meanwhile="DELETE FROM {t} WHERE id = 2"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_tables(case: Case, engines: Harness) -> None:
    engines.check(case)


def table_of(spark: SparkSession, folder: Path, *, rows: int, columns: str = COLUMNS, layout: str = "") -> str:
    table = f"delta.`{folder / 't'}`"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta {layout}").collect()
    spark.sql(f"INSERT INTO {table} (id, name, age) {ROWS.format(rows=rows)}").collect()
    return table


def inserted(spark: SparkSession, table: str, *, rows: int = 10, on: str = "t.id = s.id") -> MergeResult:
    clause = "WHEN NOT MATCHED THEN INSERT (id, name, age) VALUES (s.id, s.name, s.age)"
    return merge_sql(spark, f"MERGE INTO {table} t USING ({SOURCE.format(rows=rows)}) s ON {on} {clause}")


def test_source_is_not_kept(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_delta_merge.engine.read_once.materialize_source", None)
    result = inserted(spark, table_of(spark, tmp_path, rows=100))
    assert (result.executor, result.executor_reason) == ("InsertOnlyMergeExecutor", SMALL_TABLE)
    assert (result.source_storage_level, result.source_materialization_reason) == ("", NO_MATERIALIZATION_REASON)
    assert (result.metrics["numSourceRows"], result.metrics["operationNumSourceRows"]) == (10, 10)
    assert result.num_inserted_rows == 5
    assert result.num_candidate_files == result.num_files_before_skipping > 0


@pytest.mark.parametrize(
    ("table", "on", "settings"),
    [
        ({"layout": "PARTITIONED BY (age)"}, "t.id = s.id AND t.age = s.age", {}),
        ({"columns": f"{COLUMNS}, k BIGINT GENERATED ALWAYS AS IDENTITY"}, "t.id = s.id", {}),
        ({}, "t.id = s.id", {"spark.databricks.delta.stats.collect": "false"}),
        ({}, "t.id = s.id", {"spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled": "false"}),
        ({}, "t.id = s.id", {"spark.deltaMerge.smallMergeBytes": "0"}),
        ({}, "t.id = s.id", {"spark.deltaMerge.useChecksum.enabled": "false"}),  # nobody knows its rows then
    ],
    ids=[
        "a key is a partition column",
        "an identity column",
        "no statistics are collected",
        "insert-only merges are not optimised",
        "the table is not small",
        "the table's rows are not listed",
    ],
)
def test_source_is_kept(
    spark: SparkSession, tmp_path: Path, table: Mapping[str, str], on: str, settings: Mapping[str, str]
) -> None:
    made = table_of(spark, tmp_path, rows=10, **table)
    with session_settings(spark, settings):
        result = inserted(spark, made, on=on)
    assert result.executor_reason != SMALL_TABLE
    assert result.source_storage_level == "MEMORY_AND_DISK"
    assert result.num_inserted_rows == (9 if "age" in on else 5)  # of the source's five known keys one has its age


def test_a_table_of_more_rows_is_not_broadcast(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_inserts, "MOST_ROWS", 99)
    assert inserted(spark, table_of(spark, tmp_path, rows=100)).executor_reason != SMALL_TABLE


@pytest.mark.parametrize(
    ("source_rows", "part", "is_read_once"),
    [(10, 3, False), (10_000, 5, False), (10_000, 3, True)],
)
def test_a_larger_table_is_read_whole_for_a_source_that_is_no_smaller(
    spark: SparkSession, tmp_path: Path, source_rows: int, part: int, *, is_read_once: bool
) -> None:
    """A table of four times ``smallMergeBytes`` at most."""
    table = table_of(spark, tmp_path, rows=1000)
    num_bytes = sum(file.stat().st_size for file in (tmp_path / "t").glob("*.parquet"))
    with session_settings(spark, {"spark.deltaMerge.smallMergeBytes": str(num_bytes // part)}):
        result = inserted(spark, table, rows=source_rows)
    assert (result.executor_reason == SMALL_TABLE) == is_read_once


#: As if tables and sources of a few rows were large.
LARGE = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.broadcastBytes": "0"}


@pytest.mark.parametrize(
    ("key", "source", "on", "settings", "is_read_once"),
    [
        ("id * 7 % 80", "SELECT * FROM {s}", "t.id = s.id", {}, True),
        ("id * 7 % 80", "SELECT id, name, age + 1 AS age FROM {s}", "s.id = t.id AND t.name = s.name", {}, True),
        # Each file has keys of its own.
        ("id", "SELECT * FROM {s}", "t.id = s.id", {}, False),
        ("id * 7 % 80", "SELECT * FROM {s}", "t.id = s.id AND t.age = s.age", {}, False),
        # So much less than the table that a filter of its keys is worth more.
        ("id * 7 % 80", "SELECT * FROM {one}", "t.id = s.id", {}, False),
        # Nobody knows how many rows are left.
        ("id * 7 % 80", "SELECT * FROM {s} WHERE age > 0", "t.id = s.id", {}, False),
        ("id * 7 % 80", "SELECT * FROM {s}", "t.id > s.id", {}, False),
        # Nobody knows what is in the files.
        ("id * 7 % 80", "SELECT * FROM {s}", "t.id = s.id", {"spark.deltaMerge.shortcuts.enabled": "false",
                                                             "spark.deltaMerge.useChecksum.enabled": "false"}, False),
        ("id * 7 % 80", "SELECT * FROM {s}", "t.id = s.id", {"spark.deltaMerge.broadcastBytes": "1000000"}, False),
        ("id * 7 % 80", "SELECT * FROM {s}", "t.id = s.id", {"spark.deltaMerge.shortcuts.enabled": "false"}, False),
    ], ids=[
        "whole files",
        "whole files, a computed column, two keys",
        "each file has keys of its own",
        "each file has values of its own of one of two keys",
        "a source far smaller than the table",
        "a filtered source",
        "no equality",
        "the files' statistics are not listed",
        "the source is broadcast",
        "reading once is switched off",
    ]
)  # fmt: skip
def test_a_large_source_whose_keys_may_be_in_any_file_is_not_kept(
    spark: SparkSession,
    tmp_path: Path,
    key: str,
    source: str,
    on: str,
    settings: Mapping[str, str],
    *,
    is_read_once: bool,
) -> None:
    columns = "CAST(age AS INT) AS age", "concat('name ', id) AS name"
    rows = spark.range(0, 80, 1, 8).selectExpr(f"CAST({key} AS INT) AS id", "id AS age").selectExpr("id", *columns)
    rows.write.format("delta").save(str(tmp_path / "t"))
    new = spark.range(70, 90, 1, 8).selectExpr("CAST(id AS INT) AS id", "id AS age").selectExpr("id", *columns)
    new.write.parquet(str(tmp_path / "s"))
    new.coalesce(1).write.parquet(str(tmp_path / "one"))
    read = source.format(**{name: f"parquet.`{tmp_path / name}`" for name in ("s", "one")})
    merge = f"MERGE INTO {{t}} t USING ({read}) s ON {on} {INSERT}"
    with session_settings(spark, {**LARGE, **settings}):
        result = merged_as_by_the_builtin(spark, tmp_path / "t", tmp_path / "merged", merge)
    assert (result.executor_reason == LARGE_SOURCE) is is_read_once
    assert (result.source_materialization_reason == NO_MATERIALIZATION_REASON) is is_read_once
    assert result.num_inserted_rows > 0


@pytest.mark.parametrize(
    "guards",
    [None, MergeGuards(fail_if=("num_inserted_rows > 5",))],
    ids=[
        "without guards",
        "with a guard",
    ],
)
def test_plan_tells_what_will_be_done(spark: SparkSession, tmp_path: Path, guards: MergeGuards | None) -> None:
    table_of(spark, tmp_path, rows=100)
    config = MergeConfig(
        target=MergeTarget.of({"path": str(tmp_path / "t")}),
        source=MergeSource.of({"query": SOURCE.format(rows=10)}),
        on=("id",),
        clauses=(when_not_matched_insert_all(),),
        guards=guards or MergeGuards(),
    )
    files = set((tmp_path / "t").glob("*.parquet"))
    planned = plan(spark, config, explain=True)
    assert set((tmp_path / "t").glob("*.parquet")) == files
    result = merge(spark, config)
    assert (planned.num_inserted_rows, planned.num_source_rows, result.num_inserted_rows) == (5, 10, 5)
    assert "LeftAnti" in planned.spark_plans["inserted rows"]
    # Guards look at the counts before anything is written, so that the source is kept for them.
    assert planned.executor_reason == result.executor_reason
    assert (result.executor_reason == SMALL_TABLE) == (guards is None)
    assert planned.num_candidate_files == result.num_candidate_files


def test_large_tables_way_of_the_harness_keeps_the_source() -> None:
    """Else no case with insert clauses only would show that the other way still works."""
    assert any(confs.get("spark.deltaMerge.smallMergeBytes") == "0" for confs in WAYS.values())
