"""How the target lies on disk: many files, ranges of keys, files older than some columns."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"

COLUMNS = "id INT, p STRING, v STRING"
ROWS = ("(1, 'a', 'v1'), (2, 'a', 'v2'), (3, 'b', 'v3')", "(4, 'b', 'v4'), (5, NULL, 'v5'), (6, 'c', 'v6')")
MANY_FILES = Table(COLUMNS, "SELECT CAST(id AS INT), concat('p', id % 3), concat('v', id) FROM range(40)", files=10)
RANGES = Table(COLUMNS, ", ".join(f"({i}, 'p', 'v{i}')" for i in range(24)), files=6)
SOURCE = "VALUES (2, 'a', 'x'), (3, 'b', 'y'), (4, 'z', 'z'), (9, 'd', 'n'), (10, NULL, 'n') AS s(id, p, v)"


LAYOUTS = [
    Case("many files: a few keys", UPSERT, does="update, insert", table=MANY_FILES,
         source="VALUES (7, 'x', 'x'), (23, 'y', 'y'), (99, 'z', 'z') AS s(id, p, v)"),
    Case("many files: keys in one file", UPSERT, does="update, insert", table=RANGES,
         source="VALUES (5, 'x', 'x'), (6, 'y', 'y'), (-1, 'z', 'z') AS s(id, p, v)", every_version=True),
    Case("many files: every key", UPSERT, does="update", table=MANY_FILES,
         source="SELECT CAST(id AS INT) id, 'p' p, 'v' v FROM range(40)"),
    Case("many files: delete every second", DELETE, does="delete", table=MANY_FILES,
         source="SELECT CAST(id * 2 AS INT) id FROM range(30)"),
    Case("many files: delete whole files", DELETE, does="delete", table=RANGES,
         source="SELECT CAST(id + 4 AS INT) id FROM range(8)"),
    Case("many files: a range", DELETE, does="delete", table=RANGES, on="t.id BETWEEN s.a AND s.b",
         source="VALUES (3, 5), (20, 30) AS s(a, b)"),
    Case("many files: no key within", UPSERT, does="insert", table=RANGES,
         source="VALUES (50, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)"),
    Case("many files: the merge condition on the target alone cuts some off", DELETE, does="delete", table=RANGES,
         source="SELECT CAST(id AS INT) id FROM range(24)", on="t.id = s.id AND t.id < 9"),
    Case("a table after deletes and updates of others", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, then=("DELETE FROM {t} WHERE id = 3", "UPDATE {t} SET v = 'w' WHERE id < 3"))),
    Case("a compacted table", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, then=("OPTIMIZE {t}",))),
    Case("a table after ADD COLUMN: old files lack it", UPSERT, does="update, insert",
         table=Table(COLUMNS, ROWS, then=("ALTER TABLE {t} ADD COLUMN w INT",
         "INSERT INTO {t} VALUES (8, 'h', 'v', 8)")),
         source="VALUES (2, 'a', 'x', 2), (8, 'h', 'x', 80), (9, 'i', 'x', 90) AS s(id, p, v, w)"),
    Case("a key that old files lack", UPSERT, does="update, insert", on="t.w = s.w",
         table=Table(COLUMNS, ROWS, then=("ALTER TABLE {t} ADD COLUMN w INT",
         "INSERT INTO {t} VALUES (8, 'h', 'v', 8)")),
         source="VALUES (2, 'a', 'x', 2), (8, 'h', 'x', 8) AS s(id, p, v, w)"),
    Case("a key that old files lack, null-safe", DELETE, does="delete", on="t.w <=> s.w",
         table=Table(COLUMNS, ROWS, then=("ALTER TABLE {t} ADD COLUMN w INT",
         "INSERT INTO {t} VALUES (8, 'h', 'v', 8)")),
         source="VALUES (CAST(NULL AS INT)) AS s(w)"),
]  # fmt: skip


@pytest.mark.parametrize("case", LAYOUTS, ids=str)
def test_layouts(case: Case, engines: Harness) -> None:
    engines.check(case)
