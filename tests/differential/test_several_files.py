"""Merges over several files, whose rows are counted by task and not by file."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
AMBIGUOUS = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
#: Of each kind of table the rows' numbers come from elsewhere.
KINDS = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
}


def _table(properties: dict[str, str]) -> Table:
    """Three files of four rows: the rows 0, 4 and 8 are the first ones of theirs."""
    rows = ", ".join(f"({number}, {number})" for number in range(12))
    return Table("id INT, v INT", rows, files=3, properties=properties)


CASES = [
    Case(f"{kind}: {name}", clauses, does=does, fails=fails, source=f"VALUES {source} AS s(id, v)",
         table=_table(properties))
    for kind, properties in KINDS.items()
    for name, clauses, does, fails, source in [
        ("rows of one index in all files", UPSERT, "update, insert", "", "(0, -1), (4, -1), (8, -1), (99, -1)"),
        ("in two of three files", UPSERT, "update", "", "(4, -1), (8, -1)"),
        ("taken by no clause in one file", "WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v", "update", "",
         "(0, 1), (4, -1), (8, 1)"),
        ("two source rows for a row of the last file", UPSERT, "", AMBIGUOUS, "(0, 1), (8, 1), (8, 2)"),
        ("one row of each file deleted twice", DELETE, "delete", "", "(0, 1), (0, 2), (4, 1), (4, 2), (8, 1), (8, 2)"),
        ("what the source lacks", "WHEN NOT MATCHED BY SOURCE AND t.v % 4 = 0 THEN DELETE", "delete", "", "(4, 1)"),
    ]
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_of_several_files(case: Case, engines: Harness) -> None:
    engines.check(case)
