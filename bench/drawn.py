"""Merges that nobody chose: tables, sources, keys and clauses drawn by chance, the same ones for the same seed.

Engine developers know the other cases. These show how the engine does on merges it was not tuned for.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_delta_merge.config import (
    MergeClause,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_by_source_update,
    when_not_matched_insert,
    when_not_matched_insert_all,
)
from bench.case import DELETE, INSERT, UPSERT, Case, Regime
from bench.data import Table
from bench.events import EVENTS

GROUP = "drawn"

_ROWS = (50_000, 500_000, 2_000_000, 4_000_000)
_FILES = (1, 4, 20, 60)
_COLUMNS = {
    "": EVENTS.columns,
    "30_columns": (*EVENTS.columns, *(f"cast(pmod(xxhash64(id, {n}), 5000) as int) as n{n}" for n in range(10, 33))),
}
#: Keys that grow from file to file, or that lie anywhere: the factor has no divisor in common with any number of rows.
_ORDERS = {"": "id", "scattered": "(id * 7919) % {rows} as id"}
#: One table in four.
_LAYOUTS = ("", "", "", "PARTITIONED BY (region)")
#: Each of them writes a file into each of 16 partitions.
_MOST_TASKS_OF_PARTITIONED = 4
_FEATURES: Mapping[str, Mapping[str, str]] = {
    "": {},
    "dv": {"enableDeletionVectors": "true"},
    "cdf": {"enableChangeDataFeed": "true"},
    "dv_cdf": {"enableDeletionVectors": "true", "enableChangeDataFeed": "true"},
}
_KEYS = (("id",), ("account",), ("region", "id"))
#: Parts of the table's rows that have a source row; the first is a single one.
_MATCHED = (0.0, 0.0001, 0.001, 0.01, 0.1, 0.5)
#: From here on much is to change: a row of each file if they lie anywhere, else a good part of all.
_OF_EACH_FILE, _MUCH = 0.001, 0.5
#: New rows for each that matches.
_NEW = (0.0, 0.1, 1.0)
#: Source rows that differ from the target's.
_CHANGED = {"": "amount + 1", "few_differ": "if(pmod(xxhash64(id, 79), 100) = 0, amount + 1, amount)"}

_DIFFERS = "source.amount <> target.amount"
_CLAUSES: Mapping[str, tuple[MergeClause, ...]] = {
    "upsert": UPSERT,
    "upsert_of_what_differs": (when_matched_update_all(condition=_DIFFERS), when_not_matched_insert_all()),
    "update": (when_matched_update(set={"amount": "source.amount"}),),
    "update_of_what_differs": (when_matched_update(set={"amount": "source.amount"}, condition=_DIFFERS),),
    "addition": (when_matched_update(set={"amount": "target.amount + source.amount"}), when_not_matched_insert_all()),
    "delete": DELETE,
    "delete_and_upsert": (
        when_matched_delete(condition="source.region = 3"),
        when_matched_update_all(),
        when_not_matched_insert_all(condition="source.region <> 3"),
    ),
    "insert": INSERT,
    "insert_of_some_columns": (
        when_not_matched_insert(values={name: f"source.{name}" for name in ("id", "day", "account", "region")}),
    ),
    "sync_of_a_window": (
        when_matched_update_all(),
        when_not_matched_insert_all(),
        when_not_matched_by_source_delete(condition="target.day < date'2024-01-10'"),
    ),
    "mark_what_is_gone": (
        when_matched_update_all(),
        when_not_matched_by_source_update(
            set={"note": "'gone'"}, condition="target.day BETWEEN date'2024-03-01' AND date'2024-03-10'"
        ),
    ),
}


@dataclass(frozen=True)
class _Source:
    """Which rows the source has.

    :param matched: the part of the table's rows that it matches.
    :param new: how many new ones come with each of these.
    :param spread: whether they lie anywhere between the keys rather than beside each other.
    :param changed: what the amount is in the source.
    """

    matched: float
    new: float
    spread: bool
    changed: str

    def query(self) -> str:
        """A SELECT over the template."""
        others = "* EXCEPT (id, account, amount)"
        same = f"SELECT {others}, id, account, {self.changed} AS amount FROM {{table}} WHERE {self._where()}"
        if not self.new:
            return same
        new_key = "id + {rows} AS id, format_string('ACCOUNT-%012d', id + {rows}) AS account"
        return (
            f"{same} UNION ALL SELECT {others}, {new_key}, amount FROM {{table}} "
            f"WHERE {self._where()} AND pmod(xxhash64(id, 78), 100) < {round(self.new * 100)}"
        )

    def _where(self) -> str:
        if not self.matched:
            return "id = {rows} div 3"
        if self.spread:
            return f"pmod(xxhash64(id, 77), 10000) < {round(self.matched * 10_000)}"
        return f"id BETWEEN {{rows}} div 3 AND {{rows}} div 3 + {{rows}} * {self.matched} - 1"

    def __str__(self) -> str:
        if not self.matched:
            return "one_row"
        of_table = f"{self.matched:g}_{'spread' if self.spread else 'together'}"
        return f"{of_table}_new_{self.new:g}" if self.new else of_table


def drawn_cases(count: int, seed: int, only: Sequence[str] = ()) -> list[Case]:
    """Draw this many merges. A larger number with the same seed begins with the same merges.

    :param only: numbers of some of them, if not all are wanted.
    :raises ValueError: when there is no case of such a number.
    """
    numbers = [f"{number:02}" for number in range(1, count + 1)]
    if unknown := [number for number in only if number.zfill(2) not in numbers]:
        raise ValueError(f"No case drawn is number {', '.join(unknown)}; there are 1 to {count}.")
    wanted = [number.zfill(2) for number in only] or numbers
    return [_drawn(number, random.Random(f"{seed} {int(number)}")) for number in wanted]  # noqa: S311 - no secrets


def _drawn(number: str, chance: random.Random) -> Case:
    table, table_name = _table(chance)
    changed = chance.choice(list(_CHANGED))
    source = _Source(
        matched=chance.choice(_MATCHED),
        new=chance.choice(_NEW),
        spread=chance.random() < 0.5,
        changed=_CHANGED[changed],
    )
    on, kind = chance.choice(_KEYS), chance.choice(list(_CLAUSES))
    parts = [number, table_name, str(source), changed, "by", *on, kind]
    return Case(
        name="_".join(filter(None, parts)),
        regime=_regime(table, source),
        table=table,
        source=source.query(),
        on=on,
        clauses=_CLAUSES[kind],
        group=GROUP,
    )


def _table(chance: random.Random) -> tuple[Table, str]:
    rows, files = chance.choice(_ROWS), chance.choice(_FILES)
    order, layout = chance.choice(list(_ORDERS)), chance.choice(_LAYOUTS)
    columns, features = chance.choice(list(_COLUMNS)), chance.choice(list(_FEATURES))
    if layout:
        files = min(files, _MOST_TASKS_OF_PARTITIONED)
    size = f"{rows}_rows_{files}_{'tasks_partitioned' if layout else 'files'}"
    name = "_".join(filter(None, [size, order, columns]))
    table = Table(
        name=f"drawn_{name}",
        columns=(_ORDERS[order], *_COLUMNS[columns][1:]),
        rows=rows,
        files=files,
        layout=layout,
    )
    return table.with_properties(**_FEATURES[features]), "_".join(filter(None, [name, features]))


def _regime(table: Table, source: _Source) -> Regime:
    if table.rows < _ROWS[1]:
        return Regime.FIXED_COSTS
    over_all_files = source.matched >= _MUCH or (source.matched >= _OF_EACH_FILE and source.spread)
    return Regime.MUCH_TO_CHANGE if over_all_files else Regime.LITTLE_IN_MUCH
