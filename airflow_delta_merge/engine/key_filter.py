"""Which target rows are looked for in the source at all: a Bloom filter of the source's keys.

Of the rows that a search reads most match nothing, and to find that out by the source's hash table, which is larger
than a processor's cache, takes longer than to read them. A filter of one byte a source row lets few of them through.
Spark makes such filters for shuffled joins with a filtered side, never for broadcast ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_delta_merge.engine.trusted_bounds import INTEGER_BITS

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import Equality
    from airflow_delta_merge.engine.merge_context import MergeContext

#: Types of which equal values have one hash: no floating point (-0.0 = 0.0), no collation but the binary one.
_HASHED_TYPES = frozenset({*INTEGER_BITS, "date", "timestamp", "timestamp_ntz", "string", "binary"})

#: So many rows are read for each source row at least: most of them can't match then.
TARGET_ROWS_FOR_ONE = 4
#: A broadcast hash table of single numbers is nearly as quick as the filter, so that it takes more rows to pay.
_TIMES_OF_NUMBERS = 4
#: As many as Spark's aggregate makes a filter of, by its default.
_MOST_KEYS = 4_000_000


def filtered_condition(merge: MergeContext) -> Column:
    """The condition by which a search joins target rows with the source, where it needs those alone that match.

    Where it is worth its time, the condition asks the filter, too, which is true for every row that can match, and
    false for most others. A small job makes it when the join runs. It reads the source, and stands in the join's
    condition rather than in a filter of the target: of a relation that Spark meets twice the second gets new
    attributes, and to Spark a join's condition comes after both its sides.
    """
    condition, source = merge.statement.condition, merge.source
    if not is_filtered(merge):
        return condition
    keys = _hashed_keys(merge)
    of_source = F.xxhash64(*(_compared(each, each.source) for each in keys))
    of_target = F.xxhash64(*(_compared(each, each.target) for each in keys))
    return condition & merge.gateway.might_be_among(source.frame, of_source, source.num_rows, of_target)


def is_filtered(merge: MergeContext) -> bool:
    """Whether :func:`filtered_condition` asks a filter."""
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
    return [each for each in merge.statement.equalities if each.type in _HASHED_TYPES]


def _compared(key: Equality, side: Column) -> Column:
    """One side of the equality; integers of different width are equal by their value, but hashed by their type."""
    return side.cast("bigint") if key.type in INTEGER_BITS else side
