"""Hypothesis strategies for merges into tables that other writers made, as they are or harmed."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.differential.cases import ANYTHING, Case, Table
from tests.foreign.corpus import Column as ForeignColumn
from tests.foreign.corpus import ForeignTable, foreign_tables
from tests.foreign.damage import KINDS
from tests.fuzz.statements import STATEMENTS_PER_TABLE, Column, clauses, on, source_of

TABLES = [table for table in foreign_tables().values() if not table.fails]
HARM = [name + every for name in KINDS for every in ("", "", " in every 2nd file", " in every 3rd file")]


@st.composite
def foreign_cases(draw: st.DrawFn) -> list[Case]:
    """Some merges into copies of one table. What they do is not known: the oracle tells."""
    table = draw(st.sampled_from(TABLES))
    harm = draw(st.sampled_from([0, 1, 1, 2]))
    target = Table(archive=table.name, damage=tuple(draw(st.sampled_from(HARM)) for _ in range(harm)))
    return [_case(draw, table, target) for _ in range(STATEMENTS_PER_TABLE)]


def _case(draw: st.DrawFn, table: ForeignTable, target: Table) -> Case:
    columns = _columns(draw, table)
    rows = [_row(draw, columns) for _ in range(draw(st.sampled_from([1, 2, 3, 4, 6, 0])))]
    return Case(
        "a made-up statement on a foreign table",
        clauses(draw, columns),
        does=ANYTHING,
        table=target,
        source=source_of(draw, columns, rows, nothing=_row(draw, columns)),
        on=on(draw, columns),
    )


def _columns(draw: st.DrawFn, table: ForeignTable) -> list[Column]:
    """The columns, any of them first, which is the key."""
    columns = [Column(column.sql, column.type, tuple(_literals(column))) for column in table.columns]
    keys = [column for column, held in zip(columns, table.columns, strict=True) if held.values]
    first = draw(st.sampled_from(keys))
    second = draw(st.sampled_from([column for column in columns if column != first]))
    return [first, second, *(column for column in columns if column not in (first, second))]


def _literals(column: ForeignColumn) -> list[str]:
    if not column.values:
        return [f"CAST('{text}' AS {column.type})" for text in ("1", "2")]
    return [*column.held, *column.new, f"CAST(NULL AS {column.type})"]


def _row(draw: st.DrawFn, columns: list[Column]) -> str:
    """A row that mostly is one of the table's, since of sixteen columns drawn alone no two would meet."""
    place = draw(st.integers(0, 15))
    strays = draw(st.sets(st.sampled_from(columns), max_size=2))
    values = (
        draw(st.sampled_from(column.literals)) if column in strays else column.literals[place % len(column.literals)]
        for column in columns
    )
    return f"({', '.join(values)})"
