"""Which target files can match: predicates for ``filterFiles`` from the condition, the clauses and the source.

Delta's own MERGE prunes by predicates that mention the target alone. Here the source is asked too: for an
equality between a target column and a source column, rows outside the source's range of that column cannot match
(the idea of delta-io/delta#517, #1563 and #2567). Keys that lie in clusters give several ranges, so that one stray
key does not make every file a candidate. A predicate is only used where it provably drops no match; for anything
else the file stays a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_delta_merge.engine.file_statistics import Range, Wanted, files_that_may_hold, is_comparable

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet, MergeTransaction, ResolvedMerge
    from airflow_delta_merge.engine.settings import Settings
    from airflow_delta_merge.engine.source import MaterializedSource

#: Types whose order in Delta's file statistics is the order of Spark's comparisons. Floating point is left out
#: (NaN), as are strings under a collation other than the binary one.
_RANGE_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string"})

#: A target column of a narrower integer type than the source's is compared as the wider one, but its statistics
#: are those of its own type: the source's range is cut to it.
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

#: Types whose values are compared as exact integers, which can be cut into clusters.
_WHOLE_TYPES = frozenset({*_INTEGER_BITS, "date", "timestamp"})

#: The source's range of a key is cut into so many equal parts to find its clusters.
_PARTS = 64

#: With a row for so many values of its range a key is taken to have no wide gaps.
_DENSE = 16

#: Keys are taken to lie evenly in their range if their mean and deviation are, by so much of it, those of such keys.
_EVEN = 0.02
#: So many rows are needed to tell.
_FEW_ROWS = 1_000

#: So few rows are grouped by one task, which spares a shuffle.
_ROWS_FOR_ONE_TASK = 200_000

#: A table of more files is worth leaving some out, be they as small as they may.
_FEW_FILES = 4


@dataclass(frozen=True)
class SourceKey:
    """An equality ``target column = source expression`` (or ``<=>``) that every match fulfils.

    :param target: the target's column.
    :param target_name: its name.
    :param source: the expression over the source, of the same type.
    :param type: that type, as Spark SQL writes it.
    :param null_safe: whether two NULLs are equal.
    :param name: prefix of the names of its statistics.
    """

    target: Column
    target_name: str
    source: Column
    type: str
    null_safe: bool
    name: str

    @property
    def value(self) -> Column:
        """The source's value; dates and timestamps as exact integers."""
        if self.type == "date":
            return F.unix_date(self.source)
        if self.type == "timestamp":
            return F.unix_micros(self.source)
        return self.source

    def statistics(self) -> list[Column]:
        """Aggregates over the source that :meth:`range_of`, :meth:`predicate` and the search for clusters need."""
        found = [F.min(self.value).alias(f"{self.name}_min"), F.max(self.value).alias(f"{self.name}_max")]
        if self.type in _WHOLE_TYPES:
            found += [
                F.avg(self.value).alias(f"{self.name}_mean"),
                F.stddev_pop(self.value).alias(f"{self.name}_spread"),
            ]
        if self.null_safe:
            found.append(F.count_if(self.source.isNull()).alias(f"{self.name}_nulls"))
        return found

    def range_of(self, statistics: dict[str, Any]) -> Range | None:
        """The source's range of the key; None when it has no value."""
        smallest, largest = statistics[f"{self.name}_min"], statistics[f"{self.name}_max"]
        return None if smallest is None else (smallest, largest)

    def predicate(self, statistics: dict[str, Any], clusters: Sequence[Range] | None) -> Column:
        """True for every target row that can equal a source row in this key.

        :param statistics: the source's.
        :param clusters: ranges that hold all its values, None to take its one range.
        """
        ranges = self._ranges(statistics, clusters)
        in_range = reduce(Column.__or__, map(self._in_range, ranges)) if ranges else F.lit(False)
        return in_range | self.target.isNull() if self._meets_null(statistics) else in_range

    def wanted(self, column: str, statistics: dict[str, Any], clusters: Sequence[Range] | None) -> Wanted:
        """The values that :meth:`predicate` is true for.

        :param column: the physical name of the target's column.
        """
        return Wanted(column, self.type, self._ranges(statistics, clusters), self._meets_null(statistics))

    def _ranges(self, statistics: dict[str, Any], clusters: Sequence[Range] | None) -> Sequence[Range]:
        whole = self.range_of(statistics)
        return clusters if clusters is not None else [whole] if whole is not None else []

    def _meets_null(self, statistics: dict[str, Any]) -> bool:
        return self.null_safe and bool(statistics[f"{self.name}_nulls"] > 0)

    def _in_range(self, values: Range) -> Column:
        smallest, largest = values
        if self.type in _INTEGER_BITS:
            bound = 1 << (_INTEGER_BITS[self.type] - 1)
            smallest, largest = max(smallest, -bound), min(largest, bound - 1)
            if smallest > largest:
                return F.lit(False)
        return (self.target >= self._literal(smallest)) & (self.target <= self._literal(largest))

    def _literal(self, value: Any) -> Column:
        if self.type == "date":
            return F.date_from_unix_date(F.lit(value))
        if self.type == "timestamp":
            return F.timestamp_micros(F.lit(value))
        return F.lit(value).cast(self.type)


