"""A merge that is held to folders: what it may not use is refused before it is read, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge import engine
from airflow_delta_merge.config import (
    MergeConfig,
    MergeStatement,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.exceptions import MergeConfigError
from tests.readable_ids import readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# $IN is allowed, $OUT isn't; $IN is `…/in`, so that `…/in_too` begins with the same characters.
UNDER_NONE = "is not under the allowed_locations"
CODE = "could reach outside allowed_locations. Remove it."
OPTION = "could reach outside allowed_locations. Remove it. If"
SECRET = "text.`$OUT/secret.txt`"
ONE_ROW = "SELECT 1L AS id, 'x' AS v"


class Folders:
    """``in``, which is allowed and has a table and a file, and ``out`` with the same; ``links`` leads from one out."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        for name in ("in", "out", "in_too"):
            (folder / name).mkdir()
            (folder / name / "secret.txt").write_text("a secret\n")
            spark.range(1).selectExpr("id", "'v' AS v").write.format("delta").save(str(folder / name / "t"))
        spark.sql(f"CREATE TABLE named_out (id BIGINT, v STRING) USING delta LOCATION '{folder}/out/named'")
        spark.sql(f"CREATE TABLE named_in (id BIGINT, v STRING) USING delta LOCATION '{folder}/in/named'")
        spark.sql(f"CREATE VIEW view_out AS SELECT 1L AS id, value AS v FROM text.`{folder}/out/secret.txt`")

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("$IN", f"{self.folder}/in").replace("$OUT", f"{self.folder}/out")
        if isinstance(value, dict):
            return {name: self.fill(each) for name, each in value.items()}
        return [self.fill(each) for each in value] if isinstance(value, list) else value

    def merge(self, spark: SparkSession, **changes: Any) -> Any:
        plain = {"target": "$IN/t", "source": ONE_ROW, "on": ["id"]} | changes
        clauses = plain.pop("clauses", [when_matched_update_all(), when_not_matched_insert_all()])
        sql = plain.pop("sql", None)
        config = MergeStatement(sql=self.fill(sql)) if sql else MergeConfig(**self.fill(plain), clauses=clauses)
        return engine.merge(spark, config, allowed_locations=[f"file://{self.folder}/in/"])

    def files(self) -> set[Path]:
        return set(self.folder.rglob("*"))


