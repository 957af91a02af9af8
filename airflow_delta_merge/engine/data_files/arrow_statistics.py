"""Statistics of a file's rows, from Arrow's reductions over its columns.

Needs nothing else of this package, as Spark's executors use it, too.
:mod:`~airflow_delta_merge.engine.data_files.delta_statistics` turns them into Delta's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Leaf:
    """A column, or a field of a struct, that has statistics.

    :param path: physical names, the column's first.
    :param type: the type of its bounds, as Spark's schemas name it; empty if it has none.
    """

    path: tuple[str, ...]
    type: str


@dataclass
class LeafStatistics:
    """Statistics of a leaf's values.

    :param nulls: number of NULLs.
    :param low: the smallest value that is not NaN: a number, a decimal, bytes of a text, days or microseconds since
        1970; None if there is none.
    :param high: the largest one.
    :param has_nan: whether there is a NaN.
    """

    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False


@dataclass
class GatheredStatistics:
    """Collects statistics of rows, part by part.

    :param leaves: what to collect.
    :param num_rows: rows so far.
    :param of_leaves: the statistics so far, by the leaf's path.
    """

    leaves: Sequence[Leaf]
    num_rows: int = 0
    of_leaves: dict[tuple[str, ...], LeafStatistics] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Include further rows, whose columns have their physical names."""
        self.num_rows += rows.num_rows
        for leaf in self.leaves:
            column = _column(rows, leaf.path)
            values = self.of_leaves.setdefault(leaf.path, LeafStatistics())
            values.nulls += column.null_count
            if leaf.type and column.null_count < len(column):
                _widen(values, column, leaf.type)


def _column(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """A leaf's values; NULL where an enclosing struct is NULL."""
    import pyarrow.compute as pc

    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    return column


def _widen(values: LeafStatistics, column: pa.ChunkedArray, type_: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if type_ == "string":
        # As bytes, which compare the same and need not be UTF-8.
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    elif type_ == "date":
        column = column.cast(pa.int32())
    elif type_ in ("timestamp", "timestamp_ntz"):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())  # files may have milliseconds
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
