"""Hypothesis strategies for tables, sources and MERGE statements that both engines must treat alike.

Everything that is made up is small: few values, so that keys meet; few files; few rows. What is random is which
clauses, conditions, types, partitions, NULLs, features and layouts come together.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.differential.cases import ANYTHING, Case, Table

# For each type some literals, few enough that keys of source and target meet.
TYPES: dict[str, list[str]] = {
    "INT": ["0", "1", "2", "3", "4", "5", "-7", "NULL"],
    "BIGINT": ["0L", "1L", "2L", "3L", "9007199254740993L", "NULL"],
    "STRING": ["''", "'a'", "'b'", "'B'", "'a b'", "'é/='", "NULL"],
    "DATE": ["DATE'2024-01-01'", "DATE'2024-02-29'", "DATE'1900-01-01'", "NULL"],
    "TIMESTAMP": ["TIMESTAMP'2024-01-01 00:00:00'", "TIMESTAMP'2024-03-31 02:30:00.5'", "NULL"],
    "DOUBLE": ["0.0D", "CAST('-0.0' AS DOUBLE)", "CAST('NaN' AS DOUBLE)", "1.5D", "NULL"],
    "DECIMAL(8, 2)": ["1.10", "-3.00", "0", "NULL"],
    "BOOLEAN": ["true", "false", "NULL"],
}
STATEMENTS_PER_TABLE = 5

KEY_TYPES = ["INT", "INT", "INT", "BIGINT", "STRING", "DATE", "TIMESTAMP", "DOUBLE", "DECIMAL(8, 2)", "BOOLEAN"]

PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "delta.enableDeletionVectors": st.just("true"),
        "delta.enableChangeDataFeed": st.just("true"),
        "delta.columnMapping.mode": st.sampled_from(["name", "id"]),
        "delta.enableRowTracking": st.just("true"),
        "delta.dataSkippingNumIndexedCols": st.sampled_from(["0", "1"]),
    },
)

# Each of the engine's shortcuts as it comes, forced on where tables are too small for it, and off.
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "spark.deltaMerge.pruneBySource.enabled": st.just("false"),
        "spark.deltaMerge.useChecksum.enabled": st.just("false"),
        "spark.deltaMerge.shortcuts.enabled": st.just("false"),
        "spark.deltaMerge.smallMergeBytes": st.sampled_from(["0", "4000"]),
        "spark.deltaMerge.copyFilesFromBytes": st.just("0"),
        "spark.deltaMerge.broadcastBytes": st.just("0"),
        "spark.deltaMerge.keyFilterFromRows": st.just("0"),
        "spark.deltaMerge.onePassFromRows": st.just("1"),
    },
)


@dataclass(frozen=True)
class Column:
    """A column, the same in target and source."""

    name: str
    type: str
    values: tuple[str, ...] = ()

    @property
    def literals(self) -> list[str]:
        return [*self.values] or TYPES[self.type]


@st.composite
def _columns(draw: st.DrawFn) -> list[Column]:
    names = ["k", "k2", "a", "b", "c"][: draw(st.integers(3, 5))]
    return [Column(n, draw(st.sampled_from(KEY_TYPES if n.startswith("k") else list(TYPES)))) for n in names]


def _row(draw: st.DrawFn, columns: list[Column]) -> str:
    values = (f"CAST({draw(st.sampled_from(c.literals))} AS {c.type})" for c in columns)
    return f"({', '.join(values)})"


def _table(draw: st.DrawFn, columns: list[Column]) -> Table:
    commits = draw(st.sampled_from([2, 1, 1, 2, 3, 0]))
    rows = tuple(", ".join(_row(draw, columns) for _ in range(draw(st.integers(2, 6)))) for _ in range(commits))
    partition = draw(st.none() | st.none() | st.sampled_from(columns[:4])) if len(columns) > 3 else None
    earlier = [f"DELETE FROM {{t}} WHERE {_atom(draw, columns, ('',))}" for _ in range(draw(st.integers(0, 1)))]
    return Table(
        ", ".join(f"{c.name} {c.type}" for c in columns),
        rows,
        files=draw(st.integers(1, 3)),
        partitioned_by=partition.name if partition else "",
        properties=draw(PROPERTIES),
        then=tuple(earlier if rows else ()),
    )


def _source(draw: st.DrawFn, columns: list[Column]) -> str:
    rows = [_row(draw, columns) for _ in range(draw(st.sampled_from([4, 1, 2, 3, 5, 6, 0])))]
    return source_of(draw, columns, rows, nothing=_row(draw, columns))


def source_of(draw: st.DrawFn, columns: list[Column], rows: list[str], *, nothing: str) -> str:
    """A query of these rows, the first column the key.

    :param nothing: where there are none, a row that the query leaves out.
    """
    names = ", ".join(c.name for c in columns)
    key = columns[0].name
    if not rows:
        return f"SELECT * FROM VALUES {nothing} AS v({names}) WHERE {key} IS NULL AND {key} IS NOT NULL"
    query = f"SELECT * FROM VALUES {', '.join(rows)} AS v({names})"
    # Mostly one row for each key: several are an error most of the time, and the same one.
    if draw(st.integers(0, 3)):
        values = ", ".join(f"max({c.name}) AS {c.name}" for c in columns[1:])
        return f"SELECT {key}, {values} FROM ({query}) GROUP BY {key}"
    return query


def _atom(draw: st.DrawFn, columns: list[Column], sides: tuple[str, ...]) -> str:
    """One comparison of a column with a literal or with the other side's."""
    column = draw(st.sampled_from(columns))
    side = draw(st.sampled_from(sides))
    left = f"{side}{column.name}"
    operator = draw(st.sampled_from(["=", "<>", "<", ">=", "<=>", "IS NULL", "IS NOT NULL", "IN"]))
    literals = draw(st.lists(st.sampled_from(column.literals), min_size=1, max_size=3))
    if operator.startswith("IS"):
        return f"{left} {operator}"
    if operator == "IN":
        return f"{left} IN ({', '.join(literals)})"
    if len(sides) > 1 and draw(st.booleans()):
        other = sides[1 - sides.index(side)]
        return f"{left} {operator} {other}{column.name}"
    return f"{left} {operator} {literals[0]}"


