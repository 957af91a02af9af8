"""Delta's statistics of a file's rows, from Arrow's reductions over its columns.

What Delta's protocol wants: the number of rows; of each column, and each field of a struct, the number of NULLs and, of
most types, the least and the greatest value. Texts are cut, timestamps told to the millisecond, and NaN is the greatest
number, as Delta's own writer has it. A bound that JSON can't tell as Delta would is left out: it is then unknown.
"""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = -719162, 2932896  # 0001-01-01 and 9999-12-31, as days since 1970
_MICROS_OF_DAY = 24 * 60 * 60 * 1_000_000
#: Digits that tell any float of 32 bits from its neighbours.
_DIGITS_OF_A_FLOAT = 9


@dataclass(frozen=True)
class Leaf:
    """A column, or a field of a struct, of which statistics are told.

    :param path: physical names, the column's first.
    :param type: of its bounds, as Spark's schemas name it; empty if it has none.
    """

    path: tuple[str, ...]
    type: str


@dataclass(frozen=True)
class StatisticsPlan:
    """Of what statistics are told.

    :param leaves: in the table's order.
    :param prefix_length: so many characters are kept of a long text.
    :param cut_above: cuts a greatest text so that it stays above all others; None where it can't.
    :param tight_bounds: whether the table's statistics say if their bounds are values of the file.
    """

    leaves: tuple[Leaf, ...]
    prefix_length: int
    cut_above: Callable[[str], str | None]
    tight_bounds: bool

    @classmethod
    def of(
        cls, statistics_schema: dict[str, Any], *, prefix_length: int, cut_above: Callable[[str], str | None]
    ) -> StatisticsPlan:
        """From the schema of the table's statistics, as Delta tells it: a struct of ``numRecords``, ``minValues`` …"""
        kinds = {each["name"]: each["type"] for each in statistics_schema["fields"]}
        bounded = dict(_leaves_of(kinds["minValues"])) if "minValues" in kinds else {}
        counted = _leaves_of(kinds["nullCount"]) if "nullCount" in kinds else ()
        leaves = tuple(Leaf(path, bounded.get(path, "")) for path, _ in counted)
        return cls(leaves, prefix_length, cut_above, "tightBounds" in kinds)


def _leaves_of(of_kind: Any, parents: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for each in of_kind["fields"]:
        path, type_ = (*parents, each["name"]), each["type"]
        if isinstance(type_, dict) and type_["type"] == "struct":
            yield from _leaves_of(type_, path)
        else:
            yield path, type_ if isinstance(type_, str) else ""


@dataclass
class _Values:
    """What was seen of a leaf's values so far; bounds as numbers, decimals or bytes."""

    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False


@dataclass
class GatheredStatistics:
    """Statistics of rows that are added part by part."""

    plan: StatisticsPlan
    num_rows: int = 0
    _seen: dict[tuple[str, ...], _Values] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Take in further rows, their columns under physical names."""
        self.num_rows += rows.num_rows
        for leaf in self.plan.leaves:
            column = _column(rows, leaf.path)
            values = self._seen.setdefault(leaf.path, _Values())
            values.nulls += column.null_count
            if leaf.type and column.null_count < len(column):
                _widen(values, column, leaf.type)

    def to_json(self) -> str:
        """The statistics as Delta writes them into its log."""
        told: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
        for leaf in self.plan.leaves:
            values = self._seen.get(leaf.path, _Values())
            _put(told["nullCount"], leaf.path, str(values.nulls))
            low, high = self._bounds(leaf, values)
            if leaf.type:  # a struct is told, be it without a bound
                _put(told["minValues"], leaf.path, low)
                _put(told["maxValues"], leaf.path, high)
        statistics = {"numRecords": str(self.num_rows), **told}
        if self.plan.tight_bounds:
            statistics["tightBounds"] = "true"
        return _object(statistics)

    def _bounds(self, leaf: Leaf, values: _Values) -> tuple[str | None, str | None]:
        """Both bounds as JSON; None for one that isn't known."""
        if leaf.type == "string":
            return self._bounds_of_text(values)
        low, high = values.low, values.high
        if values.has_nan:  # Spark's greatest number
            low, high = float("nan") if low is None else low, float("nan")
        if low is None or high is None:
            return None, None
        return _number_or_moment(low, leaf.type), _number_or_moment(high, leaf.type)

    def _bounds_of_text(self, values: _Values) -> tuple[str | None, str | None]:
        if values.low is None:
            return None, None
        try:
            low, high = values.low.decode(), values.high.decode()
        except UnicodeDecodeError:
            return None, None
        above = self.plan.cut_above(high) if len(high) * 2 > self.plan.prefix_length else high
        return _text(low[: self.plan.prefix_length]), None if above is None else _text(above)


def _column(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """A leaf's values; NULL where a struct around it is."""
    import pyarrow.compute as pc

    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    return column


def _widen(values: _Values, column: pa.ChunkedArray, type_: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if type_ == "string":
        # As bytes, which compare the same and need not be UTF-8.
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    elif type_ in ("date", "timestamp", "timestamp_ntz"):
        column = column.cast(pa.int32() if type_ == "date" else pa.int64())
    elif type_ in ("float", "double"):
        is_nan = pc.is_nan(column)
        if pc.any(is_nan).as_py():
            values.has_nan = True
            column = column.filter(pc.invert(is_nan))  # drops the NULLs, too
    bounds = pc.min_max(column)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None:
        values.low = low if values.low is None else min(values.low, low)
        values.high = high if values.high is None else max(values.high, high)


def _number_or_moment(value: Any, type_: str) -> str | None:
    if type_ == "date":
        return _moment(value * _MICROS_OF_DAY, "%Y-%m-%d") if _FIRST_DAY <= value <= _LAST_DAY else None
    if type_ in ("timestamp", "timestamp_ntz"):
        if not _FIRST_DAY <= value // _MICROS_OF_DAY <= _LAST_DAY:
            return None
        zone = "Z" if type_ == "timestamp" else ""
        return _moment(value, "%Y-%m-%dT%H:%M:%S", f".{value // 1000 % 1000:03d}{zone}")
    if isinstance(value, float):
        return _floating(value, type_)
    return str(value) if isinstance(value, int | Decimal) else None


def _moment(micros: int, pattern: str, rest: str = "") -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    year = f"{moment.year:04d}"  # C's %Y may leave zeros out
    return _text(moment.strftime(pattern.replace("%Y", year)) + rest)


def _floating(value: float, type_: str) -> str:
    if value != value:
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if type_ == "float":
        # As few digits as tell it from the next one, as Java writes it.
        for digits in range(1, _DIGITS_OF_A_FLOAT):
            shorter = float(f"{value:.{digits}g}")
            if struct.pack("f", shorter) == struct.pack("f", value):
                return repr(shorter)
    return repr(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _put(told: dict[str, Any], path: tuple[str, ...], value: str | None) -> None:
    for name in path[:-1]:
        told = told.setdefault(name, {})
    if value is not None:
        told[path[-1]] = value


def _object(told: Any) -> str:
    """JSON of values that are JSON: a decimal of 38 digits is none that Python's JSON would write."""
    if isinstance(told, dict):
        return "{" + ",".join(f"{_text(key)}:{_object(each)}" for key, each in told.items()) + "}"
    return str(told)
