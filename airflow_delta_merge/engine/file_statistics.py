"""Which files of a table can match, by statistics that the driver has: those of the log, or of the version's checksum.

Delta's ``filterFiles`` asks its statistics the same in a Spark job, which takes longer than a small merge can spare.
Statistics mean what Delta's protocol says: the least and greatest value of a column in the file, or bounds of them (of
long strings, or where rows were deleted since), and the number of NULLs; what is missing is not known.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.engine.trusted_bounds import INTEGER_BITS, OpenRange, Range, with_margin

_BOUNDS = ("minValues", "maxValues")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class SoughtRanges:
    """The values of a column that are looked for.

    :param column: its physical name.
    :param type: its type, as Spark SQL writes it: one for which :func:`is_comparable`.
    :param ranges: ranges that hold the values, with their margin; of dates as days since 1970.
    :param nulls: whether NULL is looked for, too.
    :param of_partition: whether the table is partitioned by the column.
    """

    column: str
    type: str
    ranges: Sequence[OpenRange]
    nulls: bool
    of_partition: bool = False

    def may_be_in(self, statistics: dict[str, Any]) -> bool:
        """Whether a file may hold such a value.

        :param statistics: the file's, as :func:`statistics_of` gives them.
        """
        if self.nulls and statistics.get("nullCount", {}).get(self.column) != 0:
            return True
        bounds = _bounds(self.column, self.type, statistics)
        if bounds is None:
            return True
        # A zone doesn't matter: no timestamps are compared here.
        low, high = bounds if self.of_partition else with_margin(self.type, bounds, in_utc=True)
        return any(_reaches(high, smallest) and _reaches(largest, low) for smallest, largest in self.ranges)


def _reaches(high: Any, low: Any) -> bool:
    """Whether a range that ends with ``high`` meets one that begins with ``low``; None is no end."""
    return high is None or low is None or bool(low <= high)


def statistics_of(add: dict[str, Any], partitioned_by: Mapping[str, str]) -> dict[str, Any]:
    """The bounds of a file's columns, those that the table is partitioned by included.

    What the log says may come from any writer: statistics that can't be read are none.

    :param add: the file's action in the log.
    :param partitioned_by: the types of these columns by their physical names.
    :return: ``minValues`` and ``maxValues`` by column, and ``nullCount`` of those that the table is partitioned by; how
        many NULLs there are in other columns writers don't count with care.
    """
    told = _object(add.get("stats")) or {}
    statistics: dict[str, dict[str, Any]] = {bound: _if_object(told.get(bound)) for bound in _BOUNDS}
    statistics["nullCount"] = {}
    values = _if_object(add.get("partitionValues"))
    for column, type_ in partitioned_by.items():
        text = values.get(column)
        value = _of_partition(type_, text) if text else None
        if not text or value is not None:  # else nobody knows here what Spark makes of it
            statistics["nullCount"][column] = int(not text)
        for bound in _BOUNDS:
            statistics[bound].pop(column, None)
            if value is not None:
                statistics[bound][column] = value
    return statistics


def has_readable_statistics(add: dict[str, Any]) -> bool:
    """Whether Delta's classes can take a file's statistics as they are in the log, if there are any.

    Its job over the state leaves out what it can't read; on the driver Delta fails on it, or counts wrong rows.

    :param add: the file's action in the log.
    """
    told = _object(add.get("stats")) if add.get("stats") else {}
    if told is None:
        return False
    rows = told.get("numRecords", 0)
    marked = _if_object(add.get("deletionVector")).get("cardinality", 0)
    is_counted = all(isinstance(number, int) and not isinstance(number, bool) for number in (rows, marked))
    return is_counted and ("numRecords" not in told or rows >= marked >= 0)


def _object(text: Any) -> dict[str, Any] | None:
    """A JSON object; None for what is none, or may be read as another one."""
    try:
        told = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (TypeError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    told = dict(pairs)
    if len(told) < len(pairs):
        raise ValueError("a name appears twice")
    return told


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _if_object(told: Any) -> dict[str, Any]:
    """A copy, as columns are added."""
    return dict(told) if isinstance(told, dict) else {}


def _of_partition(type_: str, text: Any) -> Any:
    """A partition's value in the form of a bound; None for a text that Spark may take for another value."""
    if not isinstance(text, str):
        return None
    if type_ in INTEGER_BITS:
        return int(text) if _INTEGER.fullmatch(text) else None
    return text


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
    return len(files_that_may_hold([SoughtRanges(column, type_, [(middle, middle)], nulls=False)], statistics))


def _known_bounds(column: str, type_: str, statistics: Sequence[dict[str, Any]]) -> list[Range]:
    """The :func:`_bounds` of those files that tell them."""
    of_files = (_bounds(column, type_, each) for each in statistics)
    return [bounds for bounds in of_files if bounds is not None]


def _bounds(column: str, type_: str, statistics: dict[str, Any]) -> Range | None:
    """What lies below and above all values of a column in a file, or is the least and the greatest; None if unknown."""
    low, high = (_value(type_, statistics.get(bound, {}).get(column)) for bound in _BOUNDS)
    return None if low is None or high is None else (low, high)


def _value(type_: str, told: Any) -> Any:
    if type_ in INTEGER_BITS:
        return told if isinstance(told, int) and not isinstance(told, bool) else None
    if not isinstance(told, str):
        return None
    return _days(told) if type_ == "date" else told


def _days(date: str) -> int | None:
    """Days since 1970; None for what is no date from the year 1 to 9999."""
    if not _DATE.fullmatch(date):
        return None
    try:
        return (datetime.date.fromisoformat(date) - _EPOCH).days
    except ValueError:
        return None


def is_comparable(type_: str) -> bool:
    """Whether values of the type, as Spark SQL writes it, are compared here as Spark compares them."""
    return type_ in INTEGER_BITS or type_ in ("date", "string")


def files_that_may_hold(wanted: Sequence[SoughtRanges], statistics: Sequence[dict[str, Any]]) -> list[int]:
    """The positions of the files that may hold a row with a wanted value in each of the columns.

    :param statistics: of each file what Delta tells; empty if it doesn't.
    """
    return [position for position, each in enumerate(statistics) if all(one.may_be_in(each) for one in wanted)]
