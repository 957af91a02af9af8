"""Constants of ON and of the source. Spark may push them down to the target's files, and compare with Parquet's values.

There a zero is not a minus zero, and a text that is not UTF-8 arrives as another one. The built-in lets Spark do so
with deletion vectors, and if it only inserts.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from tests.differential.cases import Case, Table
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUS_ZERO, LATIN_1 = "CAST('-0.0' AS DOUBLE)", "CAST(X'636166E9' AS STRING)"
NUMBERS = Table("id BIGINT, d DOUBLE, n INT", "(1L, 0D, 0), (2L, 0D, 0), (3L, 5D, 0), (4L, NULL, 0)")
TEXTS = Table("id BIGINT, d STRING, n INT", f"(1L, {LATIN_1}, 0), (2L, {LATIN_1}, 0), (3L, 'x', 0), (4L, NULL, 0)")
UNTOUCHED, UPDATED = ["1 0", "2 0", "3 0", "4 0"], ["1 1", "2 1", "3 0", "4 0"]

#: The old value is read again.
UPDATE = "WHEN MATCHED THEN UPDATE SET n = t.n + 1"
#: Deleting what has no match lets Spark take an outer join for an inner one.
SYNC = f"{UPDATE} WHEN NOT MATCHED BY SOURCE THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT (id, d, n) VALUES (s.id, s.d, 0)"

CASES = [
    Case(
        "a minus zero in ON",
        UPDATE,
        "update",
        table=NUMBERS,
        source="SELECT id FROM range(10)",
        on=f"t.id = s.id AND t.d = {MINUS_ZERO}",
        confs={"spark.deltaMerge.smallMergeBytes": "0"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_constants(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize(
    ("clauses", "rows"),
    [(UPDATE, UPDATED), (SYNC, UPDATED[:2])],
    ids=["update", "sync"],
)
def test_a_text_that_is_not_utf_8(clauses: str, rows: list[str], spark: SparkSession, tmp_path: Path) -> None:
    assert _merged(spark, tmp_path, TEXTS, LATIN_1, clauses) == dict.fromkeys(("builtin", *WAYS), rows)


@pytest.mark.parametrize(
    ("table", "constant"), [(NUMBERS, MINUS_ZERO), (TEXTS, LATIN_1)], ids=["minus zero", "a text that is not UTF-8"]
)
def test_the_built_in_updates_nothing_with_deletion_vectors(
    table: Table, constant: str, spark: SparkSession, tmp_path: Path
) -> None:
    marked = replace(table, properties={"delta.enableDeletionVectors": "true"})
    found = _merged(spark, tmp_path, marked, constant, UPDATE)
    assert found == {"builtin": UNTOUCHED, **dict.fromkeys(WAYS, UPDATED)}


def test_the_built_in_inserts_a_text_that_is_not_utf_8_again(spark: SparkSession, tmp_path: Path) -> None:
    found = _merged(spark, tmp_path, TEXTS, LATIN_1, INSERT)
    assert found == {"builtin": [*UNTOUCHED, "9 0"], **dict.fromkeys(WAYS, UNTOUCHED)}


def _merged(spark: SparkSession, folder: Path, table: Table, constant: str, clauses: str) -> dict[str, list[str]]:
    """The values of ``id`` and ``n`` after a merge of a row with a constant by each engine and way."""
    for statement in table.statements:
        spark.sql(statement.replace("{t}", f"delta.`{folder / 'table'}`"))
    found = {}
    for way in ("builtin", *WAYS):
        copy = f"delta.`{shutil.copytree(folder / 'table', folder / way)}`"
        source = f"(SELECT 9 AS id, {constant} AS d FROM range(1))"
        statement = f"MERGE INTO {copy} t USING {source} s ON t.d = s.d {clauses}"
        with session_settings(spark, WAYS.get(way, {})):
            spark.sql(statement).collect() if way == "builtin" else merge_sql(spark, statement)
        found[way] = sorted(f"{row.id} {row.n}" for row in spark.table(copy).select("id", "n").collect())
    return found
