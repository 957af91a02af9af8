"""What ours does otherwise than the built-in on purpose, each as docs/metrics.md lists it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.delta_log import edit_log
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "(SELECT id, id AS value FROM range(2, 12, 1, 1))"
IN_TWO_PHASES = {
    "spark.deltaMerge.smallMergeBytes": "0",
    "spark.deltaMerge.shortcuts.enabled": "false",
}
WITH_DELETION_VECTORS = "TBLPROPERTIES (delta.enableDeletionVectors = true)"


def name_of_all_but(not_named: tuple[int, ...]) -> Callable[[int | None], str]:
    def name_of(value: int | None) -> str:
        if value in not_named:
            raise ValueError(f"No name for {value}.")
        return f"number {value}"

    return name_of


def merge(
    spark: SparkSession,
    folder: Path,
    engine: str,
    *,
    clauses: str,
    on: str = "t.id = s.id",
    source: str = SOURCE,
    layout: str = "",
) -> dict[int, str]:
    """Merge into a new table of the ids 0 to 7, named by their digits; the names by id."""
    table = f"delta.`{folder / engine}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING delta {layout}")
    spark.sql(f"INSERT INTO {table} SELECT id, CAST(id AS STRING) FROM range(0, 8, 1, 1)")
    statement = f"MERGE INTO {table} t USING {source} s ON {on} {clauses}"
    if engine == "builtin":
        spark.sql(statement).collect()
    else:
        merge_sql(spark, statement)
    return {row["id"]: row["name"] for row in spark.table(table).collect()}


@pytest.mark.parametrize(
    ("settings", "ours_names_it"),
    [({}, False), (IN_TWO_PHASES, True)],
    ids=["a small merge, joined beforehand", "in two phases"],
)
def test_input_file_name_in_set(
    spark: SparkSession, tmp_path: Path, settings: Mapping[str, str], ours_names_it: bool
) -> None:
    clauses = "WHEN MATCHED AND s.value < 4 THEN UPDATE SET name = input_file_name()"
    with session_settings(spark, settings):
        theirs = merge(spark, tmp_path, "builtin", clauses=clauses)
        ours = merge(spark, tmp_path, "ours", clauses=clauses)
    assert theirs[2].startswith("file:")
    assert ours[2].startswith("file:") if ours_names_it else ours[2] == ""


def test_the_built_in_itself_has_no_input_file_name_beside_inserts(spark: SparkSession, tmp_path: Path) -> None:
    clauses = (
        "WHEN MATCHED AND s.value < 4 THEN UPDATE SET name = input_file_name() "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.value)"
    )
    assert merge(spark, tmp_path, "builtin", clauses=clauses)[2] == ""


@pytest.mark.parametrize("layout", ["", WITH_DELETION_VECTORS], ids=["files rewritten", "deletion vectors"])
@pytest.mark.parametrize(
    "not_named",
    [(8, 9, 10, 11), (4, 5)],
    ids=["inserted rows", "deleted rows"],
)
def test_a_python_function_in_set_is_not_called_for_rows_of_other_clauses(
    spark: SparkSession, tmp_path: Path, not_named: tuple[int, ...], layout: str
) -> None:
    """Spark calls Python functions of a CASE for each row, whatever its conditions say."""
    spark.udf.register("name_of", name_of_all_but(not_named), StringType())
    clauses = (
        "WHEN MATCHED AND s.value < 4 THEN UPDATE SET name = name_of(s.value) WHEN MATCHED AND s.value < 6 THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'inserted')"
    )
    with pytest.raises(Exception, match="No name for"):
        merge(spark, tmp_path, "builtin", clauses=clauses, layout=layout)
    ours = merge(spark, tmp_path, "ours", clauses=clauses, layout=layout)
    kept = {id_: str(id_) for id_ in (0, 1, 6, 7)}
    assert ours == kept | {2: "number 2", 3: "number 3"} | dict.fromkeys((8, 9, 10, 11), "inserted")


def test_a_python_function_in_set_that_raises_for_a_row_that_stays_in_its_file_fails_the_merge(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In both, as its file is rewritten."""
    spark.udf.register("name_of", name_of_all_but((6, 7)), StringType())
    clauses = "WHEN MATCHED AND s.value < 4 THEN UPDATE SET name = name_of(s.value)"
    with pytest.raises(Exception, match="No name for"):
        merge(spark, tmp_path, "builtin", clauses=clauses)
    with pytest.raises(MergeExecutionError, match="No name for"):
        merge(spark, tmp_path, "ours", clauses=clauses)


