"""Clustered tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"

CASES = [
    Case("clustered", UPSERT, does="update, insert", table=replace(PLAIN, cluster_by="id"), source=SOURCE),
    Case("clustered: delete", DELETE, does="delete", table=replace(PLAIN, cluster_by="id, v"), source=SOURCE),
    Case("clustered, optimised before", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, cluster_by="id", then="OPTIMIZE {t}")),
    Case("clustered: insert only", "WHEN NOT MATCHED THEN INSERT *", does="insert", source=SOURCE,
         table=replace(PLAIN, cluster_by="id")),
    Case("clustered: with deletion vectors and by-source clauses", f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE",
         does="update, insert, delete", source=SOURCE,
         table=replace(PLAIN, cluster_by="v", properties={"delta.enableDeletionVectors": "true"})),
    Case("clustered: by a mapped column that was renamed", UPSERT, does="update, insert",
         table=replace(PLAIN, cluster_by="v", properties={"delta.columnMapping.mode": "name"},
                       then="ALTER TABLE {t} RENAME COLUMN v TO w"),
         source="VALUES (2, 'B', 20), (9, 'I', 90) AS s(id, w, n)"),
    Case("clustered: no more", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, cluster_by="id", then="ALTER TABLE {t} CLUSTER BY NONE")),
    Case("clustered: a new column", UPSERT, does="update, insert", evolves=True, table=replace(PLAIN, cluster_by="id"),
         source="VALUES (2, 'B', 20, 1), (9, 'I', 90, 2) AS s(id, v, n, more)"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_clustered_tables(case: Case, engines: Harness) -> None:
    engines.check(case)