def _condition(draw: st.DrawFn, columns: list[Column], sides: tuple[str, ...]) -> str:
    atoms = [_atom(draw, columns, sides) for _ in range(draw(st.integers(1, 2)))]
    joined = draw(st.sampled_from([" AND ", " OR "])).join(atoms)
    return f"NOT ({joined})" if draw(st.integers(0, 5)) == 0 else f"({joined})"


def on(draw: st.DrawFn, columns: list[Column]) -> str:
    """A merge condition, mostly that the first one or two columns are equal."""
    keys = columns[: draw(st.integers(1, 2))]
    equals = draw(st.sampled_from(["=", "=", "=", "<=>"]))
    parts = [f"t.{c.name} {equals} s.{c.name}" for c in keys]
    if draw(st.integers(0, 2)) == 0:
        parts.append(_condition(draw, columns, draw(st.sampled_from([("t.",), ("s.",), ("t.", "s.")]))))
    if draw(st.integers(0, 9)) == 0:
        return _condition(draw, columns, ("t.", "s."))
    return " AND ".join(parts)


def _value(draw: st.DrawFn, column: Column, sides: tuple[str, ...]) -> str:
    literal = draw(st.sampled_from(column.literals))
    side = draw(st.sampled_from(sides))
    return draw(
        st.sampled_from([f"{side}{column.name}", literal, f"coalesce({side}{column.name}, {literal})"]),
    )


def _sets(draw: st.DrawFn, columns: list[Column], sides: tuple[str, ...]) -> list[tuple[str, str]]:
    chosen = draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))
    return [(c.name, _value(draw, c, sides)) for c in chosen]


def _update(draw: st.DrawFn, columns: list[Column], sides: tuple[str, ...]) -> str:
    return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in _sets(draw, columns, sides))


def _insert(draw: st.DrawFn, columns: list[Column]) -> str:
    if draw(st.booleans()):
        return "INSERT *"
    pairs = _sets(draw, columns, ("s.",))
    return f"INSERT ({', '.join(n for n, _ in pairs)}) VALUES ({', '.join(v for _, v in pairs)})"


def clauses(draw: st.DrawFn, columns: list[Column]) -> str:
    """Up to two clauses of each kind."""

    def action(kind: str) -> str:
        if kind == "NOT MATCHED":
            return _insert(draw, columns)
        both = ("t.", "s.") if kind == "MATCHED" else ("t.",)
        actions = ["DELETE", _update(draw, columns, both)] + (["UPDATE SET *"] if kind == "MATCHED" else [])
        return draw(st.sampled_from(actions))

    sides = {"MATCHED": ("t.", "s."), "NOT MATCHED": ("s.",), "NOT MATCHED BY SOURCE": ("t.",)}
    counts = {kind: draw(st.integers(0, 2)) for kind in sides}
    if not any(counts.values()):
        counts["MATCHED"] = 1
    made = []
    for kind, count in counts.items():
        for number in range(count):
            has_condition = number < count - 1 or draw(st.integers(0, 2)) == 0
            condition = f" AND {_condition(draw, columns, sides[kind])}" if has_condition else ""
            made.append(f"WHEN {kind}{condition} THEN {action(kind)}")
    return "\n".join(made)


@st.composite
def cases(draw: st.DrawFn) -> list[Case]:
    """Some merges into copies of one table, which takes longer to make than they take to run.

    What they do is not known: the oracle tells.
    """
    columns = draw(_columns())
    table = _table(draw, columns)
    return [
        Case(
            "a made-up statement",
            clauses(draw, columns),
            does=ANYTHING,
            table=table,
            source=_source(draw, columns),
            on=on(draw, columns),
            confs=draw(SETTINGS),
        )
        for _ in range(STATEMENTS_PER_TABLE)
    ]
