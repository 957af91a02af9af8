"""Delta's statistics of a file's rows, from Arrow's reductions over its columns.

Delta's protocol asks for the number of rows and, for each column and struct field, the number of NULLs and the smallest
and largest value of most types. As Delta's own writer does, this cuts long texts, truncates timestamps to milliseconds
and takes NaN for the largest number. A bound that cannot be written as Delta would is left out, that is, unknown.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.engine.footer_statistics import Number, text_bounds, to_json

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = -719162, 2932896  # 0001-01-01 and 9999-12-31, as days since 1970
_MICROS_OF_DAY = 24 * 60 * 60 * 1_000_000
#: Digits that identify any 32-bit float.
_DIGITS_OF_A_FLOAT = 9


@dataclass(frozen=True)
class Leaf:
    """A column, or a field of a struct, that has statistics.

    :param path: physical names, the column's first.
    :param type: the type of its bounds, as Spark's schemas name it; empty if it has none.
    """

    path: tuple[str, ...]
    type: str


@dataclass(frozen=True)
class StatisticsPlan:
    """Which columns have statistics, and how their bounds are written.

    :param leaves: in the table's order.
    :param prefix_length: how many characters of a long text are kept.
    :param cut_above: truncates the largest text so that it stays above all others; returns None if it can't.
    :param tight_bounds: whether the table's statistics have the ``tightBounds`` flag.
    """

    leaves: tuple[Leaf, ...]
    prefix_length: int
    cut_above: Callable[[str], str | None]
    tight_bounds: bool

    @classmethod
    def of(
        cls, statistics_schema: dict[str, Any], *, prefix_length: int, cut_above: Callable[[str], str | None]
    ) -> StatisticsPlan:
        """Build the plan from Delta's schema of the table's statistics: a struct of ``numRecords``, ``minValues`` …"""
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
    """Statistics of a leaf's values so far; bounds as numbers, decimals or bytes."""

    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False


@dataclass
class GatheredStatistics:
    """Collects statistics of rows, part by part."""

    plan: StatisticsPlan
    num_rows: int = 0
    _seen: dict[tuple[str, ...], _Values] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Include further rows, whose columns have their physical names."""
        self.num_rows += rows.num_rows
        for leaf in self.plan.leaves:
            column = _column(rows, leaf.path)
            values = self._seen.setdefault(leaf.path, _Values())
            values.nulls += column.null_count
            if leaf.type and column.null_count < len(column):
                _widen(values, column, leaf.type)

    def to_json(self) -> str:
        """The statistics as Delta writes them into its log."""
        by_kind: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
        for leaf in self.plan.leaves:
            values = self._seen.get(leaf.path, _Values())
            _put(by_kind["nullCount"], leaf.path, values.nulls)
            low, high = self._bounds(leaf, values)
            if leaf.type:  # Delta writes a struct even if none of its fields has a bound
                _put(by_kind["minValues"], leaf.path, low)
                _put(by_kind["maxValues"], leaf.path, high)
        statistics = {"numRecords": self.num_rows, **by_kind}
        if self.plan.tight_bounds:
            statistics["tightBounds"] = True
        return to_json(statistics)

    def _bounds(self, leaf: Leaf, values: _Values) -> tuple[Any, Any]:
        """Both bounds in their JSON form; an unknown bound is None."""
        if leaf.type == "string":
            plan = self.plan
            return text_bounds(values.low, values.high, prefix_length=plan.prefix_length, cut_above=plan.cut_above)
        low, high = values.low, values.high
        if values.has_nan:  # NaN is Spark's greatest number
            low, high = float("nan") if low is None else low, float("nan")
        if low is None or high is None:
            return None, None
        return _number_or_moment(low, leaf.type), _number_or_moment(high, leaf.type)


def _column(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """A leaf's values; NULL where an enclosing struct is NULL."""
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


def _number_or_moment(value: Any, type_: str) -> Any:
    if type_ == "date":
        return _moment(value * _MICROS_OF_DAY, "%Y-%m-%d") if _FIRST_DAY <= value <= _LAST_DAY else None
    if type_ in ("timestamp", "timestamp_ntz"):
        if not _FIRST_DAY <= value // _MICROS_OF_DAY <= _LAST_DAY:
            return None
        zone = "Z" if type_ == "timestamp" else ""
        return _moment(value, "%Y-%m-%dT%H:%M:%S", f".{value // 1000 % 1000:03d}{zone}")
    if isinstance(value, float):
        return _floating(value, type_)
    return Number(value) if isinstance(value, int | Decimal) else None


def _moment(micros: int, pattern: str, rest: str = "") -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    year = f"{moment.year:04d}"  # C's %Y may leave zeros out
    return moment.strftime(pattern.replace("%Y", year)) + rest


def _floating(value: float, type_: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if type_ == "float":
        # Java writes the fewest digits that identify the float.
        for digits in range(1, _DIGITS_OF_A_FLOAT):
            shorter = float(f"{value:.{digits}g}")
            if struct.pack("f", shorter) == struct.pack("f", value):
                return Number(_as_java_writes(shorter))
    return Number(_as_java_writes(value))


def _as_java_writes(value: float) -> str:
    """A number as ``Double.toString`` writes it: with an exponent from 10⁷ on and below 10⁻³."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    if not any(digits) or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def _put(parent: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        parent = parent.setdefault(name, {})
    if value is not None:
        parent[path[-1]] = value
