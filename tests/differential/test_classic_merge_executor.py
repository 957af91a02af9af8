"""ClassicMergeExecutor: find the touched files, then rewrite them or mark their rows."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE = "WHEN MATCHED THEN UPDATE SET *"
DELETE = "WHEN MATCHED THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
AMBIGUOUS = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
DOUBLE = "VALUES (2, 'x', 1), (2, 'y', 2), (7, 'z', 3), (7, 'z', 3) AS s(id, name, age)"
DOUBLE_NEW = "VALUES (7, 'x', 1), (7, 'y', 2), (2, 'z', 3) AS s(id, name, age)"

MULTIPLE_MATCHES = [
    Case("two source rows update one target row", UPDATE, fails=AMBIGUOUS, source=DOUBLE),
    Case("two equal source rows update one target row", UPDATE, fails=AMBIGUOUS,
         source="VALUES (2, 'x', 1), (2, 'x', 1) AS s(id, name, age)"),
    Case("two source rows, an upsert", UPSERT, fails=AMBIGUOUS, source=DOUBLE),
    Case("two source rows, a clause's condition takes one", "WHEN MATCHED AND s.age = 1 THEN UPDATE SET *",
         fails=AMBIGUOUS, source=DOUBLE),
    Case("two source rows, a clause's condition takes none", "WHEN MATCHED AND s.age = 99 THEN UPDATE SET *",
         fails=AMBIGUOUS, source=DOUBLE),
    Case("two source rows, a condition takes none, an insert",
         f"WHEN MATCHED AND s.age = 99 THEN UPDATE SET * {INSERT}",
         fails=AMBIGUOUS, source=DOUBLE),
    Case("two source rows, the merge condition takes one", UPDATE, does="update", source=DOUBLE,
         on="t.id = s.id AND s.age = 1"),
    Case("two source rows delete one target row", DELETE, does="delete", source=DOUBLE),
    Case("two source rows delete, others insert", f"{DELETE} {INSERT}", does="delete, insert", source=DOUBLE),
    Case("many source rows delete many", DELETE, does="delete", on="true"),
    Case("two source rows delete if", "WHEN MATCHED AND s.age = 1 THEN DELETE", fails=AMBIGUOUS, source=DOUBLE),
    Case("two source rows delete if true", "WHEN MATCHED AND true THEN DELETE", fails=AMBIGUOUS, source=DOUBLE),
    Case("two source rows, delete or update", f"WHEN MATCHED AND s.age = 1 THEN DELETE {UPDATE}", fails=AMBIGUOUS,
         source=DOUBLE),
    Case("two source rows, delete or delete", f"WHEN MATCHED AND s.age = 1 THEN DELETE {DELETE}", fails=AMBIGUOUS,
         source=DOUBLE),
    Case("two source rows delete one, conditional insert",
         f"{DELETE} WHEN NOT MATCHED AND s.age > 5 THEN INSERT *", does="delete", source=DOUBLE),
    Case("duplicates among the inserts of an upsert", UPSERT, does="update, insert", source=DOUBLE_NEW),
    Case("one source row matches many", "WHEN MATCHED THEN UPDATE SET age = s.age", does="update",
         on="t.id > s.id", source="VALUES (1, 'x', 1) AS s(id, name, age)"),
    Case("many to many, one pair of them twice", "WHEN MATCHED THEN UPDATE SET age = s.age", fails=AMBIGUOUS,
         on="t.id >= s.id", source="VALUES (1, 'x', 1), (3, 'y', 2) AS s(id, name, age)"),
    Case("equal target rows", UPDATE, does="update",
         table=Table("id INT, name STRING, age INT", ("(2, 'b', 1), (2, 'b', 1)", "(2, 'b', 1), (3, 'c', 1)"))),
    Case("equal target rows, deleted by two source rows", DELETE, does="delete", source=DOUBLE,
         table=Table("id INT, name STRING, age INT", ("(2, 'b', 1), (2, 'b', 1)", "(2, 'b', 1), (3, 'c', 1)"))),
]  # fmt: skip


@pytest.mark.parametrize("case", MULTIPLE_MATCHES, ids=str)
def test_multiple_matches(case: Case, engines: Harness) -> None:
    engines.check(case)
