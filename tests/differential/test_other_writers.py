"""Merges into tables by writers that nothing else here names: see ``tests/foreign/others/README.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.cases import ANYTHING, Case, Table
from tests.differential.harness import Harness
from tests.foreign.corpus import other_tables, unpack

CLAUSES = (
    "WHEN MATCHED AND s.note <> t.note THEN UPDATE SET note = s.note "
    "WHEN NOT MATCHED THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE AND t.id % 3 = 0 THEN UPDATE SET note = 'gone'"
)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", other_tables())
def test_upserts_by_some_columns(name: str, engines: Harness, tmp_path: Path) -> None:
    """By two of the table's own rows, with another note, and by one that is new; each table by other columns."""
    if engines.recording:
        pytest.skip("compared with what the built-in does, not recorded")
    unpack(name, tmp_path)
    types = dict(engines.spark.read.format("delta").load(str(tmp_path)).dtypes)
    keys = [column for column in types if column != "note"]
    first = other_tables().index(name) % max(1, len(keys) // 3)
    for number, key in enumerate(keys[first :: max(1, len(keys) // 3)]):
        names = [*(column for column in types if column != "note"), "note"]
        others = ", ".join(f"`{column}`" for column in names[:-1])
        held = (
            f"SELECT {others}, 'new' AS note FROM delta.`{tmp_path}` WHERE id IN ({1 + number % 10}, {2 + number % 10})"
        )
        new = ", ".join(
            f"CAST({'77' if column == 'id' else 'NULL'} AS {types[column]}) AS `{column}`" for column in names
        )
        equal = "<=>" if number % 3 == 2 else "="
        case = Case(
            f"{name} by {key}",
            CLAUSES,
            does=ANYTHING,
            table=Table(archive=name),
            source=f"{held} UNION ALL SELECT {new}",
            on=f"t.`{key}` {equal} s.`{key}`",
        )
        engines.check_anything(case)
