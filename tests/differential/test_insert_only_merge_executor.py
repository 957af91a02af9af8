"""InsertOnlyMergeExecutor: source rows without a match are appended, nothing is removed."""

from __future__ import annotations

from dataclasses import replace

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
         source="VALUES (5, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)", every_version=True),
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
    Case("insert if, some columns", "WHEN NOT MATCHED AND s.age < 18 THEN INSERT (name, id) VALUES (s.name, s.id + 1)",
         does="insert"),
    Case("insert if NULL", "WHEN NOT MATCHED AND s.name > 'a' THEN INSERT *", does="insert"),
    Case("insert if, a condition that raises", "WHEN NOT MATCHED AND 1 / (s.age - 17) > 0 THEN INSERT *",
         fails="DIVIDE_BY_ZERO"),
    Case("insert if, a condition that raises for matched rows, which Spark evaluates before it joins",
         "WHEN NOT MATCHED AND 1 / (s.age - 41) < 0 THEN INSERT *", fails="DIVIDE_BY_ZERO"),
]  # fmt: skip

SEVERAL_CLAUSES = [
    Case(
        "three inserts, the first that applies",
        """WHEN NOT MATCHED AND s.id = 7 THEN INSERT (id, name) VALUES (s.id, 'first')
           WHEN NOT MATCHED AND s.id <= 8 THEN INSERT (id, age) VALUES (s.id, 2)
           WHEN NOT MATCHED THEN INSERT *""",
        does="insert",
        source="VALUES (7, 'a', 1), (8, 'b', 2), (9, 'c', 3) AS s(id, name, age)",
        every_version=True,
    ),
    Case(
        "two inserts that leave a row out",
        """WHEN NOT MATCHED AND s.id = 7 THEN INSERT (id) VALUES (s.id)
           WHEN NOT MATCHED AND s.id = 9 THEN INSERT *""",
        does="insert",
    ),
    Case("several inserts: none applies, every row is dropped", "WHEN NOT MATCHED AND s.age > 100 THEN INSERT * "
         "WHEN NOT MATCHED AND s.age > 200 THEN INSERT (id) VALUES (s.id)", does="nothing"),
    Case("several inserts: conditions that are NULL drop the row", "WHEN NOT MATCHED AND s.name = 'gil' THEN INSERT * "
         "WHEN NOT MATCHED AND s.name = 'x' THEN INSERT (id) VALUES (s.id)", does="insert"),
    Case("several inserts: values of different types in one column", "WHEN NOT MATCHED AND s.id = 7 THEN INSERT (id, "
         "age) VALUES (s.id, 5L) WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, '6')", does="insert"),
    Case("several inserts: a later condition raises for a row that an earlier clause takes",
         "WHEN NOT MATCHED AND s.age = 17 THEN INSERT * WHEN NOT MATCHED AND 1 / (s.age - 17) > 0 THEN INSERT *",
         fails="DIVIDE_BY_ZERO"),
    Case("several inserts: a value raises only where its clause applies", "WHEN NOT MATCHED AND s.age = 17 THEN INSERT "
         "* WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, 10 / (s.age - 17))", does="insert"),
]  # fmt: skip

INSERTS, CLASSIC = "InsertOnlyMergeExecutor", "ClassicMergeExecutor"
ANTI_JOIN = [
    Case("left anti join: a target-only part of the condition prunes files", INSERT, does="insert", table=RANGES,
         on="t.id = s.id AND t.id < 4", source="VALUES (2, 'x', 'x'), (9, 'y', 'y') AS s(id, p, v)", executor=INSERTS),
    Case("left anti join: a part of the condition on the source alone", INSERT, does="insert", table=RANGES,
         on="t.id = s.id AND s.v = 'x'", source="VALUES (2, 'x', 'x'), (9, 'y', 'y') AS s(id, p, v)", executor=INSERTS),
    Case("left anti join: no equality", INSERT, does="insert", table=RANGES, on="t.id > s.id", executor=INSERTS,
         source="VALUES (2, 'x', 'x'), (99, 'y', 'y') AS s(id, p, v)"),
    Case("left anti join: a NULL result of the condition is no match", INSERT, does="insert", on="t.age > s.age - 20",
         source="VALUES (9, 'x', NULL), (8, 'y', 1) AS s(id, name, age)", executor=INSERTS),
    Case("left anti join: a source larger than a broadcast may be", INSERT, does="insert", table=RANGES,
         source="SELECT CAST(id AS INT) AS id, 'p' AS p, 'v' AS v FROM range(10, 40)", executor=INSERTS,
         confs={"spark.sql.autoBroadcastJoinThreshold": "-1"}),
    Case("left anti join: every source row matches", INSERT, does="nothing", table=RANGES, executor=INSERTS,
         source="SELECT CAST(id AS INT) AS id, 'p' AS p, 'v' AS v FROM range(24)"),
    Case("left anti join: rows behind deletion vectors match nothing", INSERT, does="insert", executor=INSERTS,
         table=replace(RANGES, properties={"delta.enableDeletionVectors": "true"}, then="DELETE FROM {t} WHERE id = 5"),
         source="VALUES (5, 'x', 'x'), (6, 'y', 'y') AS s(id, p, v)"),
    Case("left anti join: values are evaluated for inserted rows only",
         "WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, 10 / (s.id - 2))", does="insert", executor=INSERTS),
    Case("left anti join: with change data, none is written beside the inserts", INSERT, does="insert",
         table=replace(RANGES, properties={"delta.enableChangeDataFeed": "true"}), executor=INSERTS,
         source="VALUES (5, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)"),
]  # fmt: skip

STRANGERS = "VALUES (70, 'gil', 17), (80, 'hal', NULL) AS s(id, name, age)"
NOT_FILTERED = [
    Case("no insert clauses: nothing touched, an early stop", "WHEN MATCHED THEN DELETE", does="nothing",
         source=STRANGERS, executor=CLASSIC),
    Case("no insert clauses, by-source: nothing touched, an early stop",
         "WHEN NOT MATCHED BY SOURCE AND t.id = 99 THEN DELETE", does="nothing", source=STRANGERS, executor=CLASSIC),
    Case("the classic path found nothing: one insert clause", f"WHEN MATCHED THEN UPDATE SET * {INSERT}",
         does="insert", source=STRANGERS, executor=CLASSIC),
    Case("the classic path found nothing: several insert clauses", "WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND "
         "s.age > 1 THEN INSERT * WHEN NOT MATCHED AND s.id = 80 THEN INSERT (id) VALUES (-s.id)", does="insert",
         source=STRANGERS, executor=CLASSIC),
    Case("the classic path found nothing: duplicates are all inserted", f"WHEN MATCHED THEN UPDATE SET * {INSERT}",
         does="insert", source="VALUES (70, 'gil', 17), (70, 'gil', 17) AS s(id, name, age)", executor=CLASSIC),
    Case("no touched file, but matches whose conditions are false",
         f"WHEN MATCHED AND s.age > 100 THEN DELETE {INSERT}", does="insert", executor=CLASSIC),
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


@pytest.mark.parametrize("case", ANTI_JOIN, ids=str)
def test_anti_join_with_the_pruned_target(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", NOT_FILTERED, ids=str)
def test_the_source_is_not_filtered(case: Case, engines: Harness) -> None:
    engines.check(case)
