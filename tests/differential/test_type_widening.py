"""Type widening: columns widened before, and by the merge."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

WIDEN = {"delta.enableTypeWidening": "true"}
CASES = [
    Case("type widened before", UPSERT, does="update, insert",
         table=Table("id SMALLINT, n INT", "(1, 1), (2, 2)", properties={"delta.enableTypeWidening": "true"},
                     then=("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT", "INSERT INTO {t} VALUES (5000000000, 5)")),
         source="VALUES (1L, 10), (5000000000L, 50), (6000000000L, 60) AS s(id, n)"),
    Case("a wider type, no type widening", UPSERT, does="update, insert", table=Table("id INT, n INT", "(1, 1)"),
         source="VALUES (1, 5L), (2, 6L) AS s(id, n)", evolves=True),
    Case("a wider type, type widening", UPSERT, does="update, insert",
         table=Table("id INT, n INT", "(1, 1), (3, 3)", properties=WIDEN),
         source="VALUES (1, 5000000000L), (2, 6L) AS s(id, n)", evolves=True),
    Case("a wider type, type widening, no evolution", UPSERT, fails="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
         table=Table("id INT, n INT", "(1, 1), (3, 3)", properties=WIDEN),
         source="VALUES (1, 5000000000L), (2, 6L) AS s(id, n)"),
    Case("a wider key", UPSERT, does="update, insert", table=Table("id SMALLINT, n INT", "(1S, 1)", properties=WIDEN),
         source="VALUES (1, 5), (70000, 6) AS s(id, n)", evolves=True),
    Case("a wider field of a struct", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, a STRUCT<x: INT>", "(1, struct(1))", properties=WIDEN),
         source="SELECT id, named_struct('x', 5000000000L) AS a FROM VALUES (1), (3) AS s(id)"),
    Case("a wider type of a column that a constraint names", UPSERT, fails="DELTA_CONSTRAINT_DATA_TYPE_MISMATCH",
         table=Table("id INT, n INT", "(1, 1)", properties=WIDEN,
                     then="ALTER TABLE {t} ADD CONSTRAINT c CHECK (n > 0)"),
         source="SELECT 1 AS id, 5L AS n", evolves=True),
    Case("a wider type of a column that another is generated from", UPSERT, evolves=True,
         fails="DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH", source="SELECT 1 AS id, 5L AS n",
         table=Table("id INT, n INT, g INT GENERATED ALWAYS AS (n * 2)", "INSERT INTO {t} (id, n) VALUES (1, 1)",
                     properties=WIDEN)),
    Case("a decimal of another scale", UPSERT, does="update", evolves=True, source="SELECT 1 AS id, 1.000001 AS n",
         table=Table("id INT, n DECIMAL(10, 2)", "(1, 1)", properties=WIDEN)),
    Case("type widened before, with deletion vectors and statistics of the old type", UPSERT, does="update, insert",
         table=Table("id SMALLINT, n INT", ("(1, 1), (2, 2)", "(3, 3)"),
                     properties={"delta.enableTypeWidening": "true", "delta.enableDeletionVectors": "true"},
                     then="ALTER TABLE {t} ALTER COLUMN id TYPE INT"),
         source="VALUES (1, 10), (3, 30), (70000, 60) AS s(id, n)"),
    Case("a float widened before, whose bound is now below its value",
         "WHEN NOT MATCHED BY SOURCE AND t.d > 0.1D THEN DELETE", does="delete",
         table=Table("id INT, d FLOAT", "(1, 0.1F)", properties=WIDEN,
                     then=("ALTER TABLE {t} ALTER COLUMN d TYPE DOUBLE", "INSERT INTO {t} VALUES (3, 0.05D)")),
         source="VALUES (3, 0D) AS s(id, d)"),
    Case("a wider partition column", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, p SMALLINT", "(1, 1S), (3, 3S)", properties=WIDEN, partitioned_by="p"),
         source="VALUES (1, 70000), (2, 6) AS s(id, p)"),
    Case("a wider type set by name", "WHEN MATCHED THEN UPDATE SET n = s.n", does="update", evolves=True,
         table=Table("id INT, n INT", "(1, 1), (3, 3)", properties=WIDEN),
         source="VALUES (1, 5000000000L) AS s(id, n)"),
    Case("a wider decimal", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, n DECIMAL(5, 2)", "(1, 1)", properties=WIDEN),
         source="SELECT id, CAST(12345.67 AS DECIMAL(9, 2)) AS n FROM VALUES (1), (2) AS s(id)"),
    Case("a wider element of an array", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, l ARRAY<INT>", "(1, array(1))", properties=WIDEN),
         source="SELECT id, array(5000000000L) AS l FROM VALUES (1), (2) AS s(id)"),
    Case("a narrower type is cast, the schema stays", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, n BIGINT", "(1, 1)", properties=WIDEN), source="VALUES (1, 5S), (2, 6S) AS s(id, n)"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_type_widening(case: Case, engines: Harness) -> None:
    engines.check(case)
