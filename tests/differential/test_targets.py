"""What a target can be: a name, a path, a view; small and wide tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

CASES = [
    Case("by name", UPSERT, does="update, insert", by_name=True),
    Case("by three-part name", does="update, insert", by_name=True,
         merge=f"MERGE INTO spark_catalog.{{t}} AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a view of all columns", does="update, insert",
         before="CREATE OR REPLACE TEMPORARY VIEW people AS SELECT * FROM {t}",
         merge=f"MERGE INTO people AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a view of some columns", fails="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
         before="CREATE OR REPLACE TEMPORARY VIEW people AS SELECT id, name FROM {t}",
         merge="MERGE INTO people AS t USING {s} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name"),
    Case("by a view that computes a column", fails="MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
         before="CREATE OR REPLACE TEMPORARY VIEW people AS SELECT id, name, age + 1 AS age FROM {t}",
         merge="MERGE INTO people AS t USING {s} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name"),
    Case("by a view that swaps two columns", fails="MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
         table=Table("id INT, a INT, b INT", "(1, 10, 100), (2, 20, 200)"), source="VALUES (2, 7) AS s(id, a)",
         before="CREATE OR REPLACE TEMPORARY VIEW swapped AS SELECT id, b AS a, a AS b FROM {t}",
         merge="MERGE INTO swapped AS t USING {s} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = s.a"),
    Case("by a view that computes a column beside a generated one",
         fails="DELTA_OPERATION_ON_TEMP_VIEW_WITH_GENERATED_COLS_NOT_SUPPORTED",
         table=Table("id INT, twice INT GENERATED ALWAYS AS (id * 2)", "INSERT INTO {t} (id) VALUES (1)"),
         before="CREATE OR REPLACE TEMPORARY VIEW doubles AS SELECT id + 1 AS id, twice FROM {t}",
         merge="MERGE INTO doubles AS t USING (SELECT 2 AS key) AS s ON id = key WHEN MATCHED THEN DELETE"),
    # Both rows are updated: the built-in pads also those that stay.
    Case("by a view of a table with CHAR", does="update, insert",
         table=Table("id INT, name CHAR(5), age INT", "(1, 'ann', 30), (2, 'bob', 40)"),
         source="VALUES (1, 'ANN', 31), (2, 'BOB', 41), (3, 'CID', 51) AS s(id, name, age)",
         before="CREATE OR REPLACE TEMPORARY VIEW people AS SELECT * FROM {t}",
         merge=f"MERGE INTO people AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a view of a table with CHAR in a struct", does="update, insert",
         table=Table("id INT, a STRUCT<c: CHAR(3)>", "(1, named_struct('c', 'a'))"),
         source="SELECT id, named_struct('c', 'b') AS a FROM VALUES (1), (2) AS s(id)",
         before="CREATE OR REPLACE TEMPORARY VIEW structs AS SELECT * FROM {t}",
         merge=f"MERGE INTO structs AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a view with a filter", fails="DELTA_UNEXPECTED_PARTIAL_SCAN",
         before="CREATE OR REPLACE TEMPORARY VIEW people AS SELECT * FROM {t} WHERE id > 1",
         merge=f"MERGE INTO people AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a view of a join", fails="DELTA_UNSUPPORTED_SOURCE",
         before="CREATE OR REPLACE TEMPORARY VIEW pairs AS SELECT a.* FROM {t} a JOIN {t} b ON a.id = b.id",
         merge=f"MERGE INTO pairs AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a view of a union", fails="DELTA_UNSUPPORTED_SOURCE",
         before="CREATE OR REPLACE TEMPORARY VIEW twice AS SELECT * FROM {t} UNION ALL SELECT * FROM {t}",
         merge=f"MERGE INTO twice AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a lasting view", fails="DELTA_UNSUPPORTED_SOURCE", by_name=True,
         before="CREATE OR REPLACE VIEW default.lasting AS SELECT * FROM {t}",
         merge=f"MERGE INTO default.lasting AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("by a view of a table with a generated column", does="update", by_name=True,
         table=Table("id INT, twice INT GENERATED ALWAYS AS (id * 2)", "INSERT INTO {t} (id) VALUES (1)"),
         before="CREATE OR REPLACE TEMPORARY VIEW doubles AS SELECT * FROM {t}",
         merge="MERGE INTO doubles AS t USING (SELECT 1 AS key) AS s ON id = key WHEN MATCHED THEN UPDATE SET id = 4"),
    Case("merged before by another statement", UPSERT, does="update, insert",
         before=f"MERGE INTO {{t}} AS t USING {{s}} AS s ON t.id = s.id {UPSERT} "
                .replace("INSERT *", "INSERT (id) VALUES (s.id + 50)")),
    Case("one table of one column", "WHEN NOT MATCHED THEN INSERT *", does="insert", table=Table("id INT", "(1)"),
         source="VALUES (1), (2) AS s(id)"),
    Case("a wide table", UPSERT, does="update, insert",
         table=Table(", ".join(["id INT", *(f"c{i} INT" for i in range(60))]),
                     "SELECT CAST(id AS INT), " + ", ".join(f"{i}" for i in range(60)) + " FROM range(5)"),
         source="SELECT CAST(id AS INT) id, " + ", ".join(f"{i} AS c{i}" for i in range(60)) + " FROM range(3, 7)"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_targets(case: Case, engines: Harness) -> None:
    engines.check(case)


def test_the_result_tells_where_the_table_lies(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b"
    spark.sql(f"CREATE TABLE default.somewhere (id INT) USING delta LOCATION '{path}'").collect()
    try:
        for name in ("default.somewhere", f"delta.`{path}`"):
            result = merge_sql(
                spark,
                f"MERGE INTO {name} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
            )
            assert result.location == f"file:{path}"
    finally:
        spark.sql("DROP TABLE default.somewhere").collect()


@pytest.mark.parametrize("computed", ["upper(v)", "concat(v, '')"])
def test_a_view_that_computes_a_char_is_refused(computed: str, spark: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (id INT, v CHAR(3)) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW computed AS SELECT id, {computed} AS v FROM {table}")
    with pytest.raises(MergeExecutionError, match="computes columns") as raised:
        merge_sql(
            spark,
            "MERGE INTO computed t USING (SELECT 1 AS id, 'x' AS v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
        )
    assert raised.value.condition == "MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT"
    assert [row[1] for row in spark.table(table).orderBy("id").collect()] == ["a  ", "b  "]


def test_the_built_in_writes_rows_that_stay_as_such_a_view_shows_them(spark: SparkSession, tmp_path: Path) -> None:
    """Why ours refuses it."""
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (id INT, v CHAR(3)) USING delta")
    spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW computed AS SELECT id, upper(v) AS v FROM {table}")
    spark.sql(
        "MERGE INTO computed t USING (SELECT 1 AS id, 'x' AS v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    ).collect()
    assert [row[1] for row in spark.table(table).orderBy("id").collect()] == ["x  ", "B  "]