def is_worth_pruning(statement: ResolvedMerge, transaction: MergeTransaction, settings: Settings) -> bool:
    """Whether to leave out files by the source's keys can spare more than it takes.

    To plan and compile the predicates takes as long as to read a few small files. Of a partitioned table they also
    keep the merge from conflicts with writers of other partitions, and for a merge that only inserts they can spare
    the join.
    """
    if not settings.prune_by_source:
        return False
    num_files, num_bytes = transaction.table_size
    if num_files > _FEW_FILES or num_bytes >= settings.prune_from_bytes:
        return True
    return bool(transaction.partition_columns) or all(each.kind == "not matched" for each in statement.clauses)


def source_keys(statement: ResolvedMerge, *, prefix: str) -> list[SourceKey]:
    """The equalities of the ON condition from which the source's rows tell a range of the target.

    :param prefix: what the statistics' names begin with.
    """
    keys = []
    for position, equality in enumerate(statement.equalities):
        if equality.type in _RANGE_TYPES or equality.type.startswith("decimal("):
            name = f"{prefix}_{position}"
            keys.append(
                SourceKey(
                    equality.target, equality.target_name, equality.source, equality.type, equality.null_safe, name
                )
            )
    return keys


@dataclass(frozen=True)
class Search:
    """Where matches are looked for.

    :param candidates: the files that may hold a row which must be looked at.
    :param row_predicates: predicates over the target, all of which are true for every row that can match.
    """

    candidates: FileSet
    row_predicates: list[Column]


def choose_files(
    statement: ResolvedMerge,
    transaction: MergeTransaction,
    keys: Sequence[SourceKey],
    source: MaterializedSource,
    settings: Settings,
) -> Search:
    """Choose the files by the clusters in which each key lies, or by its one range where there are none.

    To search for clusters first costs a small job where one range would have left few files. To choose twice by Delta's
    job would cost more where it leaves many, and tell Delta that the merge has looked at files between the clusters,
    with whose writers it would conflict. Files that the checksum file lists are chosen without a job.
    """
    statistics = source.statistics
    columns = _columns_to_compare(statement, transaction, keys) if keys else []
    listed = transaction.listed_statistics if columns else None

    def positions(clusters: dict[str, list[Range]]) -> list[int]:
        pairs = zip(keys, columns, strict=True)
        wanted = [key.wanted(column, statistics, clusters.get(key.name)) for key, column in pairs]
        return files_that_may_hold(wanted, listed or [])

    clusters: dict[str, list[Range]] = {}
    is_one_file = listed is not None and len(positions({})) <= 1
    if transaction.table_size[0] >= settings.cluster_keys_from and not is_one_file:
        clusters = key_clusters(source, keys)
    matching = row_predicates(statement, keys, statistics, clusters)
    predicates = candidate_predicates(statement, matching)
    if listed is not None:
        return Search(transaction.listed_files_at(positions(clusters), predicates), matching)
    return Search(transaction.filter_files(predicates) if predicates else transaction.all_files(), matching)


def _columns_to_compare(
    statement: ResolvedMerge, transaction: MergeTransaction, keys: Sequence[SourceKey]
) -> list[str]:
    """The physical names of the keys' columns, if files are chosen by nothing else and their values compared here."""
    if not all(is_comparable(key.type) for key in keys):
        return []
    kinds = {clause.kind for clause in statement.clauses}
    by_more_than_keys = (
        bool(transaction.partition_columns)
        or "not matched by source" in kinds
        or bool(statement.target_only_conjuncts)
        or (kinds == {"matched"} and all(statement.target_only_clause_conjuncts))
    )
    if by_more_than_keys:
        return []
    names = [transaction.physical_name(key.target_name) for key in keys]
    known = [name for name in names if name is not None]
    return known if len(known) == len(keys) else []


