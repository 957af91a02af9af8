"""Small merges over several files, whose rows are counted for all files at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.both_engines import merged_as_by_the_builtin
from tests.differential.cases import Case, Table
from tests.differential.harness import Harness
from tests.differential.session_settings import session_settings
from tests.differential.tasks_of_stages import tasks_of_stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
AMBIGUOUS = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
IN_TWO_PHASES = {"spark.deltaMerge.shortcuts.enabled": "false"}
#: Of each kind of table the rows' numbers come from elsewhere.
KINDS = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
}


def _table(properties: dict[str, str]) -> Table:
    """Three files of four rows: the rows 0, 4 and 8 are the first ones of theirs."""
    rows = ", ".join(f"({number}, {number})" for number in range(12))
    return Table("id INT, v INT", rows, files=3, properties=properties)


CASES = [
    Case(f"kept join, {kind}: {name}", clauses, does=does, fails=fails, source=f"VALUES {source} AS s(id, v)",
         table=_table(properties))
    for kind, properties in KINDS.items()
    for name, clauses, does, fails, source in [
        ("rows of one index in all files", UPSERT, "update, insert", "", "(0, -1), (4, -1), (8, -1), (99, -1)"),
        ("in two of three files", UPSERT, "update", "", "(4, -1), (8, -1)"),
        ("taken by no clause in one file", "WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v", "update", "",
         "(0, 1), (4, -1), (8, 1)"),
        ("two source rows for a row of the last file", UPSERT, "", AMBIGUOUS, "(0, 1), (8, 1), (8, 2)"),
        ("one row of each file deleted twice", DELETE, "delete", "", "(0, 1), (0, 2), (4, 1), (4, 2), (8, 1), (8, 2)"),
        ("what the source lacks", "WHEN NOT MATCHED BY SOURCE AND t.v % 4 = 0 THEN DELETE", "delete", "", "(4, 1)"),
    ]
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_of_several_files(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("kind", KINDS)
def test_no_stage_more_for_more_files(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    stages = {}
    for files in (1, 4):
        table = tmp_path / f"t{files}"
        rows = spark.range(0, 40, 1, files).selectExpr("id", "id AS v")
        rows.write.format("delta").options(**KINDS[kind]).save(str(table))
        source = "(SELECT id * 13 AS id, -1L AS v FROM range(4)) s"
        with session_settings(spark, IN_TWO_PHASES), tasks_of_stages(spark) as found:
            result = merge_sql(spark, f"MERGE INTO delta.`{table}` t USING {source} ON t.id = s.id {UPSERT}")
        assert (result.num_touched_files, result.num_updated_rows) == (files, 4)
        assert "joined once" in result.executor_reason
        stages[files] = len(found)
    assert stages[4] == stages[1]


@pytest.mark.parametrize(("cores", "how"), [(2, "joined once"), (8, "the source is broadcast")])
def test_more_cores_leave_fewer_files_to_one_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, how: str
) -> None:
    table = tmp_path / "t"
    spark.range(0, 200, 1, 20).selectExpr("id", "id AS v").write.format("delta").save(str(table))
    monkeypatch.setattr(Gateway, "default_parallelism", cores)
    source = "(SELECT id * 10 AS id, -1L AS v FROM range(21)) s"
    with session_settings(spark, IN_TWO_PHASES):
        result = merged_as_by_the_builtin(
            spark, table, tmp_path / "merged", f"MERGE INTO {{t}} t USING {source} ON t.id = s.id {UPSERT}"
        )
    assert (result.num_touched_files, result.num_updated_rows, result.num_inserted_rows) == (20, 20, 1)
    assert how in result.executor_reason


def test_a_damaged_column_that_no_clause_needs_does_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    for engine in ("builtin", "ours"):
        table = tmp_path / engine
        rows = spark.sql("SELECT * FROM VALUES (1, 1), (2, 2) AS t(id, v)").coalesce(1)
        rows.write.format("delta").option("delta.enableDeletionVectors", True).save(str(table))
        (file,) = table.glob("*.parquet")
        pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["x", "y"]}), file)
        (table / f".{file.name}.crc").unlink()
        statement = f"MERGE INTO delta.`{table}` t USING (SELECT 1 AS id) s ON t.id = s.id {DELETE}"
        if engine == "ours":
            assert merge_sql(spark, statement).num_deleted_rows == 1
        else:
            assert spark.sql(statement).head().num_deleted_rows == 1
        assert [row.id for row in spark.sql(f"SELECT id FROM delta.`{table}`").collect()] == [2]
    needed = statement.replace("SELECT 1", "SELECT 2").replace(DELETE, "WHEN MATCHED THEN UPDATE SET id = 3")
    with pytest.raises(MergeExecutionError) as raised:
        merge_sql(spark, needed)
    assert str(raised.value.condition).startswith("FAILED_READ_FILE")
