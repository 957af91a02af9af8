"""Columns with a default."""

from __future__ import annotations

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
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_default_columns(case: Case, engines: Harness) -> None:
    engines.check(case)
