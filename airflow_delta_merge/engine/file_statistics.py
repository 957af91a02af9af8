"""Which files of a table can match, by statistics that the driver has: those of the log, or of the version's checksum.

Delta's ``filterFiles`` asks its statistics the same in a Spark job, which takes longer than a small merge can spare.
Statistics mean what Delta's protocol says: the least and greatest value of a column in the file, or bounds of them (of
long strings, or where rows were deleted since), and the number of NULLs; what is missing is not known.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: From the smallest to the greatest value, both included; as integers for whole types.
Range = tuple[Any, Any]

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_BOUNDS = ("minValues", "maxValues")
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class Wanted:
    """The values of a column that are looked for.

    :param column: its physical name.
    :param type: its type, as Spark SQL writes it: one for which :func:`is_comparable`.
    :param ranges: ranges that hold the values; of dates as days since 1970.
    :param nulls: whether NULL is looked for, too.
    """

    column: str
    type: str
    ranges: Sequence[Range]
    nulls: bool

    def may_be_in(self, statistics: dict[str, Any]) -> bool:
        """Whether a file may hold such a value.

        :param statistics: the file's; empty when they are not known.
        """
        if self.nulls and statistics.get("nullCount", {}).get(self.column) != 0:
            return True
        bounds = _bounds(self.column, self.type, statistics)
        if bounds is None:
            return True
        low, high = bounds
        return any(smallest <= high and low <= largest for smallest, largest in self.ranges)


def statistics_of(add: dict[str, Any], partitioned_by: Mapping[str, str]) -> dict[str, Any]:
    """What Delta tells of a file's columns, those that the table is partitioned by included.

    :param add: the file's action in the log.
    :param partitioned_by: the types of these columns by their physical names.
    :return: ``minValues``, ``maxValues`` and ``nullCount`` by column, and what else is told; empty if nothing is.
    """
    statistics: dict[str, Any] = json.loads(add.get("stats") or "{}")
    for column, type_ in partitioned_by.items():
        text = add["partitionValues"].get(column)
        statistics.setdefault("nullCount", {})[column] = int(not text)
        if text:
            for bound in _BOUNDS:
                statistics.setdefault(bound, {})[column] = int(text) if type_ in _INTEGERS else text
    return statistics


def range_of_all(column: str, type_: str, statistics: Sequence[dict[str, Any]]) -> Range | None:
    """The range that holds all the table's values of a column; None when it is not known of each file.

    :param column: its physical name.
    :param type_: its type, one for which :func:`is_comparable`.
    :param statistics: of each file what Delta tells; empty if it doesn't.
    """
    known = _known_bounds(column, type_, statistics)
    if not known or len(known) < len(statistics):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def files_of_a_value(column: str, type_: str, statistics: Sequence[dict[str, Any]]) -> int:
    """How many files may hold the value in the middle of all their bounds: few where the column tells files apart.

    :param column: its physical name.
    :param type_: its type, one for which :func:`is_comparable`.
    :param statistics: of each file what Delta tells; empty if it doesn't.
    """
    known = _known_bounds(column, type_, statistics)
    if not known:
        return len(statistics)
    middle = sorted(bound for bounds in known for bound in bounds)[len(known)]
    return len(files_that_may_hold([Wanted(column, type_, [(middle, middle)], nulls=False)], statistics))


def _known_bounds(column: str, type_: str, statistics: Sequence[dict[str, Any]]) -> list[Range]:
    """The :func:`_bounds` of those files that tell them."""
    of_files = (_bounds(column, type_, each) for each in statistics)
    return [bounds for bounds in of_files if bounds is not None]


def _bounds(column: str, type_: str, statistics: dict[str, Any]) -> Range | None:
    """What lies below and above all values of a column in a file, or is the least and the greatest; None if unknown."""
    low, high = (_value(type_, statistics.get(bound, {}).get(column)) for bound in _BOUNDS)
    return None if low is None or high is None else (low, high)


def _value(type_: str, told: Any) -> Any:
    if type_ in _INTEGERS:
        return told if isinstance(told, int) else None
    if not isinstance(told, str):
        return None
    return _days(told) if type_ == "date" else told


def _days(date: str) -> int | None:
    """Days since 1970; None for years that Python doesn't know."""
    try:
        return (datetime.date.fromisoformat(date) - _EPOCH).days
    except ValueError:
        return None


def is_comparable(type_: str) -> bool:
    """Whether values of the type, as Spark SQL writes it, are compared here as Spark compares them."""
    return type_ in _INTEGERS or type_ in ("date", "string")


def files_that_may_hold(wanted: Sequence[Wanted], statistics: Sequence[dict[str, Any]]) -> list[int]:
    """The positions of the files that may hold a row with a wanted value in each of the columns.

    :param statistics: of each file what Delta tells; empty if it doesn't.
    """
    return [position for position, each in enumerate(statistics) if all(one.may_be_in(each) for one in wanted)]
