"""Which rows match: conditions of every form, NULL keys, and source rows that meet in one target row."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE = "WHEN MATCHED THEN UPDATE SET *"
DELETE = "WHEN MATCHED THEN DELETE"

WITH_NULLS = Table(
    "id INT, k STRING, n INT",
    rows=("(1, 'a', 1), (2, NULL, 2), (NULL, 'c', 3)", "(NULL, NULL, 4), (5, 'e', 5), (NULL, NULL, 6)"),
)
NULL_SOURCE = "VALUES (1, 'a', 10), (NULL, 'c', 30), (NULL, NULL, 40), (9, NULL, 90) AS s(id, k, n)"
ONE_NULL = "VALUES (CAST(NULL AS INT), 'z', 40) AS s(id, k, n)"

DATES = Table(
    "id INT, day DATE, n INT",
    rows=("(1, DATE'2024-01-01', 1), (2, DATE'2024-01-02', 2)", "(3, DATE'2024-02-01', 3), (4, DATE'2024-02-02', 4)"),
    partitioned_by="day",
)

CONDITIONS = [
    Case("two keys", UPSERT, does="update, insert", on="t.id = s.id AND t.age = s.age - 1"),
    Case("two keys by OR", DELETE, does="delete", on="t.id = s.id OR t.age = s.age + 9"),
    Case("null-safe equality", UPSERT, does="update, insert", on="t.id <=> s.id"),
    Case("key expressions on both sides", UPSERT, does="update, insert", on="t.id * 2 = s.id - 1"),
    Case("a condition on the target beside the key", UPSERT, does="update, insert", on="t.id = s.id AND t.age > 40"),
    Case("a condition on the source beside the key", UPSERT, does="update, insert", on="t.id = s.id AND s.age > 41"),
    Case("a condition on both beside the key", UPSERT, does="update, insert", on="t.id = s.id AND t.name > s.name"),
    Case("a range join", DELETE, does="delete", on="t.age BETWEEN s.age - 1 AND s.age"),
    Case("an inequality that few rows meet", DELETE, does="delete", on="t.id > s.id + 1"),
    Case("a condition that is always true", DELETE, does="delete", on="true"),
    Case("a condition that is always false", UPSERT, does="insert", on="false"),
    Case("a condition that is NULL", UPSERT, does="insert", on="CAST(NULL AS BOOLEAN)"),
    Case("a condition on the target only", DELETE, does="delete", on="t.age > 40", source="VALUES (1) AS s(id)"),
    Case("a condition on the source only", DELETE, does="delete", on="s.id = 8"),
    Case("a condition on constants", UPSERT, does="insert", on="1 = 2"),
    Case("unqualified columns", "", does="update, insert",
         source="VALUES (2), (9) AS s(key)",
         merge="MERGE INTO {t} USING {s} ON id = key WHEN MATCHED THEN UPDATE SET id = key + 10 "
               "WHEN NOT MATCHED THEN INSERT (id) VALUES (key)"),
    Case("LIKE", DELETE, does="delete", on="s.pattern IS NOT NULL AND t.name LIKE s.pattern",
         source="VALUES ('%n%'), (NULL) AS s(pattern)"),
    Case("IN with a list", DELETE, does="delete", on="t.id = s.id AND t.name IN ('bob', 'dan')"),
    Case("NOT", UPDATE, does="update", on="NOT (t.id <> s.id)"),
    Case("a function of the key", UPDATE, does="update", on="upper(t.name) = s.name"),
    Case("a CASE in the condition", DELETE, does="delete", on="CASE WHEN t.id > 2 THEN t.id = s.id ELSE false END"),
    Case("other case of names", "WHEN MATCHED THEN UPDATE SET NAME = S.Name", does="update", on="T.ID = s.Id"),
    Case("a condition whose cast raises", DELETE, fails="CAST_INVALID_INPUT", on="t.id = CAST(s.name AS INT)"),
    Case("a condition that divides by zero", DELETE, fails="DIVIDE_BY_ZERO", on="t.id = s.id AND 1 / (t.age - 40) > 0"),
    Case("a partition and a key", UPSERT, does="update, insert", table=DATES, on="t.day = s.day AND t.id = s.id",
         source="VALUES (2, DATE'2024-01-02', 20), (5, DATE'2024-03-01', 50) AS s(id, day, n)"),
    Case("a partition by a constant", UPSERT, does="update, insert", table=DATES,
         on="t.day = DATE'2024-01-02' AND t.id = s.id",
         source="VALUES (2, DATE'2024-01-02', 20), (3, DATE'2024-02-01', 30) AS s(id, day, n)", every_version=True),
    Case("a function of the partition", UPSERT, does="update, insert", table=DATES,
         on="month(t.day) = 1 AND t.id = s.id",
         source="VALUES (2, DATE'2024-01-02', 20), (3, DATE'2024-02-01', 30) AS s(id, day, n)"),
]  # fmt: skip

NULL_KEYS = [
    Case("NULL keys match nobody", UPSERT, does="update, insert", table=WITH_NULLS, source=NULL_SOURCE,
         every_version=True),
    Case("NULL keys match by <=>", DELETE, does="delete", table=WITH_NULLS, source=ONE_NULL, on="t.id <=> s.id"),
    Case("NULL keys meet several by <=>", UPDATE, does="update", table=WITH_NULLS, source=ONE_NULL, on="t.id <=> s.id"),
    Case("a NULL in one of two keys", UPSERT, does="update, insert", table=WITH_NULLS, source=NULL_SOURCE,
         on="t.id = s.id AND t.k = s.k"),
    Case("a NULL in one of two null-safe keys", UPSERT, does="update, insert", table=WITH_NULLS, source=NULL_SOURCE,
         on="t.id <=> s.id AND t.k <=> s.k"),
    Case("delete where the target's key is NULL", DELETE, does="delete", table=WITH_NULLS, source=ONE_NULL,
         on="t.id IS NULL"),
    Case("one column of NULLs only", UPSERT, does="insert", table=Table("id INT, k STRING, n INT", "(NULL, 'a', 1)"),
         source=NULL_SOURCE),
    Case("one column of NULLs only, null-safe", DELETE, does="delete", on="t.id <=> s.id",
         table=Table("id INT, k STRING, n INT", ("(NULL, 'a', 1)", "(1, 'b', 1)")), source=ONE_NULL),
    Case("coalesced keys", UPSERT, does="update, insert", table=WITH_NULLS,
         source="VALUES (5, 'a', 10), (NULL, 'c', 30) AS s(id, k, n)",
         on="coalesce(t.id, -1) = coalesce(s.id, -1) AND t.k <=> s.k"),
]  # fmt: skip


@pytest.mark.parametrize("case", CONDITIONS, ids=str)
def test_conditions(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", NULL_KEYS, ids=str)
def test_null_keys(case: Case, engines: Harness) -> None:
    engines.check(case)
