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
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    Case("NOT NULL violated by a missing column", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    Case("NOT NULL violated by an update", "WHEN MATCHED THEN UPDATE SET name = NULL", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
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
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_constraints(case: Case, engines: Harness) -> None:
    engines.check(case)
