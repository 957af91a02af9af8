"""Columns with a default."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
SOME = "VALUES (2), (9) AS s(id)"
DEFAULTS = Table("id INT, v STRING DEFAULT 'none', n INT DEFAULT 7", "(1, 'a', 1), (2, 'b', 2)",
                 properties={"delta.feature.allowColumnDefaults": "supported"})  # fmt: skip

CASES = [
    Case("default: not inserted", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert", table=DEFAULTS,
         source=SOME),
    Case("default: NULL is no default", "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, NULL)", does="insert",
         table=DEFAULTS, source=SOME),
    Case("default: upsert of some", "WHEN MATCHED THEN UPDATE SET v = 'x' WHEN NOT MATCHED THEN INSERT (n, id) VALUES "
         "(0, s.id)", does="update, insert", table=DEFAULTS, source=SOME),
    Case("default: star without it", INSERT, fails="DELTA_MERGE_UNRESOLVED_EXPRESSION", table=DEFAULTS, source=SOME),
    Case("default: star without it, with evolution", UPSERT, does="update, insert", table=DEFAULTS, source=SOME,
         evolves=True),
    Case("default: DEFAULT as value", "WHEN MATCHED THEN UPDATE SET v = DEFAULT", table=DEFAULTS, source=SOME,
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("default: an expression", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert", source=SOME,
         table=Table("id INT, at DATE DEFAULT date_add(DATE'2024-01-01', 5)", "(1, DATE'2020-01-01')",
                     properties={"delta.feature.allowColumnDefaults": "supported"})),
    Case("default: a partition column", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert", source=SOME,
         table=replace(DEFAULTS, partitioned_by="v")),
    Case("default: in two of three insert clauses", "WHEN NOT MATCHED AND s.id = 8 THEN INSERT (id, v) VALUES (s.id, "
         "'x') WHEN NOT MATCHED AND s.id = 9 THEN INSERT (id, n) VALUES (s.id, 1) WHEN NOT MATCHED THEN INSERT * ",
         does="insert", table=DEFAULTS, source="VALUES (8, 'h', 8), (9, 'i', 9), (10, 'j', 10) AS s(id, v, n)"),
    Case("default: with change data and deletion vectors", "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) "
         "VALUES (s.id)", does="delete, insert", source=SOME,
         table=replace(DEFAULTS, properties={**dict(DEFAULTS.properties), "delta.enableChangeDataFeed": "true",
                                             "delta.enableDeletionVectors": "true"})),
    Case("default: changed after rows were written", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert",
         source=SOME, table=replace(DEFAULTS, then="ALTER TABLE {t} ALTER COLUMN v SET DEFAULT 'other'")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_default_columns(case: Case, engines: Harness) -> None:
    engines.check(case)
