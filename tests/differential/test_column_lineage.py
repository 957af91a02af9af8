"""Column lineage of merges that are carried out, beside what reading the statement by hand says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import (
    MergeConfig,
    MergeSource,
    MergeStatement,
    when_matched_update,
    when_not_matched_insert,
)
from airflow_delta_merge.config import when_matched_update_all as update_all
from airflow_delta_merge.config import when_not_matched_insert_all as insert_all
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.lineage import TARGET, ColumnInput, ColumnLineage
from airflow_delta_merge.engine import merge
from tests.differential.conftest import MadeOnce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"id": "int", "v": "string", "s": "struct<a:int,b:string>", "n": "bigint", "g": "int"}


@pytest.fixture
def folder(made_once: MadeOnce, tmp_path: Path) -> Path:
    return made_once(tmp_path / "tables", made)


def made(spark: SparkSession, folder: Path) -> None:
    """A target, and the tables src and other."""
    spark.sql(
        f"CREATE TABLE delta.`{folder}/t` (id INT, v STRING, s STRUCT<a: INT, b: STRING>, n BIGINT, "
        "g INT GENERATED ALWAYS AS (id * 2)) USING delta"
    )
    rows = spark.sql("SELECT 1 AS id, 'x' AS v, named_struct('b', 'y', 'a', 2) AS s, 3 AS n, 1.5D AS extra")
    rows.write.format("delta").save(f"{folder}/src")
    spark.sql("SELECT 1 AS k, 'w' AS w, DATE'2026-01-01' AS day").write.parquet(f"{folder}/other")


def lineage(spark: SparkSession, folder: Path, what: MergeConfig | str) -> ColumnLineage:
    """Merge, and return the lineage of its columns."""
    lineages: list[ColumnLineage] = []
    if isinstance(what, str):
        for name, table in {"src": "delta", "other": "parquet"}.items():
            what = what.replace(f"{{{name}}}", f"{table}.`{folder}/{name}`")
        what = MergeStatement(sql=f"MERGE INTO delta.`{folder}/t` t USING {what}")
    merge(spark, what, on_lineage=lineages.append)
    (found,) = lineages
    assert ColumnLineage.from_dict(found.to_dict()) == found
    return found


def shown(lineage: ColumnLineage, inputs: tuple[ColumnInput, ...]) -> set[str]:
    """Inputs to be read: the table's last name, column and kind."""
    names = {TARGET: "t"} | {at: table.paths[0].rpartition("/")[2] for at, table in enumerate(lineage.tables)}
    return {f"{names[each.table]}.{each.column} {each.kind}" for each in inputs}


def columns(lineage: ColumnLineage) -> dict[str, set[str]]:
    return {name: shown(lineage, inputs) for name, inputs in lineage.inputs.items()}


def rows(lineage: ColumnLineage) -> set[str]:
    return shown(lineage, lineage.rows)


def test_values_and_conditions(spark: SparkSession, folder: Path) -> None:
    found = lineage(
        spark,
        folder,
        """{src} s ON t.id = s.id
        WHEN MATCHED AND s.extra > 100 THEN DELETE
        WHEN MATCHED AND s.n > 3 THEN UPDATE SET v = upper(s.v), n = t.n + s.n
        WHEN MATCHED THEN UPDATE SET v = s.v, n = 0
        WHEN NOT MATCHED AND s.v <> '' THEN INSERT (id, v) VALUES (s.id, CASE WHEN s.n > 1 THEN s.v ELSE 'none' END)
        WHEN NOT MATCHED BY SOURCE AND t.v = 'old' THEN UPDATE SET n = NULL""",
    )
    assert found.columns == COLUMNS
    (source,) = found.tables
    assert source.name is None
    assert [path.removeprefix("file:") for path in source.paths] == [f"{folder}/src"]
    assert source.columns["s"] == "struct<b:string,a:int>"
    assert columns(found) == {
        "id": {"src.id IDENTITY"},
        # The condition of the first update decides about the second one, too.
        "v": {"src.v TRANSFORMATION", "src.v IDENTITY", "src.n CONDITIONAL"},
        "n": {"t.n TRANSFORMATION", "src.n TRANSFORMATION", "src.n CONDITIONAL", "t.v CONDITIONAL"},
        # Delta computes it anew from the id that a row has, or gets.
        "g": {"t.id TRANSFORMATION", "src.id TRANSFORMATION", "src.n CONDITIONAL", "t.v CONDITIONAL"},
    }
    assert rows(found) == {"t.id JOIN", "src.id JOIN", "src.extra CONDITIONAL", "src.v CONDITIONAL"}


