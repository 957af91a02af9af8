"""Targets and sources in catalogs other than Spark's own, ``spark_catalog``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.cases import Case
from tests.differential.harness import Harness
from tests.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEAM = Path(__file__).parent / "seam"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
# The folder catalog knows a table by its folder's path.
IN_FOLDERS = "folders.lake.`{path}`"

CASES = [
    Case("a catalog of its own", does="update, insert",
         merge=f"MERGE INTO {IN_FOLDERS} AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("a catalog of its own, without an alias", does="update, delete",
         merge=f"MERGE INTO {IN_FOLDERS} USING {{s}} AS s ON {IN_FOLDERS}.id = s.id "
               "WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name"),
    Case("a catalog of its own, target and source", does="update",
         merge=f"MERGE INTO {IN_FOLDERS} AS t USING {IN_FOLDERS} AS s ON t.id = s.id "
               "WHEN MATCHED AND t.age > 30 THEN UPDATE SET age = s.age + 1"),
    Case("a catalog of its own, with schema evolution", does="update, insert",
         source="VALUES (2, 'BOB', 41, true), (9, 'ida', 20, false) AS s(id, name, age, new)",
         merge=f"MERGE WITH SCHEMA EVOLUTION INTO {IN_FOLDERS} AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("a catalog of its own, not matched by source", does="update, delete",
         merge=f"MERGE INTO {IN_FOLDERS} AS t USING {{s}} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
               "WHEN NOT MATCHED BY SOURCE THEN DELETE"),
    Case("a table that a catalog of its own doesn't have", fails="TABLE_OR_VIEW_NOT_FOUND",
         merge=f"MERGE INTO folders.lake.nowhere AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("Delta's catalog by another name", does="update, insert", by_name=True,
         merge=f"MERGE INTO second.{{t}} AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("Delta's catalog by another name, target and source", does="delete", by_name=True,
         merge="MERGE INTO second.{t} AS t USING second.{t} AS s ON t.id = s.id AND s.age > 40 "
               "WHEN MATCHED THEN DELETE"),
    Case("a table that Delta's catalog by another name doesn't have", fails="TABLE_OR_VIEW_NOT_FOUND",
         merge=f"MERGE INTO second.default.nowhere AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def catalogs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The catalogs ``folders`` and ``second``."""
    jar = tmp_path_factory.mktemp("catalogs") / "catalogs.jar"
    with java_classes(spark, SEAM / "FolderCatalog.java", SEAM / "SecondDeltaCatalog.java", jar=jar):
        spark.conf.set("spark.sql.catalog.folders", "FolderCatalog")
        spark.conf.set("spark.sql.catalog.folders.folder", "/")
        spark.conf.set("spark.sql.catalog.second", "SecondDeltaCatalog")
        yield
        for name in ("folders", "folders.folder", "second"):
            spark.conf.unset(f"spark.sql.catalog.{name}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_catalogs(case: Case, engines: Harness) -> None:
    engines.check(case)
