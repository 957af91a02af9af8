"""InsertOnlyMergeExecutor: source rows without a match are appended, nothing is removed."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

INSERT = "WHEN NOT MATCHED THEN INSERT *"
DOUBLE = "VALUES (2, 'x', 1), (2, 'y', 2), (7, 'z', 3), (7, 'z', 3) AS s(id, name, age)"
DOUBLE_NEW = "VALUES (7, 'x', 1), (7, 'y', 2), (2, 'z', 3) AS s(id, name, age)"

WITH_NULLS = Table(
    "id INT, k STRING, n INT",
    rows=("(1, 'a', 1), (2, NULL, 2), (NULL, 'c', 3)", "(NULL, NULL, 4), (5, 'e', 5), (NULL, NULL, 6)"),
)
NULL_SOURCE = "VALUES (1, 'a', 10), (NULL, 'c', 30), (NULL, NULL, 40), (9, NULL, 90) AS s(id, k, n)"
ONE_NULL = "VALUES (CAST(NULL AS INT), 'z', 40) AS s(id, k, n)"
COLUMNS = "id INT, p STRING, v STRING"
RANGES = Table(COLUMNS, ", ".join(f"({i}, 'p', 'v{i}')" for i in range(24)), files=6)
APPENDED = [
    Case("duplicates in an insert-only source are all inserted", INSERT, does="insert", source=DOUBLE_NEW),
    Case("duplicates in an insert-only source that match", INSERT, does="insert", source=DOUBLE),
    Case("insert only on a condition that is false", INSERT, does="insert", on="1 = 2"),
    Case("insert only on a condition that is true", INSERT, does="nothing", on="true"),
    Case("insert only on the target alone", INSERT, does="nothing", on="t.age > 40"),
    Case("insert only on the target alone, met by nobody", INSERT, does="insert", on="t.age > 400"),
    Case("insert only on the source alone", INSERT, does="insert", on="s.age > 20"),
    Case("insert only, NULL keys", INSERT, does="insert", table=WITH_NULLS, source=NULL_SOURCE),
    Case("insert only, null-safe keys", INSERT, does="insert", table=WITH_NULLS, source=NULL_SOURCE,
         on="t.id <=> s.id"),
    Case("insert only, all keys NULL", INSERT, does="insert", table=WITH_NULLS, source=ONE_NULL),
    Case("many files: insert only", INSERT, does="insert", table=RANGES,
         source="VALUES (5, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)"),
    Case("many files: insert only, keys outside of every file", INSERT, does="insert", table=RANGES,
         source="VALUES (50, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)"),
]  # fmt: skip

ONE_CLAUSE = [
    Case("insert all columns", INSERT, does="insert"),
    Case("insert some columns", "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)", does="insert"),
    Case("insert constants", "WHEN NOT MATCHED THEN INSERT (id, name, age) VALUES (0, 'x', NULL)", does="insert"),
    Case("insert if", "WHEN NOT MATCHED AND s.name IS NOT NULL THEN INSERT *", does="insert"),
    Case("insert if, never", "WHEN NOT MATCHED AND s.age > 1000 THEN INSERT *", does="nothing"),
    Case("insert if false", "WHEN NOT MATCHED AND false THEN INSERT *", does="nothing"),
    Case("insert, other order", "WHEN NOT MATCHED THEN INSERT (age, id) VALUES (s.age + 1, s.id)", does="insert"),
]  # fmt: skip

SEVERAL_CLAUSES = [
    Case(
        "three inserts, the first that applies",
        """WHEN NOT MATCHED AND s.id = 7 THEN INSERT (id, name) VALUES (s.id, 'first')
           WHEN NOT MATCHED AND s.id <= 8 THEN INSERT (id, age) VALUES (s.id, 2)
           WHEN NOT MATCHED THEN INSERT *""",
        does="insert",
        source="VALUES (7, 'a', 1), (8, 'b', 2), (9, 'c', 3) AS s(id, name, age)",
    ),
    Case(
        "two inserts that leave a row out",
        """WHEN NOT MATCHED AND s.id = 7 THEN INSERT (id) VALUES (s.id)
           WHEN NOT MATCHED AND s.id = 9 THEN INSERT *""",
        does="insert",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", APPENDED, ids=str)
def test_rows_that_match_nothing_are_appended(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", ONE_CLAUSE, ids=str)
def test_one_clause(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", SEVERAL_CLAUSES, ids=str)
def test_several_clauses(case: Case, engines: Harness) -> None:
    engines.check(case)