def test_stars_structs_and_new_columns(spark: SparkSession, folder: Path) -> None:
    config = MergeConfig(
        target=f"{folder}/t",
        source=MergeSource.of_path(f"{folder}/src"),
        on=["id"],
        clauses=[update_all(), insert_all()],
        with_schema_evolution=True,
    )
    found = lineage(spark, folder, config)
    assert found.columns == {**COLUMNS, "extra": "double"}
    assert columns(found) == {
        "id": {"src.id IDENTITY"},
        "v": {"src.v IDENTITY"},
        # Its fields are put into the target's order, if it isn't NULL.
        "s": {"src.s TRANSFORMATION", "src.s CONDITIONAL"},
        "n": {"src.n TRANSFORMATION"},  # widened
        "g": {"src.id TRANSFORMATION"},
        "extra": {"src.extra IDENTITY"},
    }
    assert rows(found) == {"t.id JOIN", "src.id JOIN"}


def test_one_field_of_a_struct(spark: SparkSession, folder: Path) -> None:
    found = lineage(spark, folder, "{src} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s.a = s.n")
    # The other field is copied from the old value; the generated column is computed anew.
    assert columns(found) == {"s": {"src.n TRANSFORMATION", "t.s TRANSFORMATION"}, "g": {"t.id TRANSFORMATION"}}


def test_queries(spark: SparkSession, folder: Path) -> None:
    found = lineage(
        spark,
        folder,
        """(
            WITH latest AS (SELECT *, row_number() OVER (PARTITION BY k ORDER BY day DESC) AS rank FROM {other})
            SELECT k AS id, w AS v, total FROM latest JOIN
                (SELECT id, sum(n) AS total FROM {src} WHERE extra > 0 GROUP BY id) AS sums ON k = sums.id
            WHERE rank = 1
            UNION ALL SELECT id, v, 0 FROM {src}
        ) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v, n) VALUES (id, v, total)""",
    )
    assert columns(found) == {
        "id": {"other.k IDENTITY", "src.id IDENTITY"},
        "v": {"other.w IDENTITY", "src.v IDENTITY"},
        "n": {"src.n AGGREGATION"},
        "g": {"other.k TRANSFORMATION", "src.id TRANSFORMATION"},
    }
    assert rows(found) == {
        "t.id JOIN",
        "other.k JOIN",
        "src.id JOIN",
        "src.id GROUP_BY",
        "src.extra FILTER",
        "other.k FILTER",
        "other.day FILTER",
    }


def test_views_subqueries_and_generators(spark: SparkSession, folder: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW seen AS SELECT k AS id, explode(array(w, 'x')) AS v FROM parquet.`{folder}/other`"
    )
    found = lineage(
        spark,
        folder,
        "seen s ON t.id = s.id AND s.v <> 'x' WHEN NOT MATCHED THEN INSERT (id, v, n) "
        "VALUES (s.id, s.v, (SELECT max(n) FROM {src} WHERE id > 0))",
    )
    assert columns(found) == {
        "id": {"other.k IDENTITY"},
        "v": {"other.w TRANSFORMATION"},
        "n": {"src.n AGGREGATION", "src.id FILTER"},
        "g": {"other.k TRANSFORMATION"},
    }
    assert rows(found) == {"t.id JOIN", "other.k JOIN", "other.w JOIN"}


