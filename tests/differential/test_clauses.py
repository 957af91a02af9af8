"""Every clause, alone and together, with and without conditions."""

from __future__ import annotations

import pytest

from tests.differential.cases import PEOPLE, Case, Table
from tests.differential.harness import Harness

EMPTY = Table("id INT, name STRING, age INT")
NOBODY = "SELECT * FROM VALUES (1, 'x', 1) AS s(id, name, age) WHERE false"
STRANGERS = "VALUES (70, 'gil', 17), (80, 'hal', 18) AS s(id, name, age)"
EVERYBODY = "VALUES (1, 'A', 1), (2, 'B', 2), (3, 'C', 3), (4, 'D', 4) AS s(id, name, age)"

UPDATE_ALL = "WHEN MATCHED THEN UPDATE SET *"
INSERT_ALL = "WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
UPSERT = f"{UPDATE_ALL} {INSERT_ALL}"
DELETE_OR_INSERT = f"{DELETE} {INSERT_ALL}"

ONE_CLAUSE = [
    Case("update all columns", UPDATE_ALL, does="update"),
    Case("update one column", "WHEN MATCHED THEN UPDATE SET age = s.age", does="update"),
    Case("update by an expression of both", "WHEN MATCHED THEN UPDATE SET age = t.age + s.age * 2", does="update"),
    Case("update by a constant", "WHEN MATCHED THEN UPDATE SET name = 'x'", does="update"),
    Case("update to NULL", "WHEN MATCHED THEN UPDATE SET name = NULL, age = NULL", does="update"),
    Case("update the key itself", "WHEN MATCHED THEN UPDATE SET id = s.id + 100", does="update"),
    Case("update to swapped columns", "WHEN MATCHED THEN UPDATE SET id = t.age, age = t.id", does="update"),
    Case("update to the values there are", "WHEN MATCHED THEN UPDATE SET name = t.name", does="update"),
    Case("update with a qualified column", "WHEN MATCHED THEN UPDATE SET t.age = s.age", does="update"),
    Case("update if", "WHEN MATCHED AND s.age > 41 THEN UPDATE SET *", does="update"),
    Case("update if, on the target", "WHEN MATCHED AND t.age > 40 THEN UPDATE SET age = 0", does="update"),
    Case("update if, never", "WHEN MATCHED AND t.age > 1000 THEN UPDATE SET *", does="nothing"),
    Case("update if false", "WHEN MATCHED AND false THEN UPDATE SET *", does="nothing"),
    Case("update if NULL", "WHEN MATCHED AND CAST(NULL AS BOOLEAN) THEN UPDATE SET *", does="nothing"),
    Case(
        "update if an untyped NULL, or insert", f"WHEN MATCHED AND NULL THEN UPDATE SET * {INSERT_ALL}", does="insert"
    ),
    Case(
        "update if an untyped NULL",
        "WHEN MATCHED AND NULL THEN UPDATE SET *",
        fails="DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN",
    ),
    Case(
        "insert if an untyped NULL",
        "WHEN NOT MATCHED AND NULL THEN INSERT *",
        fails="DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN",
    ),
    Case("delete by source if an untyped NULL", "WHEN NOT MATCHED BY SOURCE AND NULL THEN DELETE", does="nothing"),
    Case("update if true", "WHEN MATCHED AND true THEN UPDATE SET *", does="update"),
    Case("delete", DELETE, does="delete"),
    Case("delete if, on both", "WHEN MATCHED AND s.age = t.age + 1 THEN DELETE", does="delete"),
    Case("delete if, with a NULL", "WHEN MATCHED AND t.age IS NULL THEN DELETE", does="nothing"),
    Case("delete if, never", "WHEN MATCHED AND s.name = 'zoe' THEN DELETE", does="nothing", every_version=True),
    Case("delete if false", "WHEN MATCHED AND false THEN DELETE", does="nothing"),
]

