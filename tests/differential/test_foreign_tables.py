"""Merges into tables that other writers made, on each of their columns; :mod:`tests.foreign` has the tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness
from tests.foreign.corpus import Column, ForeignTable, foreign_tables
from tests.foreign.rows import literal

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
KEYS_OF_A_TABLE = 4
#: Types whose bounds leave no file out: they come after all others.
NEVER_PRUNE = ("DOUBLE", "FLOAT", "BOOLEAN", "BINARY")
#: Name, clauses, and what they do to keys that are there and to new ones. The upsert, half of the cases, doubles a row
#: whose file is left out, the others leave it as it was, or take it for one without a match.
MERGES = (
    *[("upsert", UPSERT, "update, insert")] * 5,
    ("update", "WHEN MATCHED THEN UPDATE SET {v} = s.{v}", "update"),
    ("update *", "WHEN MATCHED THEN UPDATE SET *", "update"),
    ("insert", "WHEN NOT MATCHED THEN INSERT *", "insert"),
    ("delete", "WHEN MATCHED THEN DELETE", "delete"),
    ("by source", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE", "update, delete"),
)
#: Merges that the built-in refuses, though it can merge into the table otherwise, and how.
REFUSED = {
    "by-hand-odd-names, upsert": "INVALID_ATTRIBUTE_NAME_SYNTAX",  # a star with a backtick in a column's name
    "deltalake-1.6.6-partitioned-raw, insert": "TASK_WRITE_FAILED",  # a folder cannot be named by any bytes
}


def source(table: ForeignTable, key: Column, *, held: list[int]) -> str:
    """Rows with keys that the table has, at these places of the twelve, then with new ones and NULL."""
    keys = [*(key.held[row] for row in held), *key.new, literal(None, key.type)]
    rows = (f"({', '.join(_value(c, key, k, row + 3) for c in table.columns)})" for row, k in enumerate(keys))
    return f"SELECT * FROM VALUES {', '.join(rows)} AS v({', '.join(c.sql for c in table.columns)})"


def _value(column: Column, key: Column, value: str, row: int) -> str:
    if column == key:
        return value
    if column.values:
        return column.held[row % 12]
    return f"'new {row}'" if column.type == "STRING" else f"CAST(NULL AS {column.type})"


def _number(*words: str) -> int:
    """A number by which cases differ, the same in each run."""
    return int(hashlib.sha256(" ".join(words).encode()).hexdigest()[:8], 16)


def _held(table: ForeignTable, key: Column) -> list[int]:
    """Two places in different files, others for each case, whose keys differ."""
    start = _number(table.name, key.name, "held")
    rows = table.rows
    first = rows[start % len(rows)]
    others = [row for row in rows if row // 2 != first // 2 and key.held[row] != key.held[first]]
    return [first, others[start // 12 % len(others)]]


def _keys(table: ForeignTable) -> list[Column]:
    """Some of the columns that can be keys, others for each table: versions of a writer differ little, and the fuzz
    tests draw from all of them."""
    by_chance = sorted(table.keys, key=lambda key: _number(table.name, key.name, "chosen"))
    return sorted(by_chance, key=lambda key: key.type in NEVER_PRUNE)[:KEYS_OF_A_TABLE]


def _cases() -> Iterator[Case]:
    """One merge for each of some columns of each table."""
    for table in foreign_tables().values():
        note = next(column for column in table.columns if not column.values and column.type == "STRING")
        for key in _keys(table):
            name, clauses, does = MERGES[_number(table.name, key.name) % len(MERGES)]
            fails = table.fails or REFUSED.get(f"{table.name}, {name}", "")
            yield Case(
                f"{table.name}, {name} by {key.name}",
                clauses.replace("{v}", note.sql),
                does="" if fails else does,
                fails=fails,
                table=Table(archive=table.name),
                source=source(table, key, held=_held(table, key)),
                on=f"t.{key.sql} = s.{key.sql}",
            )


@pytest.mark.in_turns  # all of them take minutes
@pytest.mark.parametrize("case", [*_cases()], ids=str)
def test_foreign_table(engines: Harness, case: Case) -> None:
    engines.check(case)


#: Days as partition values, one of them an empty text, which Delta can't compare and Spark reads as NULL.
DAYS = Table(archive="by-hand-partitions-of-days")
ONE_DAY = "VALUES (DATE '1969-12-31') AS s(day)"
EMPTY_DAY = {
    "by-source conditions choose files": Case(
        "an empty day, by-source conditions", does="delete", table=DAYS,
        clauses="WHEN MATCHED AND t.big < 0 THEN DELETE "
                "WHEN NOT MATCHED BY SOURCE AND t.day = DATE '1970-01-01' THEN DELETE",
        source="VALUES (2) AS s(id)", on="t.day = DATE '1899-12-31'"),
    "by-source conditions and keys choose files": Case(
        "an empty day, by-source conditions and keys", does="update, delete", table=DAYS,
        clauses="WHEN MATCHED THEN UPDATE SET note = 'new' "
                "WHEN NOT MATCHED BY SOURCE AND t.day = DATE '1970-01-01' THEN DELETE",
        source=ONE_DAY, on="t.day = s.day"),
    "every row without a match is deleted": Case(
        "an empty day, every row without a match is deleted", does="update, delete", table=DAYS,
        clauses="WHEN MATCHED THEN UPDATE SET note = 'new' WHEN NOT MATCHED BY SOURCE THEN DELETE",
        source=ONE_DAY, on="t.day = s.day"),
    "every row without a match is deleted, days are compared": Case(
        "an empty day, every row without a match is deleted, days are compared", does="update, delete", table=DAYS,
        clauses="WHEN MATCHED AND t.day > DATE '1900-01-01' THEN UPDATE SET note = concat(t.note, 'new') "
                "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        source=ONE_DAY, on="t.day = s.day AND t.day > DATE '1800-01-01'"),
    "some rows without a match are deleted": Case(
        "an empty day, some rows without a match are deleted", does="update, delete", table=DAYS,
        clauses="WHEN MATCHED THEN UPDATE SET note = concat(t.note, 'new') "
                "WHEN NOT MATCHED BY SOURCE AND t.big > 0 THEN DELETE",
        source=ONE_DAY, on="t.day = s.day"),
    "nothing but inserts is left to do": Case(
        "an empty day, nothing but inserts is left to do", does="insert", table=DAYS,
        clauses="WHEN NOT MATCHED THEN INSERT (id, day) VALUES (1, s.day) "
                "WHEN NOT MATCHED BY SOURCE AND t.big < 0 THEN DELETE",
        source="VALUES (DATE '2031-12-31') AS s(day)", on="t.day = s.day"),
    "keys choose files": Case(
        "an empty day, keys", does="update", table=DAYS, clauses="WHEN MATCHED THEN UPDATE SET note = 'new'",
        source=ONE_DAY, on="t.day = s.day"),
}  # fmt: skip


@pytest.mark.parametrize("chosen", EMPTY_DAY)
def test_an_empty_text_for_a_day_fails_no_merge_of_which_the_built_in_reads_all_files(
    engines: Harness, chosen: str
) -> None:
    if engines.recording:
        pytest.skip("what stays in other files is spelled as by their writer, which recordings don't compare")
    assert engines.check_anything(EMPTY_DAY[chosen]) == "changed"


def test_an_empty_text_for_a_day_fails_as_in_the_built_in_where_that_compares_it_with_bounds(engines: Harness) -> None:
    engines.check(
        Case("an empty day, bounds", fails="CAST_INVALID_INPUT", table=DAYS, clauses="WHEN MATCHED THEN DELETE",
             source="VALUES (2) AS s(id)", on="t.id IS NULL AND t.day IS NULL")
    )  # fmt: skip