@pytest.fixture(scope="module")
def folders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folders]:
    yield Folders(spark, tmp_path_factory.mktemp("folders"))
    for what in ("TABLE named_out", "TABLE named_in", "VIEW view_out"):
        spark.sql(f"DROP {what}")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "$OUT/t"}, UNDER_NONE),
        ({"target": "$IN/../out/t"}, UNDER_NONE),
        ({"target": "$IN//..//out/t"}, UNDER_NONE),
        ({"target": "file:$OUT/t"}, UNDER_NONE),
        ({"target": "file://localhost$IN/t"}, UNDER_NONE),
        ({"target": "hdfs://somewhere$IN/t"}, UNDER_NONE),
        ({"target": "$IN_too/t"}, UNDER_NONE),
        ({"target": "data/t"}, "is relative"),
        ({"target": "named_out"}, UNDER_NONE),
        ({"target": "$OUT/new", "create_table": True}, UNDER_NONE),
        ({"target": "new_by_name", "create_table": True}, "Set the target's path instead"),
        ({"target": "$IN/new", "create_table": True, "source": "named_out"}, UNDER_NONE),
        ({"source": "$OUT/t"}, UNDER_NONE),
        ({"source": ["$IN/secret.txt", "$OUT/secret.txt"]}, UNDER_NONE),
        ({"source": {"path": "$OUT/secret.txt", "format": "csv"}}, UNDER_NONE),
        # Patterns that are `..` only when they are expanded.
        ({"source": {"path": "$IN/\\../out/secret.txt", "format": "text"}}, UNDER_NONE),
        ({"source": {"path": "$IN/.{./out/secret,x}.txt", "format": "text"}}, UNDER_NONE),
        ({"source": {"path": "$IN/secret.txt", "format": "csv", "options": {"fs.file.impl": "x.Y"}}}, OPTION),
        ({"source": {"path": "$IN/secret.txt", "format": "csv", "options": {"path": "$OUT/secret.txt"}}}, OPTION),
        ({"source": {"path": "$IN/x", "format": "avro", "options": {"avroSchemaUrl": "$OUT/secret.txt"}}}, OPTION),
        ({"source": {"format": "jdbc", "conn_id": "shop", "table": "orders"}}, "format 'jdbc' may read outside"),
        ({"source": "named_out"}, UNDER_NONE),
        ({"source": "view_out"}, UNDER_NONE),
        ({"source": f"SELECT 1L AS id, value AS v FROM {SECRET}"}, UNDER_NONE),
        ({"source": f"WITH a AS (SELECT * FROM {SECRET}) SELECT 1L AS id, value AS v FROM a"}, UNDER_NONE),
        ({"source": f"SELECT 1L AS id, 'x' AS v WHERE EXISTS (SELECT * FROM {SECRET})"}, UNDER_NONE),
        (
            {
                "source": {
                    "table": "named_in",
                    "select": f"SELECT id, v FROM source WHERE v IN (SELECT value FROM {SECRET})",
                }
            },
            UNDER_NONE,
        ),
        ({"source": "SELECT id, v FROM table_changes_by_path('$OUT/t', 0)"}, UNDER_NONE),
        ({"source": "SELECT * FROM csv.`$IN/secret.txt` WITH (`fs.file.impl` = 'x.Y')"}, OPTION),
        (
            {"source": "SELECT 1 FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`$OUT/x`"},
            UNDER_NONE,
        ),
        ({"source": "SELECT * FROM IDENTIFIER(concat('text.', '`$OUT/secret.txt`'))"}, CODE),
        ({"source": "SELECT IDENTIFIER(concat('ref', 'lect'))('a', 'b')"}, CODE),
        ({"source": "SELECT TRANSFORM(1L, 'x') USING 'tee $OUT/made' AS (id BIGINT, v STRING)"}, CODE),
        ({"clauses": [when_matched_update(set={"v": "reflect('java.lang.System', 'getenv', 'HOME')"})]}, CODE),
        ({"on": "target.id = source.id AND builtin.JAVA_METHOD('a', 'b') = 'c'"}, CODE),
        ({"guards": {"fail_if": ["num_source_rows > (SELECT count(*) FROM text.`/etc/passwd`)"]}}, UNDER_NONE),
        (
            {"sql": "MERGE INTO delta.`$OUT/t` t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"},
            UNDER_NONE,
        ),
        (
            {
                "sql": "MERGE INTO delta.`$IN/t` t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE "
                f"SET v = (SELECT max(value) FROM {SECRET})"
            },
            UNDER_NONE,
        ),
        (
            {
                "sql": "MERGE INTO delta.`$IN/t` t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE "
                "SET v = (SELECT max(v) FROM view_out)"
            },
            UNDER_NONE,
        ),
    ],
    ids=readable,
)
def test_refused(spark: SparkSession, folders: Folders, changes: dict[str, Any], sentence: str) -> None:
    before = folders.files()
    with pytest.raises(MergeConfigError) as caught:
        folders.merge(spark, **changes)
    assert sentence in str(caught.value)
    assert folders.files() == before
    assert not spark.catalog.tableExists("new_by_name")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"target": "file:$IN/../in/t"},
        {"target": "named_in"},
        {"source": "$IN/t"},
        {"source": "SELECT 7L AS id, value AS v FROM text.`$IN/secret.txt`"},
        {"source": {"path": "$IN/*.{txt,none}", "format": "csv", "options": {"schema": "id BIGINT", "sep": "."}}},
        {"source": "SELECT id, v FROM (SELECT id, v FROM named_in UNION ALL SELECT id + 10, 'r' FROM range(2))"},
        {"source": {"path": "$IN/t", "select": "SELECT id + 1 AS id, v FROM source"}},
        {"target": "$IN/made", "create_table": True},
        {"target": "$IN/it's a `path` with \\ and ü", "create_table": {"columns": "id BIGINT, v STRING"}},
    ],
    ids=readable,
)
def test_allowed(spark: SparkSession, folders: Folders, changes: dict[str, Any]) -> None:
    if isinstance(changes.get("source"), dict):
        changes = changes | {"on": "false", "clauses": [when_matched_update(set={"v": "'x'"})]}
    folders.merge(spark, **changes)


def test_refused_before_spark_opens_a_file(spark: SparkSession, folders: Folders) -> None:
    # Spark would say that it isn't there, and so whether it is.
    for source in ("SELECT * FROM parquet.`$OUT/none`", {"path": "$OUT/none", "format": "parquet"}):
        with pytest.raises(MergeConfigError, match=UNDER_NONE):
            folders.merge(spark, source=source)


def test_a_plan_is_held_to_the_same(spark: SparkSession, folders: Folders) -> None:
    config = MergeConfig(target=f"{folders.folder}/out/t", source=ONE_ROW, on=["id"], clauses=when_matched_update_all())
    with pytest.raises(MergeConfigError, match=r"there are none"):
        engine.plan(spark, config, allowed_locations=[])
    assert engine.plan(spark, config, allowed_locations=["/"]).num_source_rows == 1
