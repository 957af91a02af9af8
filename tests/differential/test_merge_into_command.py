"""MergeIntoCommand: from the statement to the transaction, the schema, and which executor runs.

Materialisation of the source has its own module, ``test_sources``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.engine import merge, merge_sql
from airflow_delta_merge.exceptions import MergeConfigError
from tests.differential.cases import PEOPLE, Case, Table
from tests.differential.conftest import MadeOnce
from tests.differential.harness import Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSERT = "WHEN NOT MATCHED THEN INSERT *"
UPDATE = "WHEN MATCHED THEN UPDATE SET *"
DELETE = "WHEN MATCHED THEN DELETE"
UPSERT = f"{UPDATE} {INSERT}"
AMBIGUOUS = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
DOUBLE = "VALUES (2, 'x', 1), (2, 'y', 2), (7, 'z', 3), (7, 'z', 3) AS s(id, name, age)"
STRANGERS = "VALUES (70, 'gil', 17), (80, 'hal', 18) AS s(id, name, age)"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"

APPLICATION, VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
TRANSACTION = {APPLICATION: "app", VERSION: "5"}
SAME_MERGE = f"MERGE INTO {{t}} AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"
ALREADY_EXECUTED = [
    Case("an idempotent transaction seen for the first time", UPSERT, does="update, insert", source=SOURCE, table=PLAIN,
         confs={"spark.databricks.delta.write.txnAppId": "app", "spark.databricks.delta.write.txnVersion": "5"}),
    Case("already executed by the same merge: early quit", UPSERT, does="nothing", source=SOURCE, table=PLAIN,
         confs=TRANSACTION, before=SAME_MERGE),
    Case("already executed by an insert: early quit", UPSERT, does="nothing", source=SOURCE, table=PLAIN,
         confs=TRANSACTION, before="INSERT INTO {t} VALUES (6, 'f', 6)"),
    Case("already executed in a later version: early quit", UPSERT, does="nothing", source=SOURCE, table=PLAIN,
         confs=TRANSACTION, before=(f"SET {VERSION}=8", "INSERT INTO {t} VALUES (6, 'f', 6)", f"SET {VERSION}=5")),
    Case("an earlier version was executed: runs", UPSERT, does="update, insert", source=SOURCE, table=PLAIN,
         confs=TRANSACTION, before=(f"SET {VERSION}=4", "INSERT INTO {t} VALUES (6, 'f', 6)", f"SET {VERSION}=5")),
    Case("another application's transaction was executed: runs", UPSERT, does="update, insert", source=SOURCE,
         table=PLAIN, confs=TRANSACTION,
         before=(f"SET {APPLICATION}=other", "INSERT INTO {t} VALUES (6, 'f', 6)", f"SET {APPLICATION}=app")),
    Case("already executed, insert only: early quit", INSERT, does="nothing", source=SOURCE, table=PLAIN,
         confs=TRANSACTION, before="INSERT INTO {t} VALUES (6, 'f', 6)"),
]  # fmt: skip

PEOPLE_VIEW = "CREATE OR REPLACE TEMPORARY VIEW those AS SELECT * FROM {t}"
SCHEMA_CHANGED = [
    Case("a column added since the view was analysed", fails="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
         before=(PEOPLE_VIEW, "ALTER TABLE {t} ADD COLUMN more INT"),
         merge=f"MERGE INTO those AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
]  # fmt: skip

AUTO_MERGE = {"spark.databricks.delta.schema.autoMerge.enabled": "true"}
SCHEMA_EVOLUTION = [
    Case("new columns by the statement, several clauses of each kind", does="update, delete, insert", evolves=True,
         table=PLAIN, clauses="WHEN MATCHED AND s.w > 1 THEN UPDATE SET * WHEN MATCHED THEN DELETE "
         "WHEN NOT MATCHED AND s.w > 5 THEN INSERT (id, w) VALUES (s.id, s.w) WHEN NOT MATCHED THEN INSERT *",
         source="VALUES (1, 'A', 1, 1), (2, 'B', 2, 2), (8, 'H', 8, 3), (9, 'I', 9, 9) AS s(id, v, n, w)"),
    Case("a new nested field by the session's autoMerge", UPSERT, does="update, insert", confs=AUTO_MERGE,
         table=Table("id INT, a STRUCT<x: INT>", "(1, struct(1)), (2, NULL)"),
         source="SELECT id, named_struct('x', id, 'y', 'new') AS a FROM VALUES (1), (3) AS s(id)"),
    Case("type widening by the session's autoMerge", UPSERT, does="update, insert", confs=AUTO_MERGE,
         table=Table("id INT, n INT", "(1, 1), (3, 3)", properties={"delta.enableTypeWidening": "true"}),
         source="VALUES (1, 5000000000L), (2, 6L) AS s(id, n)"),
    Case("a table without columns gets the source's", merge="MERGE WITH SCHEMA EVOLUTION INTO {t} AS t USING {s} AS s "
         f"ON s.id = 1 {INSERT}", does="insert", table=replace(PLAIN, rows=(), then=(
         "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
         "ALTER TABLE {t} DROP COLUMNS (v, n)")), source="VALUES (2, 'x') AS s(id, name)"),
]  # fmt: skip

SWITCH_OFF = {"spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled": "false"}
CLASSIC, INSERTS = "ClassicMergeExecutor", "InsertOnlyMergeExecutor"
DISPATCH = [
    Case("duplicates that match in an insert-only merge without its optimisation", INSERT, fails=AMBIGUOUS,
         source=DOUBLE, confs={"spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled": "false"}),
    Case("insert clauses only: insert-only", "WHEN NOT MATCHED AND s.age > 17 THEN INSERT * WHEN NOT MATCHED AND "
         "s.age > 16 THEN INSERT (id) VALUES (s.id)", does="insert", executor=INSERTS),
    Case("insert clauses only, the switch off: classic", "WHEN NOT MATCHED AND s.age > 17 THEN INSERT * "
         "WHEN NOT MATCHED AND s.age > 16 THEN INSERT (id) VALUES (s.id)", does="insert", confs=SWITCH_OFF,
         executor=CLASSIC),
    Case("insert clauses only, the switch off, nobody matches", INSERT, does="insert", confs=SWITCH_OFF,
         source=STRANGERS, executor=CLASSIC),
    Case("an insert beside a matched clause: classic", f"WHEN MATCHED AND false THEN DELETE {INSERT}", does="insert",
         executor=CLASSIC),
    Case("an insert beside a by-source clause: classic", f"{INSERT} WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN "
         "DELETE", does="insert, delete", executor=CLASSIC),
    Case("classic, no touched files: the source is appended", f"{DELETE} WHEN NOT MATCHED AND s.age > 17 THEN "
         "INSERT (id, age) VALUES (s.id, s.age)", does="insert", source=STRANGERS, executor=CLASSIC),
]  # fmt: skip


@pytest.mark.parametrize("case", ALREADY_EXECUTED, ids=str)
def test_already_executed(case: Case, engines: Harness) -> None:
    engines.check(case)


def test_the_second_try_of_an_idempotent_transaction_does_nothing(
    spark: SparkSession, people: Callable[[], str]
) -> None:
    """Both tries by ours, so that the transaction of the first must be in the log."""
    table = f"delta.`{people()}`"
    statement = f"MERGE INTO {table} AS t USING (SELECT * FROM {STRANGERS}) AS s ON t.id = s.id {UPSERT}"
    with session_settings(spark, TRANSACTION):
        first, second = merge_sql(spark, statement), merge_sql(spark, statement)
    assert (first.num_inserted_rows, second.num_affected_rows, second.version) == (2, 0, None)
    assert spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").head()["version"] == first.version


@pytest.mark.parametrize("case", SCHEMA_CHANGED, ids=str)
def test_schema_changed_since_analysis(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", SCHEMA_EVOLUTION, ids=str)
def test_schema_evolution(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", DISPATCH, ids=str)
def test_dispatch(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.fixture
def people(made_once: MadeOnce, tmp_path: Path) -> Callable[[], str]:
    """Makes copies of a small table, each at a path of its own."""
    numbers = iter(range(10))
    return lambda: str(made_once(tmp_path / f"copy_{next(numbers)}", made))


def made(spark: SparkSession, path: Path) -> None:
    for statement in PEOPLE.statements:
        spark.sql(statement.replace("{t}", f"delta.`{path}`"))


def test_schema_evolution_by_config(spark: SparkSession, people: Callable[[], str]) -> None:
    source = "SELECT * FROM VALUES (2, 'BOB', 41, true), (7, 'gil', 17, false) AS s(id, name, age, news)"
    ours, builtin = people(), people()
    clauses = [when_matched_update_all(), when_not_matched_insert_all()]
    merge(spark, MergeConfig(target=ours, source=source, on=["id"], clauses=clauses, with_schema_evolution=True))
    spark.sql(f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{builtin}` t USING ({source}) s ON t.id = s.id {UPSERT}")
    tables = [spark.read.format("delta").load(path) for path in (ours, builtin)]
    assert tables[0].columns == ["id", "name", "age", "news"]
    assert tables[0].schema == tables[1].schema
    assert sorted(map(str, tables[0].collect())) == sorted(map(str, tables[1].collect()))


def test_cached_plans_of_the_target_are_cached_again(spark: SparkSession, people: Callable[[], str]) -> None:
    ages = {}
    for engine, run in (("ours", lambda statement: merge_sql(spark, statement)), ("builtin", spark.sql)):
        path = people()
        cached = spark.read.format("delta").load(path).selectExpr("sum(age) AS ages").cache()
        try:
            before = cached.collect()
            run(f"MERGE INTO delta.`{path}` t USING (SELECT 2 AS id, 140 AS age) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET age = s.age")  # fmt: skip
            again = spark.read.format("delta").load(path).selectExpr("sum(age) AS ages")
            is_cached = "InMemoryRelation" in again._jdf.queryExecution().withCachedData().toString()
            ages[engine] = (before[0].ages, again.collect()[0].ages, is_cached)
        finally:
            cached.unpersist()
    assert ages["ours"] == ages["builtin"]
    assert ages["ours"][:2] == (120, 220)


REPARTITION = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"


@pytest.mark.parametrize(("switch", "num_files"), [("true", 3), ("false", 6)])
def test_repartition_before_write(
    switch: str, num_files: int, spark: SparkSession, tmp_path: Path, engines: Harness
) -> None:
    """On, each partition gets one file, though both tasks of the source have rows of it; off, each task writes one."""
    files = {}
    for engine, run in (("ours", lambda statement: merge_sql(spark, statement)), ("builtin", spark.sql)):
        path = tmp_path / engine
        spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, p BIGINT) USING delta PARTITIONED BY (p)")
        with session_settings(engines.spark, {REPARTITION: switch}):
            run(f"MERGE INTO delta.`{path}` t USING (SELECT id, id % 3 AS p FROM range(0, 60, 1, 2)) s "
                "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
        files[engine] = len(list(path.glob("p=*/*.parquet")))
    assert files == {"ours": num_files, "builtin": num_files}


@pytest.mark.parametrize(("switch", "num_files"), [("true", 3), ("false", 6)])
def test_repartition_before_write_of_touched_files(
    switch: str, num_files: int, spark: SparkSession, tmp_path: Path
) -> None:
    """Two files in each of three partitions, read by six tasks: off, each of them writes its few rows by itself."""
    path, deletes = tmp_path / "t", "WHEN MATCHED THEN DELETE"
    rows = spark.range(0, 60, 1, 2).selectExpr("id", "id % 3 AS p")
    rows.write.format("delta").partitionBy("p").save(str(path))
    before = set(path.glob("p=*/*.parquet"))
    assert len(before) == 6
    in_six_tasks = {"spark.sql.files.openCostInBytes": str(128 * 1024 * 1024)}
    in_two_phases = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.shortcuts.enabled": "false"}
    with session_settings(spark, {REPARTITION: switch, **in_six_tasks, **in_two_phases}):
        source = "(SELECT id * 10 + id DIV 3 AS id FROM range(6)) s"  # 0, 10, 20, 31, 41, 51: one row of each file
        result = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING {source} ON t.id = s.id {deletes}")
    assert result.num_touched_files == 6
    assert len(set(path.glob("p=*/*.parquet")) - before) == num_files


@pytest.mark.parametrize("statement", ["BEGIN {}; END", 'EXECUTE IMMEDIATE "{}"'], ids=["a script", "a text"])
def test_what_spark_runs_while_it_analyses_is_refused_before_it_runs(
    statement: str, spark: SparkSession, tmp_path: Path
) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (id INT) USING delta")
    insert = f"MERGE INTO {table} t USING (SELECT 1 AS id) s ON t.id = s.id {INSERT}"
    with pytest.raises(MergeConfigError, match="The statement is not a MERGE"):
        merge_sql(spark, statement.format(insert))
    assert spark.table(table).count() == 0