def test_what_is_in_no_table(spark: SparkSession, folder: Path) -> None:
    """Made-up rows have no columns to come from; rows that Spark got otherwise have no known lineage."""
    found = lineage(
        spark,
        folder,
        "(SELECT id, CAST(id AS STRING) AS v FROM range(3)) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'x')",
    )
    assert (found.tables, columns(found), rows(found)) == ((), {}, {"t.id JOIN"})

    # Not by toDF: that makes it in the session that was started last, which another test may have done.
    computed = spark.createDataFrame(spark.sparkContext.parallelize([(1, "a")]), ["id", "v"])
    computed.createOrReplaceTempView("computed")
    found = lineage(
        spark,
        folder,
        "(SELECT computed.id, computed.v, s.n FROM computed JOIN {src} s USING (id)) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, v, n) VALUES (s.id, s.v, s.n)",
    )
    assert (columns(found), rows(found)) == ({"n": {"src.n TRANSFORMATION"}}, set())

    found = lineage(
        spark,
        folder,
        "(SELECT id, sum(n) AS n FROM {src} GROUP BY GROUPING SETS ((id), ())) s ON t.id = s.id AND t.n = 0 "
        "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)",
    )
    assert columns(found) == {}


def test_a_source_is_several_files_or_a_table(spark: SparkSession, folder: Path) -> None:
    (folder / "a.csv").write_text("id,v\n1,x\n")
    (folder / "b.csv").write_text("id,v\n2,y\n")
    options: dict[str, Any] = {"header": True, "inferSchema": True}
    source = MergeSource.of_path([f"{folder}/a.csv", f"{folder}/b.csv"], options=options)
    clauses = [when_matched_update(set={"v": "source.v"})]
    config = MergeConfig(target=f"{folder}/t", source=source, on=["id"], clauses=clauses, source_dedupe="v")
    found = lineage(spark, folder, config)
    (files,) = found.tables
    assert [path.rpartition("/")[2] for path in files.paths] == ["a.csv", "b.csv"]
    assert columns(found)["v"] == {"a.csv.v IDENTITY"}
    assert rows(found) == {"t.id JOIN", "a.csv.id JOIN", "a.csv.id FILTER", "a.csv.v FILTER"}

    of_files = lineage(spark, folder, replace(config, source_dedupe=None))
    assert rows(of_files) == {"t.id JOIN", "a.csv.id JOIN"}, "that bad rows are left out says nothing of the columns"

    spark.sql(f"CREATE TABLE default.lineage_by_name USING delta LOCATION '{folder}/src'")
    try:
        by_name = MergeConfig(target=f"{folder}/t", source="default.lineage_by_name", on=["id"], clauses=clauses)
        found = lineage(spark, folder, by_name)
    finally:
        spark.sql("DROP TABLE default.lineage_by_name")
    assert [table.name for table in found.tables] == ["spark_catalog.default.lineage_by_name"]
    assert columns(found)["v"] == {"src.v IDENTITY"}


def test_what_was_committed_before_has_none(spark: SparkSession, folder: Path) -> None:
    source = MergeSource.of_path(f"{folder}/src")
    clauses = [when_not_matched_insert(values={"id": "source.id", "v": "source.v"})]
    config = MergeConfig(target=f"{folder}/t", source=source, on=["id"], clauses=clauses)
    identity = MergeIdentity(application_id="lineage", generation=1)
    lineages: list[ColumnLineage] = []
    results = [merge(spark, config, identity=identity, on_lineage=lineages.append) for _ in range(2)]
    assert [result.already_committed for result in results] == [False, True]
    assert len(lineages) == 1


def test_a_table_of_many_columns(spark: SparkSession, folder: Path) -> None:
    """Each of them comes from the column of its name."""
    names = [f"c{number}" for number in range(200)]
    spark.sql(f"SELECT 1 AS id, {', '.join(f'1 AS {name}' for name in names)}").write.format("delta").save(
        f"{folder}/wide"
    )
    source = MergeSource(query=f"SELECT * FROM delta.`{folder}/wide`")
    config = MergeConfig(target=f"{folder}/wide", source=source, on=["id"], clauses=[update_all(), insert_all()])
    found = lineage(spark, folder, config)
    assert columns(found) == {name: {f"wide.{name} IDENTITY"} for name in ["id", *names]}
