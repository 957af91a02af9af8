"""In-commit timestamps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"

CASES = [
    Case("in-commit timestamps", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.enableInCommitTimestamps": "true"})),
    Case("in-commit timestamps: insert only", "WHEN NOT MATCHED THEN INSERT *", does="insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.enableInCommitTimestamps": "true"})),
    Case("in-commit timestamps: switched on later", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, then="ALTER TABLE {t} SET TBLPROPERTIES (delta.enableInCommitTimestamps = true)")),
    Case("in-commit timestamps: with change data", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.enableInCommitTimestamps": "true",
                                          "delta.enableChangeDataFeed": "true"})),
    Case("in-commit timestamps: nothing to do", "WHEN MATCHED AND false THEN DELETE", does="nothing", source=SOURCE,
         table=replace(PLAIN, properties={"delta.enableInCommitTimestamps": "true"})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_commit_timestamps(case: Case, engines: Harness) -> None:
    engines.check(case)
