"""Merge keys whose values in the source give a range of the target: predicates that drop no match."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_delta_merge.engine.data_files.file_statistics import SoughtRanges
from airflow_delta_merge.engine.data_files.trusted_bounds import (
    INTEGER_BITS,
    OpenRange,
    Range,
    leaves_files_out,
    of_partition,
    with_margin,
)
from airflow_delta_merge.engine.delta_jvm.conjuncts import Equality

if TYPE_CHECKING:
    from airflow_delta_merge.engine.started_merge import StartedMerge

#: Types whose values are compared as exact integers.
WHOLE_TYPES = frozenset({*INTEGER_BITS, "date", "timestamp", "timestamp_ntz"})

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROS_PER_SECOND = 1_000_000

#: Number of equal parts that a range is cut into, one bit each.
PARTS = 64
#: Longer ranges are not cut: the difference of two values might take more than 64 bits.
LONGEST_CUT = 1 << 62


@dataclass(frozen=True)
class Cut:
    """A range, cut into equal parts.

    :param number: a value in it, as a number (bigint).
    :param low: the smallest value.
    :param width: width of a part.
    """

    number: Column
    low: int
    width: int

    @classmethod
    def of(cls, number: Column, low: int, high: int) -> Cut:
        """The range from ``low`` to ``high``, both included, cut into :data:`PARTS`."""
        return cls(number, low, (high - low) // PARTS + 1)

    @property
    def part(self) -> Column:
        return F.call_function("div", self.number - F.lit(self.low), F.lit(self.width)).cast("int")


@dataclass(frozen=True)
class SourceKey(Equality):
    """An equality that every match fulfils.

    :param name: prefix of the names of its statistics.
    :param of_partition: whether the table is partitioned by the target's column.
    :param in_utc: whether the session's time zone is UTC.
    :param column: the physical name of the target's column, if its listed statistics choose the files.
    :param within: the range that holds all the target's values, if it is known; a source value outside matches nothing.
    :param by_clusters: whether the source's statistics tell the parts of that range that hold values.
    :param found: the values of :meth:`statistics` by name, once the source was read.
    """

    name: str
    of_partition: bool
    in_utc: bool
    column: str | None = None
    within: Range | None = None
    by_clusters: bool = False
    found: Mapping[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> Column:
        """The source's value, dates and timestamps as exact integers; NULL if it is outside the target's range."""
        value = self.source
        if self.type == "date":
            value = F.unix_date(value)
        elif self.type == "timestamp":
            value = F.unix_micros(value)
        elif self.type == "timestamp_ntz":
            value = _micros_without_zone(value)
        return value if self.within is None else F.when(value.between(*map(F.lit, self.within)), value)

    def statistics(self) -> list[Column]:
        """Aggregates over the source that :attr:`range`, :meth:`predicate` and the search for clusters need."""
        value = self.value
        found = [F.min(value).alias(f"{self.name}_min"), F.max(value).alias(f"{self.name}_max")]
        if self.by_clusters:
            assert self.within is not None, "only then there are parts"
            part = Cut.of(value.cast("bigint"), *self.within).part
            bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), part)
            found.append(F.bit_or(bit).alias(f"{self.name}_parts"))
        if self.null_safe:
            found.append(F.count_if(self.source.isNull()).alias(f"{self.name}_nulls"))
        return found

    def filled_parts(self) -> int | None:
        """How many parts of the target's range the source's values fill, next to each other; None if some are empty."""
        if not self.by_clusters:
            return None
        filled = int(self.found[f"{self.name}_parts"] or 0) % (1 << PARTS)  # the JVM's numbers have a sign
        without_those_below = filled // (filled & -filled) if filled else 0
        return None if without_those_below & (without_those_below + 1) else without_those_below.bit_length()

    @property
    def range(self) -> Range | None:
        """The range of :attr:`value`; None when it is always NULL."""
        smallest, largest = self.found[f"{self.name}_min"], self.found[f"{self.name}_max"]
        return None if smallest is None else (smallest, largest)

    @property
    def leaves_files_out(self) -> bool:
        """Whether the source's values can leave files out. Not with a NULL: few writers count NULLs reliably."""
        return self.of_partition or not self._meets_null

    def predicate(self, clusters: Sequence[Range] | None) -> Column:
        """True for every target row that can equal a source row in this key, and for every file whose bounds allow one.

        :param clusters: ranges that hold all the source's values; None for its one range.
        """
        ranges = [self._with_margin(each, ascii_only=True) for each in self._ranges(clusters)]
        held = [in_range(self.target, each, self.type) for each in ranges]
        found = reduce(Column.__or__, held) if held else F.lit(False)
        return found | self.target.isNull() if self._meets_null else found

    def sought_ranges(self, clusters: Sequence[Range] | None) -> SoughtRanges:
        """The values for which :meth:`predicate` is true. The key must have a :attr:`column`."""
        assert self.column is not None, "only such keys choose files by listed statistics"
        ranges = [self._with_margin(each) for each in self._ranges(clusters)]
        return SoughtRanges(self.column, self.type, ranges, self._meets_null, of_partition=self.of_partition)

    def _ranges(self, clusters: Sequence[Range] | None) -> Sequence[Range]:
        whole = self.range
        return clusters if clusters is not None else [whole] if whole is not None else []

    def _with_margin(self, values: Range, *, ascii_only: bool = False) -> OpenRange:
        if self.of_partition:
            return of_partition(self.type, values, in_utc=self.in_utc)
        return with_margin(self.type, values, in_utc=self.in_utc, ascii_only=ascii_only)

    @property
    def _meets_null(self) -> bool:
        return self.null_safe and bool(self.found[f"{self.name}_nulls"] > 0)


