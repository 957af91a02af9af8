"""Generated columns: computed when they are not given, checked when they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
SOME = "VALUES (2), (9) AS s(id)"
GENERATED = Table("id INT, twice INT GENERATED ALWAYS AS (id * 2)", "INSERT INTO {t} (id) VALUES (1), (2), (3)")
BY_YEAR = Table(
    "id INT, at TIMESTAMP, year INT GENERATED ALWAYS AS (YEAR(at))",
    "INSERT INTO {t} (id, at) VALUES (1, TIMESTAMP'2023-05-01'), (2, TIMESTAMP'2024-05-01')",
    partitioned_by="year",
)

CASES = [
    Case("generated: not inserted, computed", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert",
         table=GENERATED, source=SOME, every_version=True, since=(4, 4)),
    Case("generated: computed anew by an update of its source", "WHEN MATCHED THEN UPDATE SET id = s.id + 10",
         does="update", table=GENERATED, source=SOME, every_version=True, since=(4, 4)),
    Case("generated: given, and right", UPSERT, does="update, insert", table=GENERATED,
         source="VALUES (2, 4), (9, 18) AS s(id, twice)"),
    Case("generated: given, and wrong", UPSERT, fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", table=GENERATED,
         source="VALUES (2, 4), (9, 5) AS s(id, twice)"),
    Case("generated: star without it", UPSERT, fails="DELTA_MERGE_UNRESOLVED_EXPRESSION", table=GENERATED, source=SOME),
    Case("generated: star without it, with evolution", UPSERT, does="update, insert", table=GENERATED, source=SOME,
         evolves=True),
    Case("generated partition: pruned by its source", "WHEN MATCHED THEN UPDATE SET id = -t.id "
         "WHEN NOT MATCHED THEN INSERT (id, at) VALUES (s.id, s.at)", does="update, insert", table=BY_YEAR,
         source="VALUES (2, TIMESTAMP'2024-05-01'), (3, TIMESTAMP'2025-01-01') AS s(id, at)",
         on="t.id = s.id AND t.at = s.at"),
    Case("generated partition: rows move", "WHEN MATCHED THEN UPDATE SET at = TIMESTAMP'2030-01-01'", does="update",
         table=BY_YEAR, source=SOME),
    Case("generated: with deletion vectors", "WHEN MATCHED THEN UPDATE SET id = s.id + 10 WHEN NOT MATCHED THEN INSERT "
         "(id) VALUES (s.id)", does="update, insert", source=SOME,
         table=replace(GENERATED, properties={"delta.enableDeletionVectors": "true"})),
    Case("generated: by-source update of its source", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET id = t.id + 100",
         does="update", table=GENERATED, source=SOME),
    Case("generated: set by hand, and wrong", "WHEN MATCHED THEN UPDATE SET twice = 5", table=GENERATED, source=SOME,
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
    Case("generated: set by hand, and right", "WHEN MATCHED THEN UPDATE SET twice = 4", does="update", table=GENERATED,
         source=SOME),
    Case("generated: NULL of NULL", "WHEN NOT MATCHED THEN INSERT (id) VALUES (NULL)", does="insert", table=GENERATED,
         source=SOME),
    Case("generated: two, one in each of two insert clauses", "WHEN NOT MATCHED AND s.id > 50 THEN INSERT (id, twice) "
         "VALUES (s.id, s.id * 2) WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert", table=GENERATED,
         source="VALUES (8), (9), (99) AS s(id)"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_generated_columns(case: Case, engines: Harness) -> None:
    engines.check(case)
