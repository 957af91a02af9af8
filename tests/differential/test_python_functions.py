"""Python functions in the conditions: Spark reads rows ahead for them, and doesn't join by them in every way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: One task reads several of its files, and each row before it knows what the function says of the first ones.
EIGHT_FILES = Table("id BIGINT, name STRING", rows="SELECT id, CAST(id AS STRING) FROM range(400)", files=8)
WITH_VECTORS = Table(
    EIGHT_FILES.columns, rows=EIGHT_FILES.rows, files=8, properties={"delta.enableDeletionVectors": "true"}
)
SOURCE = "SELECT id * 37 AS id, 'new' AS name FROM range(12)"

SMALL = {"spark.deltaMerge.smallMergeBytes": "8000000"}
NOT_SMALL = {"spark.deltaMerge.smallMergeBytes": "0"}
UPDATE = "WHEN MATCHED THEN UPDATE SET name = s.name"
UPSERT = f"{UPDATE} WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"

OF_THE_TARGET = "t.id = s.id AND is_even(t.id)"
OF_BOTH = "t.id = s.id AND is_same(t.name, s.name)"
STRANGER = "VALUES (9, 'zoe') AS s(id, name)"

CASES = [
    Case(
        "of the target", UPSERT, "update, insert", table=EIGHT_FILES, source=SOURCE, on=OF_THE_TARGET, confs=NOT_SMALL
    ),
    Case(
        "of the target, rows marked",
        UPSERT,
        "update, insert",
        table=WITH_VECTORS,
        source=SOURCE,
        on=OF_THE_TARGET,
        confs=NOT_SMALL,
    ),
    Case("of the target, a small merge", UPSERT, "update, insert", on=OF_THE_TARGET, confs=SMALL),
    Case("of both, nobody matches", UPDATE, "nothing", source=STRANGER, on=OF_BOTH, confs=SMALL),
    Case("of both, nobody matches and all are inserted", UPSERT, "insert", source=STRANGER, on=OF_BOTH, confs=SMALL),
    Case(
        "of both, rows marked",
        UPDATE,
        "update",
        table=WITH_VECTORS,
        source="VALUES (2, '2') AS s(id, name)",
        on=OF_BOTH,
    ),
    Case(
        "of clauses",
        "WHEN MATCHED AND is_even(t.id + s.age) THEN DELETE WHEN NOT MATCHED AND is_even(s.age) THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND is_even(t.id) THEN UPDATE SET age = 0",
        "update, delete, insert",
    ),
]


@pytest.fixture(autouse=True)
def functions(spark: SparkSession) -> None:
    spark.udf.register("is_even", lambda number: number is not None and number % 2 == 0, "boolean")
    spark.udf.register("is_same", lambda one, other: one == other, "boolean")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_python_functions(case: Case, engines: Harness) -> None:
    engines.check(case)