def in_range(column: Column, values: OpenRange, type_: str) -> Column:
    """Whether a column's value, or a file's bounds of it, is in a range.

    :param column: a column of the table.
    :param values: the range, its ends in the same form as in :class:`SourceKey`.
    :param type_: the column's type.
    """
    smallest, largest = values
    if type_ in INTEGER_BITS:
        # A target column of a narrower integer type is compared as the other side's wider type, but its statistics have
        # its own type.
        bound = 1 << (INTEGER_BITS[type_] - 1)
        smallest = -bound if smallest is None else max(smallest, -bound)
        largest = bound - 1 if largest is None else min(largest, bound - 1)
        if smallest > largest:
            return F.lit(False)
    ends = []
    if smallest is not None:
        ends.append(column >= _literal(smallest, type_))
    if largest is not None:
        ends.append(column <= _literal(largest, type_))
    return reduce(Column.__and__, ends) if ends else F.lit(True)


def _literal(value: Any, type_: str) -> Column:
    """A literal of the key's type from its form in ranges, where dates and timestamps are exact integers."""
    if type_ == "date":
        return F.date_from_unix_date(F.lit(value))
    if type_ == "timestamp":
        return F.timestamp_micros(F.lit(value))
    if type_ == "timestamp_ntz":
        return F.lit(str(_EPOCH + datetime.timedelta(microseconds=value))).cast(type_)
    return F.lit(value).cast(type_)


def _micros_without_zone(value: Column) -> Column:
    """Microseconds since 1970 of a TIMESTAMP_NTZ; Spark's own functions for it all depend on the time zone."""
    days = F.unix_date(value.cast("date")).cast("bigint")
    minutes = (days * 24 + F.hour(value)) * 60 + F.minute(value)
    of_minute = (F.date_part(F.lit("SECOND"), value) * _MICROS_PER_SECOND).cast("bigint")
    return minutes * (60 * _MICROS_PER_SECOND) + of_minute


def source_keys(merge: StartedMerge) -> list[SourceKey]:
    """The equalities of the ON condition whose source values give a range of the target."""
    keys = (
        SourceKey(
            **vars(equality),
            name=f"{merge.names.statistic}_{position}",
            of_partition=equality.target_name in merge.transaction.partition_columns,
            in_utc=merge.transaction.is_in_utc,
        )
        for position, equality in enumerate(merge.statement.conjuncts.equalities)
    )
    return [key for key in keys if leaves_files_out(key.type, of_partition=key.of_partition)]
