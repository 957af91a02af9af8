"""The change data feed tells the same changes, row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.engine.rows.change_data import with_change_rows, with_insert_rows
from tests.differential.cases import PEOPLE, Case, Table
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE = "WHEN MATCHED THEN UPDATE SET *"
DELETE = "WHEN MATCHED THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT *"

FEED = {"delta.enableChangeDataFeed": "true"}
TABLE = replace(PEOPLE, properties=FEED)
PARTITIONED = Table("id INT, p STRING, v INT", ("(1, 'a', 1), (2, 'a', 2)", "(3, 'b', 3), (4, NULL, 4)"),
                    partitioned_by="p", properties=FEED)  # fmt: skip
TWINS = Table("id INT, name STRING, age INT", "(2, 'b', 1), (2, 'b', 1), (3, 'c', 1)", properties=FEED)
DOUBLE = "VALUES (2, 'x', 1), (2, 'y', 2), (7, 'z', 3), (7, 'z', 3) AS s(id, name, age)"
NAMED = Table("id INT, _change_type STRING", "(1, 'a')")

CASES = [
    Case("update", UPDATE, does="update", table=TABLE),
    Case("update to the values there are", "WHEN MATCHED THEN UPDATE SET name = t.name", does="update", table=TABLE),
    Case("delete", DELETE, does="delete", table=TABLE),
    Case("insert only", INSERT, does="insert", table=TABLE),
    Case("insert only, some columns", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert", table=TABLE),
    Case("upsert", UPSERT, does="update, insert", table=TABLE, every_version=True),
    Case("upsert that only inserts", UPSERT, does="insert", table=TABLE,
         source="VALUES (70, 'x', 1), (71, 'y', 2) AS s(id, name, age)"),
    Case("upsert that only updates", UPSERT, does="update", table=TABLE,
         source="VALUES (2, 'x', 1) AS s(id, name, age)"),
    Case("all kinds", f"WHEN MATCHED AND s.age > 41 THEN DELETE {UPSERT} WHEN NOT MATCHED BY SOURCE AND t.id = 1 "
         "THEN UPDATE SET age = 0 WHEN NOT MATCHED BY SOURCE THEN DELETE", does="update, insert, delete", table=TABLE),
    Case("sync with deletion vectors", f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE",
         does="update, insert, delete", source="VALUES (2, 20), (3, 30), (7, 70), (40, 400) AS s(id, v)",
         table=Table("id INT, v INT", ", ".join(f"({i}, {i})" for i in range(12)), files=3,
                     properties={"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}),
         every_version=True),
    Case("not matched by source, delete", "WHEN NOT MATCHED BY SOURCE THEN DELETE", does="delete", table=TABLE),
    Case("not matched by source, update", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'gone'", does="update",
         table=TABLE),
    Case("several source rows delete one: one change", DELETE, does="delete", table=TABLE, source=DOUBLE),
    Case("several source rows delete one, inserts beside", f"{DELETE} {INSERT}", does="delete, insert", table=TABLE,
         source=DOUBLE),
    Case("several source rows delete one, inserts of equal rows", f"{DELETE} {INSERT}", does="delete, insert",
         table=TWINS, source=DOUBLE),
    Case("equal target rows deleted by several source rows", DELETE, does="delete", table=TWINS, source=DOUBLE),
    Case("equal target rows, several source rows, by-source delete beside",
         f"{DELETE} {INSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE", does="delete, insert", table=TWINS,
         source=DOUBLE),
    Case("no change", "WHEN MATCHED AND false THEN DELETE", does="nothing", table=TABLE),
    Case("partitioned", UPSERT, does="update, insert", table=PARTITIONED,
         source="VALUES (2, 'a', 20), (3, 'moved', 30), (9, NULL, 90) AS s(id, p, v)"),
    Case("partitioned, a row moves and another goes", "WHEN MATCHED AND s.id = 1 THEN DELETE "
         "WHEN MATCHED THEN UPDATE SET p = 'z'", does="update, delete", table=PARTITIONED,
         source="VALUES (1, 'a', 20), (4, 'moved', 30) AS s(id, p, v)"),
    Case("with a source column _change_type", "WHEN MATCHED THEN UPDATE SET name = s._change_type", does="update",
         table=TABLE, source="VALUES (2, 'x') AS s(id, _change_type)"),
    Case("without the feed, a column _change_type", UPSERT, does="update, insert", table=NAMED,
         source="VALUES (1, 'x'), (2, 'y') AS s(id, _change_type)"),
    Case("with generated columns", "WHEN MATCHED THEN UPDATE SET id = s.id + 10 "
         "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="update, insert",
         table=Table("id INT, twice INT GENERATED ALWAYS AS (id * 2)", "INSERT INTO {t} (id) VALUES (1), (2)",
                     properties=FEED), source="VALUES (2), (3) AS s(id)"),
    Case("with nested values", UPSERT, does="update, insert",
         source="SELECT id, named_struct('x', id, 'l', array(id)) v "
         "FROM VALUES (1), (2) AS s(id)", table=Table("id INT, v STRUCT<x: INT, l: ARRAY<INT>>",
         "(1, struct(1, array(1)))", properties=FEED)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_change_data_feed(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("way", WAYS)
def test_random_values_are_the_same_in_table_and_feed(way: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.range(40).selectExpr("id", "rand() AS v").write.format("delta").options(**FEED).save(str(path))
    statement = (
        f"MERGE INTO delta.`{path}` t USING (SELECT id FROM range(30, 50)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = rand() WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, rand())"
    )
    with session_settings(spark, WAYS[way]):
        merge_sql(spark, statement)
    feed = spark.sql(
        f"SELECT id, v FROM table_changes_by_path('{path}', 1) WHERE _change_type IN ('update_postimage', 'insert')"
    )
    rows = spark.read.format("delta").load(str(path)).filter("id >= 30")
    fed = sorted(map(tuple, feed.collect()))
    assert fed == sorted(map(tuple, rows.collect()))
    assert len({v for _, v in fed}) == 20


def test_spark_adds_no_filter_that_computes_changed_rows_twice(spark: SparkSession) -> None:
    """For an array that is a column it would, and for that infer constraints of all columns: seconds, if many."""
    rows = spark.range(3).selectExpr("id", "id % 2 AS n")
    kind = F.when(F.col("id") == 1, "update_postimage").when(F.col("id") == 2, "delete")
    changed = with_change_rows(rows, [F.col("id"), (F.col("n") + 1).alias("n")], F.struct("id", "n"), kind)
    added = with_insert_rows(rows, [F.col("id"), F.col("n")])
    for frame in (changed, added):
        assert "Filter" not in str(frame._jdf.queryExecution().optimizedPlan())
    assert sorted(map(tuple, changed.collect()), key=str) == sorted(
        [(0, 1, None), (1, 1, "update_preimage"), (1, 2, "update_postimage"), (1, 2, None), (2, 1, "delete")], key=str
    )
    assert sorted(map(tuple, added.collect()), key=str) == sorted(
        [row for n in range(3) for row in ((n, n % 2, "insert"), (n, n % 2, None))], key=str
    )