def key_clusters(source: MaterializedSource, keys: Sequence[SourceKey]) -> dict[str, list[Range]]:
    """Ranges that together hold all the source's values of a key, by the key's name, in one job for all keys.

    Each key's range is cut into equal parts; the values in each part give a range, and ranges with no wide gap
    between them are joined. Keys without a wide gap are left out.

    :param source: with the statistics of ``keys``.
    """
    statistics = source.statistics
    wanted = {key.name: key for key in keys if _may_have_gaps(key, source)}
    if not wanted:
        return {}
    parts = [
        F.struct(
            F.lit(name).alias("key"),
            key.value.cast("bigint").alias("value"),
            ((key.value.cast("bigint") - F.lit(_low(key, statistics))) / F.lit(_width(key, statistics)))
            .cast("int")
            .alias("part"),
        )
        for name, key in wanted.items()
    ]
    rows = source.frame.coalesce(1) if source.num_rows <= _ROWS_FOR_ONE_TASK else source.frame
    each = rows.select(F.explode(F.array(*parts)).alias("each")).select("each.*").filter("value IS NOT NULL")
    found = each.groupBy("key", "part").agg(F.min("value").alias("low"), F.max("value").alias("high")).collect()
    clusters = {}
    for name, key in wanted.items():
        ranges = sorted((row["low"], row["high"]) for row in found if row["key"] == name)
        joined = _joined(ranges, gap=_width(key, statistics))
        if len(joined) > 1:
            clusters[name] = joined
    return clusters


def _may_have_gaps(key: SourceKey, source: MaterializedSource) -> bool:
    """Whether the source has so few rows for the range of a key, so unevenly spread, that there may be wide gaps."""
    whole = key.range_of(source.statistics)
    if key.type not in _WHOLE_TYPES or whole is None:
        return False
    low, length = whole[0], whole[1] - whole[0]
    if not _PARTS < length < 1 << 62 or source.num_rows * _DENSE >= length:
        return False
    mean, spread = (float(source.statistics[f"{key.name}_{what}"]) for what in ("mean", "spread"))
    # A few values are as likely to look even as not.
    return source.num_rows < _FEW_ROWS or max(abs((mean - low) / length - 0.5), abs(spread / length - 12**-0.5)) > _EVEN


def _low(key: SourceKey, statistics: dict[str, Any]) -> int:
    return int(statistics[f"{key.name}_min"])


def _width(key: SourceKey, statistics: dict[str, Any]) -> int:
    return (int(statistics[f"{key.name}_max"]) - _low(key, statistics)) // _PARTS + 1


def _joined(ranges: Sequence[Range], *, gap: int) -> list[Range]:
    joined: list[Range] = []
    for low, high in ranges:
        if joined and low - joined[-1][1] <= gap // 4:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def row_predicates(
    statement: ResolvedMerge,
    keys: Sequence[SourceKey],
    statistics: dict[str, Any],
    clusters: dict[str, list[Range]],
) -> list[Column]:
    """Predicates over the target, all of which are true for every row that can match.

    :param statistics: the source's, for ``keys``.
    :param clusters: ranges by the key's name, as :func:`key_clusters` gives them.
    """
    matching = statement.target_only_conjuncts
    return matching + [key.predicate(statistics, clusters.get(key.name)) for key in keys]


def candidate_predicates(statement: ResolvedMerge, matching: Sequence[Column]) -> list[Column]:
    """Predicates over the target, all of which are true for every row that the merge must look at.

    They choose files by their statistics and are not evaluated for rows, where a clause's condition might raise an
    error for a row that it is not asked for.

    :param matching: what :func:`row_predicates` gives.
    """
    matching = list(matching)
    clauses = statement.clauses
    if all(clause.kind == "matched" for clause in clauses):
        # A row matters only if it fulfils the target's part of some clause's condition.
        parts = statement.target_only_clause_conjuncts
        if all(parts):
            matching.append(reduce(Column.__or__, map(_conjunction, parts)))
    by_source = [clause for clause in clauses if clause.kind == "not matched by source"]
    if not by_source:
        return matching
    if any(clause.condition is None for clause in by_source):
        return []
    # A row matters when it can match, or when a clause for rows without a match can take it. What both ask for stands
    # by itself: a predicate over partitions alone keeps writers of other partitions from conflicting.
    conditions = [clause.condition for clause in by_source if clause.condition is not None]
    either = reduce(Column.__or__, conditions, _conjunction(matching))
    return [*statement.conjuncts_of_every_candidate(), either]


def _conjunction(predicates: Sequence[Column]) -> Column:
    return reduce(Column.__and__, predicates, F.lit(True))
