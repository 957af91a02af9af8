"""What a source can be: queries, CTEs, views, tables, other formats, the target itself, things that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from tests.differential.cases import Case, Table
from tests.differential.error_conditions import error_condition
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
NEWS = Table("id INT, name STRING, age INT", ("(2, 'BOB', 41), (3, 'CID', 51)", "(7, 'gil', 17), (8, NULL, 18)"))
NEWS_BY_AGE = Table("id INT, name STRING, age INT", NEWS.rows, partitioned_by="age")
VIEW = "CREATE OR REPLACE TEMPORARY VIEW news AS SELECT * FROM VALUES (2, 'B', 1), (9, 'I', 2) AS s(id, name, age)"

SOURCES = [
    Case("a Delta table", UPSERT, does="update, insert", source_table=NEWS),
    Case("a partitioned Delta table", UPSERT, does="update, insert", source_table=NEWS_BY_AGE),
    Case("a Delta table, insert only", INSERT, does="insert", source_table=NEWS),
    Case("a Delta table with deletion vectors", UPSERT, does="update, insert", source_table=Table(NEWS.columns,
         "(2, 'BOB', 41), (3, 'CID', 51), (7, 'gil', 17), (8, NULL, 18)", then="DELETE FROM {t} WHERE id IN (3, 8)",
         properties={"delta.enableDeletionVectors": "true"})),
    Case("an older version of a Delta table", does="update", source_table=NEWS,
         merge="MERGE INTO {t} AS t USING (SELECT * FROM {s} VERSION AS OF 1) AS s ON t.id = s.id "
               + UPSERT.replace(INSERT, "WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id + 100, 0)"),
         before="INSERT INTO {t} VALUES (3, 'c', 3)"),
    Case("a filtered Delta table", does="update, insert", source_table=NEWS,
         merge=f"MERGE INTO {{t}} AS t USING (SELECT * FROM {{s}} WHERE age < 45) AS s ON t.id = s.id {UPSERT}"),
    Case("an aggregate", UPSERT, does="update, insert", source_table=NEWS,
         merge="MERGE INTO {t} AS t USING (SELECT id % 4 AS id, max(name) AS name, CAST(sum(age) AS INT) AS age "
               f"FROM {{s}} GROUP BY 1) AS s ON t.id = s.id {UPSERT}"),
    Case("a window that keeps the latest", does="update, insert",
         source="SELECT id, name, age FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY age DESC) AS r "
                "FROM VALUES (2, 'old', 1), (2, 'new', 2), (9, 'i', 1) AS v(id, name, age)) WHERE r = 1",
         clauses=UPSERT),
    Case("a CTE", UPSERT, does="update, insert",
         source="WITH a AS (SELECT * FROM VALUES (2, 'B', 1), (9, 'I', 2) AS v(id, name, age)) SELECT * FROM a"),
    Case("a CTE used twice", UPSERT, does="update, insert",
         source="WITH a AS (SELECT * FROM VALUES (2, 'B', 1), (9, 'I', 2) AS v(id, name, age)) "
                "SELECT a.id, b.name, a.age FROM a JOIN a AS b ON a.id = b.id"),
    Case("a CTE around the whole statement", does="update, insert",
         merge="WITH a AS (SELECT * FROM VALUES (2, 'B', 1), (9, 'I', 2) AS v(id, name, age)) "
               f"MERGE INTO {{t}} AS t USING a AS s ON t.id = s.id {UPSERT}"),
    Case("a temporary view", UPSERT, does="update, insert", before=VIEW, source="news"),
    Case("UNION, DISTINCT, ORDER BY and LIMIT", UPSERT, does="update, insert",
         source="SELECT DISTINCT * FROM (SELECT 2 AS id, 'B' AS name, 1 AS age UNION ALL SELECT 2, 'B', 1 "
                "UNION ALL SELECT 9, 'I', 3) ORDER BY id LIMIT 5"),
    Case("exploded arrays", UPSERT, does="update, insert",
         source="SELECT explode(array(2, 3, 10)) AS id, 'x' AS name, 1 AS age"),
    Case("a range", "WHEN MATCHED THEN UPDATE SET age = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
         does="update, insert", source="SELECT * FROM range(3, 7)"),
    Case("one row without a table", UPSERT, does="update", source="SELECT 2 AS id, 'B' AS name, 1 AS age"),
    Case("a parquet folder", UPSERT, does="update, insert", source="parquet.`{path}-source`",
         before="INSERT OVERWRITE DIRECTORY '{path}-source' USING parquet SELECT 2 id, 'B' name, 1 age "
                "UNION ALL SELECT 9, 'I', 2"),
    Case("a csv folder: all strings", "WHEN MATCHED THEN UPDATE SET age = s._c1 WHEN NOT MATCHED THEN INSERT (id, age) "
         "VALUES (s._c0, s._c1)", does="update, insert", source="csv.`{path}-source`", on="t.id = s._c0",
         before="INSERT OVERWRITE DIRECTORY '{path}-source' USING csv SELECT 2 id, 10 age UNION ALL SELECT 9, 90"),
    Case("columns that the target lacks", UPSERT, does="update, insert",
         source="VALUES (2, 'B', 1, 'more'), (9, 'I', 2, 'more') AS s(id, name, age, extra)"),
    Case("the target itself", "WHEN MATCHED THEN UPDATE SET age = s.age + 1", does="update", source="{t}"),
    Case("the target itself, a condition on both", "WHEN MATCHED THEN UPDATE SET name = s.name", does="update",
         source="{t}", on="t.id = s.id + 1"),
    Case("the target itself, insert", "WHEN NOT MATCHED THEN INSERT *", does="insert",
         source="SELECT id + 2 AS id, name, age FROM {t}"),
    Case("the target itself, older version", UPSERT, does="update, insert", source="SELECT * FROM {t} VERSION AS OF 1",
         before="UPDATE {t} SET id = id + 2"),
    Case("the target joined with news", UPSERT, does="update",
         source="SELECT a.id, n.name, n.age FROM {t} a JOIN (VALUES (2, 'B', 1), (3, 'C', 2) AS n(id, name, age)) n "
                "ON a.id = n.id"),
    Case("the target itself, deleted", "WHEN MATCHED THEN DELETE", does="delete",
         source="SELECT max(id) AS id FROM {t}"),
    Case("a subquery with EXISTS on the target", INSERT, does="insert",
         source="SELECT * FROM VALUES (2, 'B', 1), (9, 'I', 2) AS v(id, name, age) "
                "WHERE NOT EXISTS (SELECT 1 FROM {t} x WHERE x.id = v.id)"),
    Case("random values", UPSERT, does="update, insert", without=("age",),
         source="SELECT id, name, CAST(rand() * 100 AS INT) AS age FROM VALUES (2, 'B'), (9, 'I') AS v(id, name)"),
    Case("a random choice of nobody", UPSERT, does="nothing",
         source="SELECT * FROM VALUES (2, 'B', 1), (9, 'I', 2) AS v(id, name, age) WHERE rand() > 2"),
    Case("the current time", "WHEN MATCHED THEN UPDATE SET name = CAST(s.now AS STRING)", does="update",
         without=("name",), source="SELECT 2 AS id, current_timestamp() AS now"),
    Case("a source with the same rows in several files", "WHEN MATCHED THEN DELETE", does="delete", source_table=Table(
         NEWS.columns, ("(2, 'BOB', 41), (3, 'CID', 51)",) * 2)),
    Case("the target itself, all kinds of clauses", "WHEN MATCHED AND t.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE "
         "SET age = s.age + 1 WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'x'",
         does="update, delete, insert", source="SELECT id * 2 - 1 AS id, name, age FROM {t} WHERE id <> 2"),
    Case("the target itself by another name", "WHEN MATCHED THEN UPDATE SET age = s.age + 1", does="update",
         by_name=True, source="SELECT * FROM delta.`{path}`"),
    Case("the change data of another version of the target", "WHEN MATCHED THEN UPDATE SET age = s.age", does="update",
         table=replace(NEWS, properties={"delta.enableChangeDataFeed": "true"}),
         before="UPDATE {t} SET age = 1 WHERE id = 2",
         source="SELECT * FROM table_changes_by_path('{path}', 3) WHERE _change_type = 'update_preimage'"),
    Case("a cached table", UPSERT, does="update, insert", before=(VIEW, "CACHE TABLE news"), source="news"),
    Case("a temporary view of a Delta table", UPSERT, does="update, insert", source_table=NEWS,
         before="CREATE OR REPLACE TEMPORARY VIEW newer AS SELECT * FROM {s} WHERE age < 45",
         merge=f"MERGE INTO {{t}} AS t USING newer AS s ON t.id = s.id {UPSERT}"),
    Case("a lateral join and a pivot", UPSERT, does="update, insert",
         source="SELECT id, max(name) AS name, CAST(sum(a) AS INT) AS age FROM VALUES (2, 'B', array(1, 2)), "
                "(9, 'I', array(3)) AS v(id, name, l) LATERAL VIEW explode(l) e AS a GROUP BY id"),
    Case("scalar, IN and EXISTS subqueries", UPSERT, does="update, insert",
         source="SELECT id, name, (SELECT max(age) FROM {t}) AS age FROM VALUES (2, 'B'), (9, 'I') AS v(id, name) "
                "WHERE id IN (SELECT id FROM {t}) OR EXISTS (SELECT 1 FROM {t} x WHERE x.id < v.id)"),
    Case("no rows and no columns used", "WHEN NOT MATCHED BY SOURCE THEN DELETE", does="delete", on="false",
         source="SELECT 1 AS nothing WHERE false"),
    Case("materialised always", UPSERT, does="update, insert", source_table=NEWS,
         confs={"spark.databricks.delta.merge.materializeSource": "all"}),
    Case("materialised never", UPSERT, does="update, insert", source_table=NEWS,
         confs={"spark.databricks.delta.merge.materializeSource": "none"}),
]  # fmt: skip

VALUES = [
    Case("a scalar subquery as value", "WHEN MATCHED THEN UPDATE SET age = (SELECT max(id) FROM {t})", does="update"),
    Case("a random value", "WHEN MATCHED THEN UPDATE SET age = CAST(rand() * 100 AS INT)", does="update",
         without=("age",)),
    Case("a random value inserted", "WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, CAST(rand() * 9 AS INT))",
         does="insert", without=("age",)),
    Case("uuid() inserted", "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, uuid())", does="insert",
         without=("name",)),
    Case("current_date()", "WHEN MATCHED AND current_date() > DATE'2020-01-01' THEN UPDATE SET age = year(s.d)",
         does="update", source="SELECT 2 AS id, DATE'2024-01-01' AS d"),
    Case("a Python-free lambda", "WHEN MATCHED THEN UPDATE SET age = aggregate(array(1, 2, s.age), 0, (a, x) -> a + x)",
         does="update"),
    Case("a long list of values", f"WHEN MATCHED AND s.id IN ({', '.join(map(str, range(500)))}) THEN DELETE",
         does="delete"),
]  # fmt: skip


@pytest.mark.parametrize("case", SOURCES, ids=str)
def test_sources(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", VALUES, ids=str)
def test_values(case: Case, engines: Harness) -> None:
    engines.check(case)


def _ours(spark: SparkSession, statement: str) -> None:
    merge_sql(spark, statement)


def _builtin(spark: SparkSession, statement: str) -> None:
    spark.sql(statement).collect()


def _by_both(run: Callable[[Path, Callable[[SparkSession, str], None]], list[str]], home: Path) -> list[str]:
    """What ``run(path, engine)`` leaves behind, the same for both engines."""
    rows = {engine.__name__: run(home / engine.__name__, engine) for engine in (_ours, _builtin)}
    assert rows["_ours"] == rows["_builtin"]
    return rows["_ours"]


def test_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """A DataFrame that no SQL says: made of Python's values, with a Python function, as a temporary view."""

    def run(path: Path, engine: Callable[[SparkSession, str], None]) -> list[str]:
        spark.createDataFrame([(1, "a"), (2, "b")], "id INT, v STRING").write.format("delta").save(str(path))
        double = spark.udf.register("doubled", lambda text: text * 2, "string")
        frame = spark.createDataFrame([(2, "x"), (3, "y")], "id INT, v STRING").select("id", double("v").alias("v"))
        frame.createOrReplaceTempView("frame")
        engine(spark, f"MERGE INTO delta.`{path}` t USING frame s ON t.id = s.id {UPSERT}")
        return sorted(map(str, spark.read.format("delta").load(str(path)).collect()))

    assert _by_both(run, tmp_path) == ["Row(id=1, v='a')", "Row(id=2, v='xx')", "Row(id=3, v='yy')"]


