"""Merges that change most of the table, in one pass: when they are, and that nothing is left when they can't be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import MergeGuards, MergeStatement
from airflow_delta_merge.engine import merge, merge_sql, plan
from airflow_delta_merge.engine.settings import Settings
from airflow_delta_merge.engine.strategies import one_pass
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.cases import Case, Table
from tests.differential.conftest import MadeOnce
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS = 4, 40
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
ONE_PASS = "in the one pass"
# The range of the keys takes in the file of 20 to 29, but none of them is in it.
MISSES_A_FILE = "SELECT explode(array(5, 6, 7, 8, 15, 16, 17, 18, 35, 36, 37, 41)) AS id, 'new' AS v"


@pytest.fixture(autouse=True)
def as_a_large_source(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, WAYS["ours_as_large"]):
        yield


@pytest.fixture
def table(made_once: MadeOnce, tmp_path: Path) -> Path:
    return made_once(tmp_path / "t", made)


def made(spark: SparkSession, path: Path) -> None:
    """Four files of ten consecutive ids each."""
    rows = spark.range(0, ROWS, 1, FILES).selectExpr("id", "'old' AS v")
    rows.write.format("delta").save(str(path))


@pytest.fixture
def fed_table(spark: SparkSession, table: Path) -> Path:
    """As :func:`made`, with a change data feed from version 2 on."""
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    return table


def data_files(table: Path) -> list[Path]:
    return [*table.glob("*.parquet")]


def change_files(table: Path) -> list[Path]:
    return [*table.glob("_change_data/*.parquet")]


def statement(table: Path, source: str, clauses: str = UPSERT) -> str:
    return f"MERGE INTO delta.`{table}` t USING ({source}) s ON t.id = s.id {clauses}"


def test_a_source_that_meets_every_file_is_merged_in_one_pass(spark: SparkSession, table: Path) -> None:
    result = merge_sql(spark, statement(table, "SELECT id * 2 AS id, 'new' AS v FROM range(30)"))
    assert ONE_PASS in result.executor_reason
    assert (result.num_touched_files, result.num_removed_files) == (FILES, FILES)
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_deleted_rows) == (20, 10, 0)
    found = spark.sql(f"SELECT v, count(*) AS n FROM delta.`{table}` GROUP BY v").collect()
    assert {row.v: row.n for row in found} == {"new": 30, "old": 20}


@pytest.mark.parametrize(("rows_per_file", "is_one_pass"), [(25, True), (24, False)])
def test_a_small_source_is_merged_in_one_pass_from_25_rows_a_file_on(
    spark: SparkSession, table: Path, rows_per_file: int, is_one_pass: bool
) -> None:
    of_a_small_one = {
        "spark.deltaMerge.smallMergeBytes": str(Settings.small_merge_bytes),
        "spark.deltaMerge.onePassFromRows": str(Settings.one_pass_from_rows),
    }
    source = f"SELECT id, 'new' AS v FROM range({rows_per_file * FILES})"
    with session_settings(spark, of_a_small_one):
        result = merge_sql(spark, statement(table, source))
    assert (ONE_PASS in result.executor_reason) is is_one_pass
    assert (result.num_updated_rows, result.num_inserted_rows) == (ROWS, rows_per_file * FILES - ROWS)


def test_a_file_without_a_match_stays_and_nothing_is_left_of_the_one_pass(spark: SparkSession, table: Path) -> None:
    result = merge_sql(spark, statement(table, MISSES_A_FILE))
    assert ONE_PASS not in result.executor_reason
    assert (result.num_candidate_files, result.num_touched_files) == (FILES, FILES - 1)
    assert (result.num_updated_rows, result.num_inserted_rows) == (11, 1)
    assert len(data_files(table)) == FILES + result.num_added_files


def test_change_rows_are_written_in_the_one_pass(spark: SparkSession, fed_table: Path) -> None:
    clauses = f"WHEN MATCHED AND s.id = 4 THEN DELETE {UPSERT}"
    result = merge_sql(spark, statement(fed_table, "SELECT id * 2 AS id, 'new' AS v FROM range(30)", clauses))
    assert ONE_PASS in result.executor_reason
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_deleted_rows) == (19, 10, 1)
    changes = spark.sql(
        f"SELECT _change_type AS kind, count(*) AS n FROM table_changes_by_path('{fed_table}', 2) GROUP BY _change_type"
    ).collect()
    expected = {"update_preimage": 19, "update_postimage": 19, "insert": 10, "delete": 1}
    assert {row.kind: row.n for row in changes} == expected
    assert len(change_files(fed_table)) == result.metrics["numTargetChangeFilesAdded"] > 0


def test_no_change_file_is_left_of_a_pass_that_missed_a_file(spark: SparkSession, fed_table: Path) -> None:
    result = merge_sql(spark, statement(fed_table, MISSES_A_FILE))
    assert ONE_PASS not in result.executor_reason
    assert len(data_files(fed_table)) == FILES + result.num_added_files
    assert len(change_files(fed_table)) == result.metrics["numTargetChangeFilesAdded"] > 0


def test_two_source_rows_for_one_row_are_an_error_and_no_file_is_left(spark: SparkSession, table: Path) -> None:
    source = "SELECT id, 'new' AS v FROM range(40) UNION ALL SELECT 7, 'other'"
    with pytest.raises(MergeExecutionError) as raised:
        merge_sql(spark, statement(table, source))
    assert raised.value.condition == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    assert len(data_files(table)) == FILES


def test_an_ambiguous_match_is_reported_before_a_value_error(spark: SparkSession, table: Path) -> None:
    source = "SELECT id, id AS v FROM range(40) UNION ALL SELECT 7, 8"
    clauses = "WHEN MATCHED THEN UPDATE SET v = 1 / (s.v - 3)"
    with pytest.raises(MergeExecutionError) as raised:
        merge_sql(spark, statement(table, source, clauses))
    assert raised.value.condition == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


TABLE = Table("id INT, p STRING, v INT", "SELECT CAST(id AS INT), concat('p', id % 3), id FROM range(40)", files=4)
WITH_CHANGES = replace(TABLE, properties={"delta.enableChangeDataFeed": "true"})
MOST = "SELECT CAST(id AS INT) AS id, concat('p', id % 2) AS p, CAST(id AS INT) AS v FROM range(5, 45)"
CASES = [
    Case("most rows: updated", "WHEN MATCHED THEN UPDATE SET v = t.v + s.v", does="update", table=TABLE, source=MOST),
    Case("most rows: updated and inserted", UPSERT, does="update, insert", table=TABLE, source=MOST),
    Case("most rows: some deleted first", f"WHEN MATCHED AND s.id % 4 = 0 THEN DELETE {UPSERT}",
         does="delete, update, insert", table=TABLE, source=MOST),
    Case("most rows: the rest deleted", f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE",
         does="update, insert, delete", table=TABLE, source=MOST, every_version=True),
    Case("most rows: inserts with conditions", "WHEN MATCHED THEN UPDATE SET v = s.v "
         "WHEN NOT MATCHED AND s.id = 41 THEN INSERT (id) VALUES (s.id) WHEN NOT MATCHED AND s.id < 43 THEN INSERT *",
         does="update, insert", table=TABLE, source=MOST),
    Case("most rows: partitioned", UPSERT, does="update, insert", source=MOST,
         table=Table(TABLE.columns, TABLE.rows, files=4, partitioned_by="p")),
    Case("most rows: with a further condition", UPSERT, does="update, insert", table=TABLE, source=MOST,
         on="t.id = s.id AND t.v < s.v + 1"),
    Case("most rows: a change data feed", f"WHEN MATCHED AND s.id % 4 = 0 THEN DELETE {UPSERT} "
         "WHEN NOT MATCHED BY SOURCE AND t.id > 1 THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED BY SOURCE THEN DELETE",
         does="delete, update, insert", table=WITH_CHANGES, source=MOST),
    Case("most rows: a change data feed of a partitioned table", UPSERT, does="update, insert", source=MOST,
         table=replace(WITH_CHANGES, partitioned_by="p")),
    Case("most rows: a table with deletion vectors that writes none", UPSERT, does="update, insert", source=MOST,
         table=Table(TABLE.columns, TABLE.rows, files=4, properties={"delta.enableDeletionVectors": "true"},
                     then=("DELETE FROM {t} WHERE id % 5 = 1",)),
         confs={"spark.databricks.delta.merge.deletionVectors.persistent": "false"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_most_rows(case: Case, engines: Harness) -> None:
    engines.check(case)


# Source and files take more than this, and less than four times as much; the source may be broadcast.
MODERATE = {
    "spark.deltaMerge.smallMergeBytes": "4000",
    "spark.deltaMerge.onePassFromRows": "1",
    "spark.deltaMerge.broadcastBytes": "1000000",
}


@pytest.mark.parametrize("clauses", [UPSERT, "WHEN MATCHED THEN UPDATE SET *"])
def test_a_source_that_replaces_much_of_a_few_files_is_merged_in_one_pass(
    spark: SparkSession, table: Path, clauses: str
) -> None:
    merge = statement(table, "SELECT id * 2 AS id, 'new' AS v FROM range(30)", clauses)
    with session_settings(spark, MODERATE):
        planned = plan(spark, MergeStatement(sql=merge))
        with session_settings(spark, {"spark.deltaMerge.smallMergeBytes": "0"}):
            assert ONE_PASS not in plan(spark, MergeStatement(sql=merge)).executor_reason, "the size decides"
        result = merge_sql(spark, merge)
    assert ONE_PASS in result.executor_reason
    assert planned.executor_reason == result.executor_reason
    assert (result.num_touched_files, result.num_updated_rows) == (FILES, 20)


def test_a_plan_with_guards_shows_two_phases(spark: SparkSession, table: Path) -> None:
    merge_statement = MergeStatement(
        sql=statement(table, "SELECT id * 2 AS id, 'new' AS v FROM range(30)", UPSERT),
        guards=MergeGuards(fail_if=("num_updated_rows > 20",)),
    )
    with session_settings(spark, MODERATE):
        planned, result = plan(spark, merge_statement), merge(spark, merge_statement)
    assert ONE_PASS not in result.executor_reason
    assert planned.executor_reason == result.executor_reason


# One row of each file, which take less.
FEW_ROWS = {**MODERATE, "spark.deltaMerge.smallMergeBytes": "2000"}
FEW_OF_EACH = "SELECT CAST(id * 10 + 4 AS INT) AS id, 'p0' AS p, CAST(id AS INT) AS v, 'new' AS w FROM range(4)"


@pytest.mark.parametrize(
    ("clauses", "is_one_pass"),
    [
        ("WHEN MATCHED THEN UPDATE SET v = s.w", True),
        ("WHEN MATCHED THEN DELETE", True),
        # No broadcast can tell which source rows match nothing.
        ("WHEN MATCHED THEN UPDATE SET v = s.w WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.w)", False),
    ],
)
def test_a_source_of_few_rows_for_each_file_is_broadcast_to_them_in_one_pass(
    spark: SparkSession, table: Path, clauses: str, is_one_pass: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = statement(table, FEW_OF_EACH, clauses)
    with session_settings(spark, FEW_ROWS):
        planned = plan(spark, MergeStatement(sql=merge))
        with monkeypatch.context() as patched:
            patched.setattr(one_pass, "_MOST_ROWS_OF_BROADCAST", ROWS - 1)
            assert ONE_PASS not in plan(spark, MergeStatement(sql=merge)).executor_reason, "so do the files' rows"
        result = merge_sql(spark, merge)
    assert (ONE_PASS in result.executor_reason) is is_one_pass
    assert planned.executor_reason == result.executor_reason
    assert (result.num_touched_files, result.num_affected_rows) == (FILES, 4)
    assert result.metrics["numTargetRowsCopied"] == ROWS - 4


def test_a_broadcast_source_that_misses_a_file_takes_two_phases(spark: SparkSession, table: Path) -> None:
    with session_settings(spark, MODERATE):
        result = merge_sql(spark, statement(table, MISSES_A_FILE, "WHEN MATCHED THEN UPDATE SET *"))
    assert ONE_PASS not in result.executor_reason
    assert (result.num_candidate_files, result.num_touched_files) == (FILES, FILES - 1)
    assert len(data_files(table)) == FILES + result.num_added_files


FEW = [
    Case("a row of each file: updated", "WHEN MATCHED THEN UPDATE SET v = t.v + s.v",
         does="update", table=TABLE, source=FEW_OF_EACH, every_version=True),
    Case("a row of each file: deleted", "WHEN MATCHED THEN DELETE", does="delete", table=TABLE, source=FEW_OF_EACH,
         every_version=True),
    Case("a row of each file: a change data feed",
         "WHEN MATCHED AND s.v = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 0", does="update, delete",
         table=WITH_CHANGES, source=FEW_OF_EACH),
]  # fmt: skip


@pytest.mark.parametrize("case", [replace(case, confs={**case.confs, **FEW_ROWS}) for case in FEW], ids=str)
def test_a_row_of_each_file(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", [case for case in [*CASES, *FEW] if "NOT MATCHED THEN" not in case.statement], ids=str)
def test_small_files_that_are_worth_two_tasks(case: Case, engines: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_pass, "_BYTES_FOR_ONE_TASK", 0)
    engines.check(replace(case, confs={**case.confs, "spark.deltaMerge.onePassFromRows": "1"}))


@pytest.mark.parametrize(
    "case",
    [replace(case, name=f"{case.name}, of a few files", confs={**case.confs, **MODERATE}) for case in CASES],
    ids=str,
)
def test_most_rows_of_a_few_files(case: Case, engines: Harness) -> None:
    engines.check(case)
