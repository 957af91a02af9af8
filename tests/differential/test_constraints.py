"""Constraints: NOT NULL and CHECK."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"

NOT_NULL = Table("id INT NOT NULL, name STRING NOT NULL, age INT", "(1, 'ann', 30), (2, 'bob', 40)")
CHECKED = Table("id INT, name STRING, age INT", "(1, 'ann', 30), (2, 'bob', 40)",
                then="ALTER TABLE {t} ADD CONSTRAINT adult CHECK (age >= 18)")  # fmt: skip
CASES = [
    Case("CHECK on two columns", UPSERT, fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", source=SOURCE,
         table=replace(PLAIN, then="ALTER TABLE {t} ADD CONSTRAINT c CHECK (n < 50 OR id < 9)")),
    Case("NOT NULL in a struct, which a nullable one is not cast to", UPSERT,
         fails="DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
         table=Table("id INT, a STRUCT<x: INT NOT NULL>", "(1, named_struct('x', 1))"),
         source="SELECT 1 AS id, named_struct('x', CAST(NULL AS INT)) AS a"),
    Case("NOT NULL violated by an insert", "WHEN NOT MATCHED THEN INSERT *", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED", every_version=True),
    Case("NOT NULL violated by a missing column", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    Case("NOT NULL violated by an update", "WHEN MATCHED THEN UPDATE SET name = NULL", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED", every_version=True),
    Case("NOT NULL kept", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.name IS NOT NULL THEN INSERT *",
         table=NOT_NULL, does="update, insert"),
    Case("CHECK violated by an insert", "WHEN NOT MATCHED THEN INSERT *", table=CHECKED,
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
    Case("CHECK violated by an update", "WHEN MATCHED THEN UPDATE SET age = 3", table=CHECKED,
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
    Case("CHECK kept", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.age >= 18 THEN INSERT *", table=CHECKED,
         does="update, insert"),
    Case("CHECK is NULL, which is a violation too", "WHEN MATCHED THEN UPDATE SET age = NULL", table=CHECKED,
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
    Case("NOT NULL in a struct: kept", UPSERT, does="update, insert",
         table=Table("id INT, a STRUCT<x: INT NOT NULL>", "(1, named_struct('x', 1))"),
         source="SELECT id, named_struct('x', 5) AS a FROM VALUES (1), (2) AS s(id)"),
    Case("CHECK on a nested field", "WHEN MATCHED THEN UPDATE SET a.x = -1", source="SELECT 1 AS id",
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
         table=Table("id INT, a STRUCT<x: INT>", "(1, struct(1))",
                     then="ALTER TABLE {t} ADD CONSTRAINT c CHECK (a.x > 0)")),
    Case("CHECK with deletion vectors", "WHEN MATCHED THEN UPDATE SET age = 3", source="SELECT 1 AS id",
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
         table=replace(CHECKED, properties={"delta.enableDeletionVectors": "true"})),
    Case("CHECK and NOT NULL with change data: deletes and kept rows", "WHEN MATCHED AND s.age > 41 THEN DELETE "
         "WHEN MATCHED THEN UPDATE SET age = 20 WHEN NOT MATCHED AND s.age = 18 THEN INSERT (id, name, age) "
         "VALUES (s.id, 'x', s.age)", does="update, insert",
         table=replace(CHECKED, columns=NOT_NULL.columns, properties={"delta.enableChangeDataFeed": "true"})),
    Case("CHECK on the partition column", "WHEN MATCHED THEN UPDATE SET p = 'z'", source="SELECT 1 AS id",
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
         table=Table("id INT, p STRING", "(1, 'a'), (2, 'b')", partitioned_by="p",
                     then="ALTER TABLE {t} ADD CONSTRAINT c CHECK (p < 'c')")),
    Case("CHECK on a mapped column that was renamed", "WHEN MATCHED THEN UPDATE SET w = 0", source="SELECT 1 AS id",
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
         table=Table("id INT, v INT", "(1, 1)", properties={"delta.columnMapping.mode": "name"},
                     then=("ALTER TABLE {t} RENAME COLUMN v TO w", "ALTER TABLE {t} ADD CONSTRAINT c CHECK (w > 0)"))),
    Case("CHECK that no row of a delete is asked", "WHEN MATCHED THEN DELETE", does="delete", table=CHECKED),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_constraints(case: Case, engines: Harness) -> None:
    engines.check(case)
