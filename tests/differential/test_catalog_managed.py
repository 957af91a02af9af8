"""Tables whose commits a catalog coordinates (the feature ``catalogManaged``).

Delta's jar has a coordinator for tests, which keeps a table's commits in memory and publishes them to the log after
some more. Here it publishes none, so a merge must ask the coordinator for all that happened to the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.exceptions import MergeConflictError
from tests.differential.meanwhile import Meanwhile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE_THAN_COMMITS = 1_000
#: By it Delta knows its own tests, which may create such tables in Spark's catalog.
FOR_DELTAS_TESTS = "spark.testing"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
MERGES = (
    f"MERGE INTO {{t}} t USING (VALUES (2, 'B'), (9, 'n') AS s(id, v)) s ON t.id = s.id {UPSERT}",
    "MERGE INTO {t} t USING (SELECT id + 100 AS id, v FROM {t}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "MERGE INTO {t} t USING {t} s ON t.id = s.id AND s.id > 3 WHEN MATCHED THEN DELETE "
    "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'z'",
    "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT 1 AS id, 'q' AS v, 5 AS extra) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET *",
)


@pytest.fixture(scope="module", autouse=True)
def coordinator(spark: SparkSession) -> Iterator[None]:
    java: Any = spark._jvm
    commits = java.org.apache.spark.sql.delta.coordinatedcommits
    providers = getattr(getattr(commits, "CatalogOwnedCommitCoordinatorProvider$"), "MODULE$")
    providers.registerBuilder("spark_catalog", commits.InMemoryCommitCoordinatorBuilder(MORE_THAN_COMMITS))
    yield
    providers.clearBuilders()


def new_table(spark: SparkSession, name: str) -> tuple[str, Path]:
    """The name and the folder of a new table of four rows in two files."""
    table, java = f"default.managed_{name}", spark._jvm.java.lang.System  # type: ignore[union-attr]
    java.setProperty(FOR_DELTAS_TESTS, "true")
    try:
        spark.sql(
            f"CREATE TABLE {table} (id INT, v STRING) USING delta TBLPROPERTIES ("
            "'delta.feature.catalogManaged' = 'supported', 'delta.enableChangeDataFeed' = 'true')"
        )
    finally:
        java.clearProperty(FOR_DELTAS_TESTS)
    for rows in ("(1, 'a'), (2, 'b')", "(3, 'c'), (4, 'd')"):
        spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    return table, Path(spark.sql(f"DESCRIBE DETAIL {table}").collect()[0].location.removeprefix("file:"))


def test_merges_as_the_built_in(spark: SparkSession) -> None:
    found = []
    for engine in ("builtin", "ours"):
        table, folder = new_table(spark, engine)
        changes = []
        for statement in (merge.replace("{t}", table) for merge in MERGES):
            if engine == "ours":
                merge_sql(spark, statement)
            else:
                spark.sql(statement)
            changes.append(spark.sql(f"SELECT count(*) AS n FROM {table}").collect()[0].n)
        feed = spark.sql(f"SELECT * FROM table_changes('{table}', 3)").drop("_commit_timestamp")
        found.append((changes, *(sorted(map(str, rows.collect())) for rows in (spark.table(table), feed))))
        assert not (folder / "_delta_log" / "00000000000000000003.json").exists(), "the coordinator has published it"
    assert found[0] == found[1]


def test_another_try_finds_the_unpublished_commit(spark: SparkSession) -> None:
    table, _ = new_table(spark, "tried_again")
    identity = MergeIdentity(application_id="managed", generation=1)
    statement = MERGES[0].replace("{t}", table)
    first = merge_sql(spark, statement, identity=identity)
    spark.sql(f"INSERT INTO {table} VALUES (50, 'later')")
    again = merge_sql(spark, statement, identity=identity)
    assert (first.version, first.already_committed) == (3, False)
    assert (again.version, again.already_committed, again.num_updated_rows) == (3, True, 1)


def test_an_unpublished_commit_of_another_writer_conflicts(spark: SparkSession) -> None:
    table, folder = new_table(spark, "shared")
    other = Meanwhile(spark, folder, [f"UPDATE {table} SET v = 'theirs' WHERE id = 2"])
    source = other.pausing("VALUES (2, 'ours') AS s(id, v)")
    statement = f"MERGE INTO {table} t USING {source} s ON t.id = s.id {UPSERT}"
    with other, pytest.raises(MergeConflictError):
        merge_sql(spark, statement, max_commit_attempts=1)
    assert {row.v for row in spark.table(table).collect()} == {"a", "theirs", "c", "d"}
    result = merge_sql(spark, statement, max_commit_attempts=1)  # the other one is done
    assert (result.version, result.num_updated_rows) == (4, 1)
