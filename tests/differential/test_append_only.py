"""Append-only tables: rows may be inserted, never changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
APPEND_ONLY = Table("id INT, name STRING, age INT", "(1, 'ann', 30), (2, 'bob', 40)",
                    properties={"delta.appendOnly": "true"})  # fmt: skip

CASES = [
    Case("append-only: insert", "WHEN NOT MATCHED THEN INSERT *", table=APPEND_ONLY, does="insert"),
    Case("append-only: update", "WHEN MATCHED THEN UPDATE SET *", table=APPEND_ONLY,
         fails="DELTA_CANNOT_MODIFY_APPEND_ONLY"),
    Case("append-only: an upsert that updates nothing", UPSERT, table=APPEND_ONLY, does="insert",
         source="VALUES (70, 'gil', 17) AS s(id, name, age)"),
    Case("append-only: a delete that deletes nothing", "WHEN MATCHED THEN DELETE", table=APPEND_ONLY, does="nothing",
         source="VALUES (70, 'gil', 17) AS s(id, name, age)"),
    Case("append-only: delete", "WHEN MATCHED THEN DELETE", table=APPEND_ONLY, fails="DELTA_CANNOT_MODIFY_APPEND_ONLY"),
    Case("append-only: by-source update", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET age = 1", table=APPEND_ONLY,
         fails="DELTA_CANNOT_MODIFY_APPEND_ONLY"),
    Case("append-only: update by deletion vectors", "WHEN MATCHED THEN UPDATE SET age = 1", source="SELECT 1 AS id",
         fails="DELTA_CANNOT_MODIFY_APPEND_ONLY", table=replace(APPEND_ONLY, properties={"delta.appendOnly": "true",
         "delta.enableDeletionVectors": "true"})),
    Case("append-only: new columns", "WHEN NOT MATCHED THEN INSERT *", table=APPEND_ONLY, does="insert", evolves=True,
         source="VALUES (70, 'gil', 17, 1) AS s(id, name, age, more)"),
    Case("append-only: two source rows for one", UPSERT, table=APPEND_ONLY, source="VALUES (1, 'a', 1), (1, 'b', 2) AS "
         "s(id, name, age)", fails="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_append_only(case: Case, engines: Harness) -> None:
    engines.check(case)