@pytest.mark.parametrize(
    ("on", "clauses", "changed"),
    [
        (
            "t.id = s.id AND s.value < 5",
            "WHEN MATCHED AND IF(s.value < 5, true, raise_error('not its row')) THEN UPDATE SET name = 'updated' "
            "WHEN NOT MATCHED AND s.value < 5 THEN INSERT (id, name) VALUES (s.id, 'inserted')",
            dict.fromkeys((2, 3, 4), "updated"),
        ),
        (
            "t.id = s.id",
            "WHEN MATCHED AND s.value < 4 THEN UPDATE SET name = 'updated' "
            "WHEN NOT MATCHED AND IF(s.value >= 8, true, raise_error('not its row')) "
            "THEN INSERT (id, name) VALUES (s.id, 'inserted')",
            dict.fromkeys((2, 3), "updated") | dict.fromkeys((8, 9, 10, 11), "inserted"),
        ),
        (
            "t.id = s.id",
            "WHEN MATCHED AND s.value < 4 THEN UPDATE SET name = 'updated' "
            "WHEN NOT MATCHED BY SOURCE AND IF(t.id < 2, true, raise_error('not its row')) "
            "THEN UPDATE SET name = 'gone'",
            dict.fromkeys((2, 3), "updated") | dict.fromkeys((0, 1), "gone"),
        ),
    ],
    ids=["matched", "not matched", "not matched by source"],
)
def test_a_condition_is_not_asked_of_rows_of_another_kind(
    spark: SparkSession, tmp_path: Path, on: str, clauses: str, changed: dict[int, str]
) -> None:
    with pytest.raises(Exception, match="not its row"):
        merge(spark, tmp_path, "builtin", on=on, clauses=clauses)
    ours = merge(spark, tmp_path, "ours", on=on, clauses=clauses)
    assert ours == {id_: str(id_) for id_ in range(8)} | changed


def test_a_source_that_changes_with_each_reading_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """So ``failIfSourceChanged``, which compares the built-in's two readings, has nothing to find."""
    spark.udf.register("now_and_then", lambda _: random.choice("yn"), StringType())
    source = "(SELECT id, id AS value FROM range(0, 1000, 1, 1) WHERE now_and_then(id) = 'y')"
    clauses = "WHEN MATCHED THEN UPDATE SET name = 'x' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'x')"
    settings = {
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.merge.failIfSourceChanged": "true",
    }
    with session_settings(spark, settings):
        with pytest.raises(Exception, match="source"):
            merge(spark, tmp_path, "builtin", clauses=clauses, source=source)
        merge(spark, tmp_path, "ours", clauses=clauses, source=source)
        result = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'ours'}`").head()["operationMetrics"]
    rows = spark.read.format("delta").load(str(tmp_path / "ours"))
    assert rows.filter("name = 'x'").count() == int(result["numSourceRows"]) > 100


def test_no_source_row_counts_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Without an equality Spark broadcasts the small table, and an outer join then reads the source twice."""
    source = "(SELECT id, id AS value FROM range(1000))"
    clauses = "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHEN NOT MATCHED BY SOURCE THEN DELETE"
    counted = {}
    for engine in ("builtin", "ours"):
        merge(spark, tmp_path, engine, on="s.id = 3", clauses=clauses, source=source)
        history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / engine}`").head()
        counted[engine] = history["operationMetrics"]["numSourceRows"]
    assert counted == {"builtin": "2000", "ours": "1000"}


def test_a_constant_that_is_no_utf_8_is_not_inserted_twice(spark: SparkSession, tmp_path: Path) -> None:
    """The built-in's insert-only merge compares it with Parquet's bounds, as Spark does in any filter."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'names'}` (id BIGINT, name STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'names'}` VALUES (1, CAST(X'636166E933' AS STRING))")
    source = "(SELECT 1L AS id, CAST(X'636166E933' AS STRING) AS name)"
    rows = {}
    for engine in ("builtin", "ours"):
        table = f"delta.`{shutil.copytree(tmp_path / 'names', tmp_path / engine)}`"
        statement = f"MERGE INTO {table} t USING {source} s ON t.name = s.name WHEN NOT MATCHED THEN INSERT *"
        spark.sql(statement) if engine == "builtin" else merge_sql(spark, statement)
        rows[engine] = spark.table(table).count()
    assert rows == {"builtin": 2, "ours": 1}


def test_empty_texts_as_partition_values_stay(spark: SparkSession, tmp_path: Path) -> None:
    """Of the file that has it no clause takes a row; as another writer's, since Spark writes NULL there."""
    table = tmp_path / "table"
    spark.sql("SELECT 1 AS id, CAST(NULL AS STRING) AS part UNION ALL SELECT 2, 'two'").write.format(
        "delta"
    ).partitionBy("part").save(str(table))
    edit_log(table, [('{"part":null}', '{"part":""}')])
    clauses = "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN DELETE"
    left = {}
    for engine, run in (("builtin", spark.sql), ("ours", lambda sql: merge_sql(spark, sql))):
        copy = tmp_path / engine
        shutil.copytree(table, copy)
        source = "(SELECT 3 AS id, 'three' AS part)"
        run(f"MERGE INTO delta.`{copy}` t USING {source} s ON t.id = s.id {clauses}")
        left[engine] = sorted((row["id"], row["part"]) for row in spark.read.format("delta").load(str(copy)).collect())
    assert left == {"builtin": [(1, None), (3, "three")], "ours": [(1, ""), (3, "three")]}