@pytest.mark.parametrize("clauses", [UPSERT, INSERT], ids=["upsert", "insert only"])
def test_a_stream_is_refused(clauses: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("SELECT 1 AS id, 'a' AS v").write.format("delta").save(str(tmp_path / "t"))
    spark.readStream.format("delta").load(str(tmp_path / "t")).createOrReplaceTempView("stream")
    statement = f"MERGE INTO delta.`{tmp_path / 't'}` t USING (SELECT id + 1 AS id, v FROM stream) s ON t.id = s.id "
    conditions = []
    for engine in (_ours, _builtin):
        with pytest.raises(Exception, match="streaming sources must be executed with writeStream") as raised:
            engine(spark, statement + clauses)
        conditions.append(error_condition(raised.value))
    assert conditions[0] == conditions[1]


@pytest.mark.parametrize("way", WAYS)
def test_each_source_row_is_computed_once(way: str, spark: SparkSession, tmp_path: Path) -> None:
    """Computed again it might be another row: the search would find one, and the other would be written."""
    spark.createDataFrame([(1, 0), (2, 0)], "id INT, v INT").write.format("delta").save(str(tmp_path / "t"))
    computed = spark.sparkContext.accumulator(0)

    def new_value(number: int) -> int:
        computed.add(1)
        return number * 10

    spark.udf.register("new_value", new_value, "int")
    source = "(SELECT id, new_value(id) AS v FROM VALUES (2), (3), (4) AS s(id))"
    with session_settings(spark, WAYS[way]):
        merge_sql(spark, f"MERGE INTO delta.`{tmp_path / 't'}` t USING {source} s ON t.id = s.id {UPSERT}")
    assert sorted(map(tuple, spark.read.format("delta").load(str(tmp_path / "t")).collect())) == [
        (1, 0),
        (2, 20),
        (3, 30),
        (4, 40),
    ]
    assert computed.value == 3


@pytest.mark.slow
def test_micro_batches_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """``foreachBatch``: each batch is a view of the session that the stream has for itself."""
    changes = tmp_path / "changes"
    for rows in ([(1, "a"), (2, "b")], [(2, "B"), (3, "c")], [(3, "C")]):
        spark.createDataFrame(rows, "id INT, v STRING").coalesce(1).write.format("delta").mode("append").save(
            str(changes)
        )

    def run(path: Path, engine: Callable[[SparkSession, str], None]) -> list[str]:
        spark.sql(f"CREATE TABLE delta.`{path}` (id INT, v STRING) USING delta")

        def merge_batch(batch: DataFrame, number: int) -> None:
            batch.createOrReplaceTempView("batch")
            engine(batch.sparkSession, f"MERGE INTO delta.`{path}` t USING batch s ON t.id = s.id {UPSERT}")

        stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(changes))
        writer = stream.writeStream.foreachBatch(merge_batch).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{path}-checkpoint").start().awaitTermination()
        table = f"delta.`{path}`"
        assert [row.operation for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()][:-1] == ["MERGE"] * 3
        return sorted(map(str, spark.table(table).collect()))

    assert _by_both(run, tmp_path) == ["Row(id=1, v='a')", "Row(id=2, v='B')", "Row(id=3, v='C')"]