SEVERAL_CLAUSES = [
    Case("update and insert", UPSERT, does="update, insert"),
    Case("delete and insert", DELETE_OR_INSERT, does="delete, insert"),
    Case(
        "delete some, update the others, insert",
        f"WHEN MATCHED AND s.age > 41 THEN DELETE {UPSERT}",
        does="update, delete, insert",
    ),
    Case(
        "update some, delete the others",
        f"WHEN MATCHED AND s.age > 41 THEN UPDATE SET * {DELETE}",
        does="update, delete",
    ),
    Case(
        "three updates, the first that applies",
        """WHEN MATCHED AND s.id = 2 THEN UPDATE SET name = 'first'
           WHEN MATCHED AND s.id <= 3 THEN UPDATE SET name = 'second'
           WHEN MATCHED THEN UPDATE SET name = 'third'""",
        does="update",
        source=EVERYBODY,
    ),
    Case(
        "two conditional updates that leave a row alone",
        """WHEN MATCHED AND s.age = 41 THEN UPDATE SET age = 1
           WHEN MATCHED AND s.age = 99 THEN UPDATE SET age = 2""",
        does="update",
    ),
    Case(
        "two deletes with conditions",
        "WHEN MATCHED AND s.age = 41 THEN DELETE WHEN MATCHED AND t.age = 50 THEN DELETE",
        does="delete",
    ),
    Case(
        "many clauses of every kind",
        """WHEN MATCHED AND t.age IS NULL THEN DELETE
           WHEN MATCHED AND s.id = 1 THEN UPDATE SET name = concat(t.name, s.name)
           WHEN MATCHED AND s.id = 2 THEN DELETE
           WHEN MATCHED THEN UPDATE SET *
           WHEN NOT MATCHED AND s.id > 7 THEN INSERT (id) VALUES (-s.id)
           WHEN NOT MATCHED THEN INSERT *""",
        does="update, delete, insert",
        source=f"SELECT * FROM {EVERYBODY} UNION ALL SELECT * FROM VALUES (7, 'g', 7), (8, 'h', 8)",
    ),
    Case(
        "conditions all false, an insert beside",
        f"WHEN MATCHED AND t.age > 1000 THEN UPDATE SET * {INSERT_ALL}",
        does="insert",
    ),
    Case(
        "conditions all false, nothing to insert",
        f"WHEN MATCHED AND t.age > 1000 THEN DELETE {INSERT_ALL}",
        does="nothing",
        source="VALUES (2, 'BOB', 41) AS s(id, name, age)",
    ),
    Case(
        "a condition that raises also for rows that an earlier clause took",
        "WHEN MATCHED AND s.age = 41 THEN DELETE WHEN MATCHED AND 1 / (s.age - 41) > 0 THEN UPDATE SET *",
        fails="DIVIDE_BY_ZERO",
    ),
    Case(
        "a value that would raise for rows that an earlier clause took",
        "WHEN MATCHED AND s.age = 41 THEN DELETE WHEN MATCHED THEN UPDATE SET age = 100 / (s.age - 41)",
        does="update, delete",
    ),
    Case(
        "a value that raises",
        "WHEN MATCHED THEN UPDATE SET name = CAST(100 / (s.age - 41) AS STRING)",
        fails="DIVIDE_BY_ZERO",
    ),
    Case(
        "a value that raises inside the cast to the column's type, which takes it for an overflow",
        "WHEN MATCHED THEN UPDATE SET age = 100 / (s.age - 41)",
        fails="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
    ),
    Case(
        "an inserted value that would raise for matched rows",
        "WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, 100 / (s.age - 41))",
        does="insert",
    ),
]

# Each row: who is in the table, who is in the source, and what upsert, delete-or-insert, update, delete, insert do.
_MATCHING = [
    ("an empty table", EMPTY, STRANGERS, ("insert", "insert", "nothing", "nothing", "insert")),
    ("an empty source", PEOPLE, NOBODY, ("nothing",) * 5),
    ("nobody matching", PEOPLE, STRANGERS, ("insert", "insert", "nothing", "nothing", "insert")),
    ("everybody matching", PEOPLE, EVERYBODY, ("update", "delete", "update", "delete", "nothing")),
]
_STATEMENTS = {
    "update and insert": UPSERT,
    "delete and insert": DELETE_OR_INSERT,
    "update": UPDATE_ALL,
    "delete": DELETE,
    "insert": INSERT_ALL,
}
WHO_MATCHES = [
    Case(f"{who}: {what}", clauses, does=does, table=table, source=source)
    for who, table, source, all_do in _MATCHING
    for (what, clauses), does in zip(_STATEMENTS.items(), all_do, strict=True)
]


@pytest.mark.parametrize("case", ONE_CLAUSE, ids=str)
def test_one_clause(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", SEVERAL_CLAUSES, ids=str)
def test_several_clauses(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", WHO_MATCHES, ids=str)
def test_who_matches(case: Case, engines: Harness) -> None:
    engines.check(case)
