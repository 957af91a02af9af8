"""Properties of the table that change nothing in its rows: isolation, checkpoints, file names, comments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"


CASES = [
    Case("random file prefixes", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.randomizeFilePrefixes": "true"})),
    Case("serializable isolation", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.isolationLevel": "Serializable"})),
    Case("v2 checkpoints", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.checkpointPolicy": "v2"})),
    Case("comments and column metadata stay", UPSERT, does="update, insert", source=SOURCE,
         table=Table("id INT COMMENT 'the key', v STRING COMMENT 'ü', n INT", PLAIN.rows)),
    Case("checkpointed", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.checkpointInterval": "1"})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_table_properties(case: Case, engines: Harness) -> None:
    engines.check(case)
