"""A file's statistics as Delta writes them into its log, from what Arrow gathered.

Delta's protocol asks for the number of rows and, for each column and struct field, the number of NULLs and the smallest
and largest value of most types. As Delta's own writer does, this cuts long texts, truncates timestamps to milliseconds
and takes NaN for the largest number. A bound that cannot be written as Delta would is left out, that is, unknown.
"""

from __future__ import annotations

import datetime
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from airflow_delta_merge.engine.data_files.arrow_statistics import Leaf, LeafStatistics

_EPOCH = datetime.datetime(1970, 1, 1)
#: Digits that identify any 32-bit float.
_DIGITS_OF_A_FLOAT = 9
#: Java writes numbers between these without an exponent.
_LEAST_PLAIN, _ABOVE_PLAIN = 1e-3, 1e7
#: As Delta orders them.
_KINDS = ("minValues", "maxValues", "nullCount")


class _Number(str):
    """A number exactly as written in JSON; Python's own JSON loses decimals of 38 digits."""


@dataclass(frozen=True)
class StatisticsPlan:
    """Which columns have statistics, and how their bounds are written.

    :param leaves: in the table's order.
    :param kinds: which of ``minValues``, ``maxValues`` and ``nullCount`` the table's statistics have, in this order.
    :param prefix_length: how many characters of a long text are kept.
    :param cut_above: truncates the largest text so that it stays above all others; returns None if it can't.
    :param as_java_writes: a number of a type, ``float`` or ``double``, as Java writes it.
    :param tight_bounds: whether the table's statistics have the ``tightBounds`` flag.
    """

    leaves: tuple[Leaf, ...]
    kinds: tuple[str, ...]
    prefix_length: int
    cut_above: Callable[[str], str | None]
    as_java_writes: Callable[[float, str], str]
    tight_bounds: bool

    @classmethod
    def of(
        cls,
        statistics_schema: dict[str, Any],
        *,
        prefix_length: int,
        cut_above: Callable[[str], str | None],
        as_java_writes: Callable[[float, str], str],
    ) -> StatisticsPlan:
        """Build the plan from Delta's schema of the table's statistics: a struct of ``numRecords``, ``minValues`` …"""
        kinds = {each["name"]: each["type"] for each in statistics_schema["fields"]}
        bounded = dict(_leaves_of(kinds["minValues"])) if "minValues" in kinds else {}
        counted = _leaves_of(kinds["nullCount"]) if "nullCount" in kinds else ()
        leaves = tuple(Leaf(path, bounded.get(path, "")) for path, _ in counted)
        written = tuple(kind for kind in _KINDS if kind in kinds)
        return cls(leaves, written, prefix_length, cut_above, as_java_writes, "tightBounds" in kinds)

    def to_json(self, num_rows: int, of_leaves: Mapping[tuple[str, ...], LeafStatistics]) -> str:
        """The statistics as Delta writes them into its log.

        :param num_rows: number of the file's rows.
        :param of_leaves: statistics by the leaf's path.
        """
        by_kind: dict[str, Any] = {kind: {} for kind in _KINDS}
        for leaf in self.leaves:
            values = of_leaves.get(leaf.path, LeafStatistics())
            _put(by_kind["nullCount"], leaf.path, values.nulls)
            low, high = self._bounds(leaf, values)
            if leaf.type:  # Delta writes a struct even if none of its fields has a bound
                _put(by_kind["minValues"], leaf.path, low)
                _put(by_kind["maxValues"], leaf.path, high)
        statistics = {"numRecords": num_rows, **{kind: by_kind[kind] for kind in self.kinds}}
        if self.tight_bounds:
            statistics["tightBounds"] = True
        return _as_json(statistics)

    def _bounds(self, leaf: Leaf, values: LeafStatistics) -> tuple[Any, Any]:
        """Both bounds in their JSON form; an unknown bound is None."""
        low, high = values.low, values.high
        if leaf.type == "string":
            return self._text_bounds(low, high)
        if values.has_nan:  # NaN is Spark's greatest number
            low, high = float("nan") if low is None else low, float("nan")
        if low is None or high is None:
            return None, None
        return self._number_or_moment(low, leaf.type), self._number_or_moment(high, leaf.type)

    def _text_bounds(self, low: bytes | None, high: bytes | None) -> tuple[str | None, str | None]:
        """Both bounds of texts; unknown if there are none, and for texts that are not UTF-8."""
        if low is None or high is None:
            return None, None
        try:
            return low.decode()[: self.prefix_length], self.cut_above(high.decode())
        except UnicodeDecodeError:
            return None, None

    def _number_or_moment(self, value: Any, type_: str) -> Any:
        if isinstance(value, float):
            if not math.isfinite(value):
                return json.dumps(value)  # Spark's names, too: NaN, Infinity and -Infinity
            return _Number(_plainly(value, type_) or self.as_java_writes(value, type_))
        try:
            if type_ == "date":
                return (_EPOCH + datetime.timedelta(days=value)).date().isoformat()
            if type_ in ("timestamp", "timestamp_ntz"):
                moment = _EPOCH + datetime.timedelta(microseconds=value)
                return moment.isoformat(timespec="milliseconds") + ("Z" if type_ == "timestamp" else "")
        except OverflowError:  # before the year 1 or after 9999
            return None
        return _Number(value) if isinstance(value, int | Decimal) else None


def _leaves_of(of_kind: Any, parents: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for each in of_kind["fields"]:
        path, type_ = (*parents, each["name"]), each["type"]
        if isinstance(type_, dict) and type_["type"] == "struct":
            yield from _leaves_of(type_, path)
        else:
            yield path, type_ if isinstance(type_, str) else ""


def _plainly(value: float, type_: str) -> str | None:
    """A number where Java, too, writes the fewest digits that identify it, without an exponent; else None.

    Before Java 19 there may be more digits in front of an exponent. To ask Java for each bound of each file would take
    longer than to write some files.
    """
    if value and not _LEAST_PLAIN <= abs(value) < _ABOVE_PLAIN:
        return None
    if type_ == "float":
        shortened = (float(f"{value:.{digits}g}") for digits in range(1, _DIGITS_OF_A_FLOAT + 1))
        value = next(each for each in shortened if struct.pack("f", each) == struct.pack("f", value))
    return repr(value)


def _put(parent: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        parent = parent.setdefault(name, {})
    if value is not None:
        parent[path[-1]] = value


def _as_json(value: Any) -> str:
    """JSON as Delta writes it into its log: compact, with unescaped non-ASCII characters."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_as_json(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
