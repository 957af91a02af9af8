"""Which files of a table can match, from statistics on the driver: those of the log, or of the version's checksum.

Delta's ``filterFiles`` does the same in a Spark job, which takes too long for a small merge. Statistics follow Delta's
protocol: a column's least and greatest value in the file, or bounds of them (for long strings, or after deletes), and
the number of NULLs. A missing statistic is unknown.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.engine.data_files.trusted_bounds import INTEGER_BITS, OpenRange, Range, with_margin

_BOUNDS = ("minValues", "maxValues")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH_DAY = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class SoughtRanges:
    """The values of a column to search for.

    :param column: its physical name.
    :param type: its type, as Spark SQL writes it; must satisfy :func:`is_comparable`.
    :param ranges: ranges that hold the values, including their margin; dates are days since 1970.
    :param nulls: whether to search for NULL, too.
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
        # The time zone doesn't matter: no timestamps are compared here.
        low, high = bounds if self.of_partition else with_margin(self.type, bounds, in_utc=True)
        return any(_reaches(high, smallest) and _reaches(largest, low) for smallest, largest in self.ranges)


def _reaches(high: Any, low: Any) -> bool:
    """Whether a range that ends with ``high`` overlaps one that begins with ``low``; None means unbounded."""
    return high is None or low is None or bool(low <= high)


def statistics_of(add: dict[str, Any], partitioned_by: Mapping[str, str]) -> dict[str, Any]:
    """The bounds of a file's columns, including partition columns.

    The log's entries may come from any writer, so unreadable statistics are ignored.

    :param add: the file's action in the log.
    :param partitioned_by: the types of the partition columns, by their physical names.
    :return: ``minValues`` and ``maxValues`` by column, and ``nullCount`` of the partition columns. Writers don't count
        NULLs in other columns reliably.
    """
    parsed = _object(add.get("stats")) or {}
    statistics: dict[str, dict[str, Any]] = {bound: _if_object(parsed.get(bound)) for bound in _BOUNDS}
    statistics["nullCount"] = {}
    values = _if_object(add.get("partitionValues"))
    for column, type_ in partitioned_by.items():
        text = values.get(column)
        value = _of_partition(type_, text) if text else None
        if not text or value is not None:  # else it is unknown how Spark reads the text
            statistics["nullCount"][column] = int(not text)
        for bound in _BOUNDS:
            statistics[bound].pop(column, None)
            if value is not None:
                statistics[bound][column] = value
    return statistics


def has_readable_statistics(add: dict[str, Any]) -> bool:
    """Whether Delta's classes can read a file's statistics as they are in the log, if there are any.

    Delta's Spark job ignores statistics that it can't read; on the driver Delta fails on them, or counts wrong rows.

    :param add: the file's action in the log.
    """
    parsed = _object(add.get("stats")) if add.get("stats") else {}
    if parsed is None:
        return False
    rows = parsed.get("numRecords", 0)
    marked = _if_object(add.get("deletionVector")).get("cardinality", 0)
    is_counted = all(isinstance(number, int) and not isinstance(number, bool) for number in (rows, marked))
    return is_counted and ("numRecords" not in parsed or rows >= marked >= 0)


def _object(text: Any) -> dict[str, Any] | None:
    """The text as a JSON object; None if it is not one, or is ambiguous."""
    try:
        parsed = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (TypeError, ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        raise ValueError("a name appears twice")
    return parsed


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _if_object(value: Any) -> dict[str, Any]:
    """A copy of an object, since columns are added; empty for anything else."""
    return dict(value) if isinstance(value, dict) else {}


def _of_partition(type_: str, text: Any) -> Any:
    """A partition's value in the form of a bound; None for a text that Spark may read as another value."""
    if not isinstance(text, str):
        return None
    if type_ in INTEGER_BITS:
        return int(text) if _INTEGER.fullmatch(text) else None
    return text


def range_of_all(column: str, type_: str, statistics: Sequence[dict[str, Any]]) -> Range | None:
    """The range that holds all the table's values of a column, with a margin; None if it is unknown.

    :param column: its physical name.
    :param type_: its type; must satisfy :func:`is_comparable`.
    :param statistics: each file's statistics; empty for a file without any.
    """
    known = _known_bounds(column, type_, statistics)
    if not known or len(known) < len(statistics):
        return None
    # Each file's bounds first: what stands for other bytes is among the greatest texts, but its values need not be.
    with_margins = [with_margin(type_, bounds, in_utc=True) for bounds in known]  # no timestamps are compared here
    lows = [low for low, _ in with_margins if low is not None]
    highs = [high for _, high in with_margins if high is not None]
    return None if len(lows) < len(known) or len(highs) < len(known) else (min(lows), max(highs))


def files_of_a_value(column: str, type_: str, statistics: Sequence[dict[str, Any]]) -> int:
    """Number of files that may hold the median of all bounds: few if the column's values differ between files.

    Its parameters are those of :func:`range_of_all`.
    """
    known = _known_bounds(column, type_, statistics)
    if not known:
        return len(statistics)
    middle = sorted(bound for bounds in known for bound in bounds)[len(known)]
    return len(files_that_may_hold([SoughtRanges(column, type_, [(middle, middle)], nulls=False)], statistics))


def _known_bounds(column: str, type_: str, statistics: Sequence[dict[str, Any]]) -> list[Range]:
    """The known :func:`_bounds` of all files."""
    of_files = (_bounds(column, type_, each) for each in statistics)
    return [bounds for bounds in of_files if bounds is not None]


def _bounds(column: str, type_: str, statistics: dict[str, Any]) -> Range | None:
    """A lower and an upper bound of a column's values in a file; None if unknown."""
    low, high = (_value(type_, statistics.get(bound, {}).get(column)) for bound in _BOUNDS)
    return None if low is None or high is None else (low, high)


def _value(type_: str, value: Any) -> Any:
    if type_ in INTEGER_BITS:
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    return _days(value) if type_ == "date" else value


def _days(date: str) -> int | None:
    """Days since 1970; None if the text is not a date between the years 1 and 9999."""
    if not _DATE.fullmatch(date):
        return None
    try:
        return (datetime.date.fromisoformat(date) - _EPOCH_DAY).days
    except ValueError:
        return None


def is_comparable(type_: str) -> bool:
    """Whether this module compares values of the type (as Spark SQL writes it) in the same way as Spark."""
    return type_ in INTEGER_BITS or type_ in ("date", "string")


def files_that_may_hold(wanted: Sequence[SoughtRanges], statistics: Sequence[dict[str, Any]]) -> list[int]:
    """The positions of the files that may hold a row with a wanted value in each of the columns.

    :param statistics: each file's statistics; empty for a file without any.
    """
    return [position for position, each in enumerate(statistics) if all(one.may_be_in(each) for one in wanted)]
