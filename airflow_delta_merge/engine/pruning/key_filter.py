"""A Bloom filter of the source's keys, which drops most target rows before the join.

Most rows that a search reads match nothing. Looking them up in the source's hash table, which is larger than a
processor's cache, takes longer than reading them. A filter of one byte per source row lets few of them through.
Spark builds such filters for shuffled joins with a filtered side, never for broadcast joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_delta_merge.engine.data_files.trusted_bounds import INTEGER_BITS

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.conjuncts import Equality
    from airflow_delta_merge.engine.merge_context import MergeContext

#: Types whose equal values have the same hash: no floating point (-0.0 = 0.0), no collation except the binary one.
_HASHED_TYPES = frozenset({*INTEGER_BITS, "date", "timestamp", "timestamp_ntz", "string", "binary"})

#: Minimum target rows per source row for a filter: then most target rows can't match.
TARGET_ROWS_FOR_ONE = 4
#: A broadcast hash table of single numbers is nearly as fast as the filter, so the filter needs more rows to pay off.
_TIMES_OF_NUMBERS = 4
#: Default maximum of Spark's aggregate that builds the filter.
_MOST_KEYS = 4_000_000


def filtered_condition(merge: MergeContext) -> Column:
    """The join condition of a search that needs only the target rows that match.

    Where it pays off, the condition includes the filter, which is true for every row that can match and false for most
    others. A small job builds the filter from the source when the join runs. The filter is in the join's condition and
    not in a filter of the target, because Spark gives the second occurrence of a relation new attributes, and the
    condition comes after both sides of the join.
    """
    condition, source = merge.statement.condition, merge.source
    if not is_filtered(merge):
        return condition
    keys = _hashed_keys(merge)
    of_source = F.xxhash64(*(_compared(each, each.source) for each in keys))
    of_target = F.xxhash64(*(_compared(each, each.target) for each in keys))
    return condition & merge.gateway.might_be_among(source.frame, of_source, source.num_rows, of_target)


def is_filtered(merge: MergeContext) -> bool:
    """Whether :func:`filtered_condition` includes the filter."""
    keys, source, from_rows = _hashed_keys(merge), merge.source, merge.settings.key_filter_from_rows
    if not (keys and merge.settings.prune_by_source and 0 < source.num_rows <= _MOST_KEYS):
        return False
    if not from_rows:
        return True
    is_number = len(keys) == 1 and keys[0].type not in ("string", "binary")
    times = _TIMES_OF_NUMBERS if source.is_small and is_number else 1
    enough = from_rows * times * merge.gateway.default_parallelism
    return (merge.candidates.num_rows or 0) >= max(enough, source.num_rows * TARGET_ROWS_FOR_ONE)


def _hashed_keys(merge: MergeContext) -> list[Equality]:
    return [each for each in merge.statement.conjuncts.equalities if each.type in _HASHED_TYPES]


def _compared(key: Equality, side: Column) -> Column:
    """One side of the equality. Integers of different widths compare by value but hash by type, so they are widened."""
    return side.cast("bigint") if key.type in INTEGER_BITS else side
