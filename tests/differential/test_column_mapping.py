"""Column mapping by name and by id: columns renamed, dropped, with odd names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"
NAME_MAPPED = replace(PLAIN, properties={"delta.columnMapping.mode": "name"})
ID_MAPPED = replace(PLAIN, properties={"delta.columnMapping.mode": "id"})
RENAMED = replace(NAME_MAPPED, then=("ALTER TABLE {t} RENAME COLUMN v TO w", "ALTER TABLE {t} RENAME COLUMN n TO v"))
DROPPED = replace(NAME_MAPPED, then=("ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v STRING"))

CASES = [
    Case("mapped by name", UPSERT, does="update, insert", table=NAME_MAPPED, source=SOURCE, every_version=True),
    Case("mapped by id", UPSERT, does="update, insert", table=ID_MAPPED, source=SOURCE),
    Case("mapped by name, partitioned", UPSERT, does="update, insert", source=SOURCE,
         table=replace(NAME_MAPPED, partitioned_by="v")),
    Case("mapped by name, partitioned, pruned", UPSERT, does="update, insert", source=SOURCE,
         table=replace(NAME_MAPPED, partitioned_by="v"), on="t.id = s.id AND t.v = 'b'"),
    Case("mapped: names that were other columns", UPSERT, does="update, insert", table=RENAMED,
         source="VALUES (2, 'B', 20), (9, 'I', 90) AS s(id, w, v)", on="t.id = s.id AND t.v < 10"),
    Case("mapped: a column dropped and added", UPSERT, does="update, insert", table=DROPPED, source=SOURCE),
    Case("mapped: insert only", INSERT, does="insert", table=RENAMED,
         source="VALUES (2, 'B', 2), (9, 'I', 90) AS s(id, w, v)", on="t.v = s.v"),
    Case("mapped: with change data", UPSERT, does="update, insert", source=SOURCE,
         table=replace(NAME_MAPPED, properties={"delta.columnMapping.mode": "name",
         "delta.enableChangeDataFeed": "true"})),
    Case("mapped: nested fields", "WHEN MATCHED THEN UPDATE SET a.`x y` = 5 WHEN NOT MATCHED THEN INSERT *",
         does="update, insert", table=Table("id INT, a STRUCT<`x y`: INT, z: INT>", "(1, struct(1, 2))",
         properties={"delta.columnMapping.mode": "name"}),
         source="SELECT id, named_struct('x y', id, 'z', id) a FROM VALUES (1), (2) AS s(id)"),
    Case("mapped by id, renamed, with deletion vectors", UPSERT, does="update, insert",
         table=replace(RENAMED, properties={"delta.columnMapping.mode": "id", "delta.enableDeletionVectors": "true"}),
         source="VALUES (2, 'B', 20), (9, 'I', 90) AS s(id, w, v)"),
    Case("mapped by id, a new column", UPSERT, does="update, insert", table=ID_MAPPED, evolves=True,
         source="VALUES (2, 'B', 20, 1), (9, 'I', 90, 2) AS s(id, v, n, more)"),
    Case("mapped later, files of before", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, then=("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
                                    "INSERT INTO {t} VALUES (7, 'g', 7)"))),
    Case("mapped, partition column renamed", UPSERT, does="update, insert",
         table=replace(NAME_MAPPED, partitioned_by="v", then="ALTER TABLE {t} RENAME COLUMN v TO w"),
         source="VALUES (2, 'B', 20), (9, NULL, 90) AS s(id, w, n)"),
    Case("mapped, a nested field renamed and set", "WHEN MATCHED THEN UPDATE SET a.y = 5", does="update",
         table=Table("id INT, a STRUCT<x: INT>", "(1, struct(1))", properties={"delta.columnMapping.mode": "name"},
                     then="ALTER TABLE {t} RENAME COLUMN a.x TO y"), source="SELECT 1 AS id"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_column_mapping(case: Case, engines: Harness) -> None:
    engines.check(case)
