"""Which target rows are looked for in the source at all: a Bloom filter of the source's keys.

Of the rows that a search reads most match nothing, and to find that out by the source's hash table, which is larger
than a processor's cache, takes longer than to read them. A filter of one byte a source row lets few of them through.
Spark makes such filters for shuffled joins with a filtered side, never for broadcast ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import Equality, FileSet, Gateway, ResolvedMerge
    from airflow_delta_merge.engine.settings import Settings
    from airflow_delta_merge.engine.source import MaterializedSource

_INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "bigint"})
#: Types of which equal values have one hash: no floating point (-0.0 = 0.0), no collation but the binary one.
_HASHED_TYPES = _INTEGER_TYPES | {"date", "timestamp", "timestamp_ntz", "string", "binary"}

#: So many rows are read for each source row at least: most of them can't match then.
_TARGET_ROWS_FOR_ONE = 4
#: A broadcast hash table of single numbers is nearly as quick as the filter, so that it takes more rows to pay.
_TIMES_OF_NUMBERS = 4
#: As many as Spark's aggregate makes a filter of, by its default.
_MOST_KEYS = 4_000_000


def key_filter(
    gateway: Gateway,
    statement: ResolvedMerge,
    source: MaterializedSource,
    candidates: FileSet,
    settings: Settings,
) -> Column | None:
    """A predicate over the target that is true for every row that can match, and false for most others.

    Its filter is made by a small job when rows are first filtered by it.

    :return: None where to make the filter takes longer than it spares.
    """
    keys = [each for each in statement.equalities if each.type in _HASHED_TYPES]
    if not (keys and settings.prune_by_source and _is_worth_it(gateway, keys, source, candidates, settings)):
        return None
    of_source = F.xxhash64(*(_compared(each, each.source) for each in keys))
    of_target = F.xxhash64(*(_compared(each, each.target) for each in keys))
    return gateway.might_be_among(source.frame, of_source, source.num_rows, of_target)


def _is_worth_it(
    gateway: Gateway,
    keys: Sequence[Equality],
    source: MaterializedSource,
    candidates: FileSet,
    settings: Settings,
) -> bool:
    if not 0 < source.num_rows <= _MOST_KEYS:
        return False
    if not settings.key_filter_from_rows:
        return True
    is_number = len(keys) == 1 and keys[0].type not in ("string", "binary")
    times = _TIMES_OF_NUMBERS if source.is_small and is_number else 1
    enough = settings.key_filter_from_rows * times * gateway.default_parallelism()
    return (candidates.num_rows or 0) >= max(enough, source.num_rows * _TARGET_ROWS_FOR_ONE)


def _compared(key: Equality, side: Column) -> Column:
    """One side of the equality; integers of different width are equal by their value, but hashed by their type."""
    return side.cast("bigint") if key.type in _INTEGER_TYPES else side
