"""Which target files can match: predicates for ``filterFiles`` from the condition, the clauses and the source.

Delta's own MERGE prunes by predicates that mention the target alone. Here the source is asked too: for an
equality between a target column and a source column, rows outside the source's range of that column cannot match
(the idea of delta-io/delta#517, #1563 and #2567). Keys that lie in clusters give several ranges, so that one stray
key does not make every file a candidate. A predicate is only used where it provably drops no match; for anything
else the file stays a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_delta_merge.engine.file_statistics import (
    files_of_a_value,
    files_that_may_hold,
    is_comparable,
    range_of_all,
)
from airflow_delta_merge.engine.key_clusters import key_clusters, with_widest_gaps
from airflow_delta_merge.engine.source_keys import LONGEST_CUT, WHOLE_TYPES, source_keys
from airflow_delta_merge.engine.trusted_bounds import Range, leaves_rows_out, with_margin
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet, MergeTransaction, ResolvedMerge
    from airflow_delta_merge.engine.settings import Settings
    from airflow_delta_merge.engine.source import MaterializedSource
    from airflow_delta_merge.engine.source_keys import SourceKey

#: Clusters are not looked for if so many of the source's rows need this part of the files in the keys' range, nor by a
#: key of which one value needs this part of all files.
_SAMPLED_ROWS = 2_000
_LARGEST_SHARE_OF_FILES = 0.75
#: A table of more files is worth leaving some out, be they as small as they may.
_FEW_FILES = 4
#: Clusters are not looked for where so many files, at most, come to each part of a key's range that the source fills.
_FILES_OF_A_PART = 2
_MOST_FILES_IN_PARTS = 128
#: Each row's key is compared with at most so many ranges.
_MOST_RANGES_OF_ROWS = 8
#: Conditions of the error for a text that is no value of a type.
_NO_SUCH_VALUE = ("CAST_INVALID_INPUT", "CAST_OVERFLOW")


def keys_to_prune_by(
    statement: ResolvedMerge, transaction: MergeTransaction, settings: Settings, *, prefix: str
) -> list[SourceKey]:
    """The keys whose values in the source shall leave out files; none where that is not worth its time.

    Where files will be chosen by statistics that are listed here, the keys know their columns and ranges:
    new keys beyond all that the table has, as in most upserts, don't widen the range in which matches are looked for.

    :param prefix: what the names of the keys' statistics begin with.
    """
    if not _is_worth_pruning(statement, transaction, settings):
        return []
    return _keys_and_statistics(statement, transaction, prefix=prefix)[0]


def _keys_and_statistics(
    statement: ResolvedMerge, transaction: MergeTransaction, *, prefix: str
) -> tuple[list[SourceKey], list[dict[str, Any]] | None]:
    """The keys, which know their columns if files are chosen by listed statistics, and these; None if they are not."""
    partitioned_by, in_utc = transaction.partition_columns, transaction.is_in_utc
    keys = source_keys(statement, partitioned_by=partitioned_by, in_utc=in_utc, prefix=prefix)
    columns = _columns_to_compare(statement, transaction, keys) if keys else []
    listed = transaction.files.listed_statistics if columns else None
    if listed is None:
        return keys, None
    return [_of_target(key, column, listed) for key, column in zip(keys, columns, strict=True)], listed


def _of_target(key: SourceKey, column: str, listed: Sequence[dict[str, Any]]) -> SourceKey:
    """The key with its column's range."""
    within = _range(key, column, listed)
    by_clusters = (
        within is not None
        and key.type in WHOLE_TYPES
        and within[1] - within[0] < LONGEST_CUT
        and len(listed) <= _MOST_FILES_IN_PARTS
    )
    return replace(key, column=column, within=within, by_clusters=by_clusters)


def _range(key: SourceKey, column: str, listed: Sequence[dict[str, Any]]) -> Range | None:
    """The range in which matches are looked for; None for all values.

    Values of partitions are all of interest: who adds to one that the table hadn't is in conflict with this merge.
    """
    bounds = None if key.of_partition else range_of_all(column, key.type, listed)
    if bounds is None:
        return None
    low, high = with_margin(key.type, bounds, in_utc=key.in_utc)
    return None if low is None or high is None else (low, high)


def _is_worth_pruning(statement: ResolvedMerge, transaction: MergeTransaction, settings: Settings) -> bool:
    """Whether to leave out files by the source's keys can spare more than it takes.

    To plan and compile the predicates takes as long as to read a few small files. Of a partitioned table they also
    keep the merge from conflicts with writers of other partitions, and for a merge that only inserts they can spare
    the join.
    """
    if not settings.prune_by_source:
        return False
    num_files, num_bytes = transaction.files.table_size
    if num_files > _FEW_FILES or num_bytes >= settings.prune_from_bytes:
        return True
    return bool(transaction.partition_columns) or all(each.kind == "not matched" for each in statement.clauses)


def tells_files_apart(statement: ResolvedMerge, transaction: MergeTransaction) -> bool:
    """Whether values of the source's keys may leave out files; not if it is known that each may be in most of them."""
    keys, listed = _keys_and_statistics(statement, transaction, prefix="")
    return listed is None or any(_tells_files_apart(key, listed) for key in keys)


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

    To search for clusters first costs a job where one range would have left few files, or where each value needs most
    of them. To choose twice by Delta's job would cost more where it leaves many, and tell Delta that the merge has
    looked at files between the clusters, with whose writers it would conflict. Files that are listed here are chosen
    without a job.
    """
    statistics = source.statistics
    keys = [key for key in keys if key.leaves_files_out(statistics)]
    # Either all keys have a column or none.
    listed = transaction.files.listed_statistics if any(key.column is not None for key in keys) else None

    def positions(clusters: dict[str, list[Range]]) -> list[int]:
        return files_that_may_hold([key.wanted(statistics, clusters.get(key.name)) for key in keys], listed or [])

    clusters: dict[str, list[Range]] = {}
    by_range = transaction.files.table_size[0] if listed is None else len(positions({}))
    if transaction.files.table_size[0] >= settings.cluster_keys_from and by_range > 1:
        clustered = keys if listed is None else [key for key in keys if _may_have_clusters(key, statistics, listed)]
        some = None if listed is None else source.some_rows(_SAMPLED_ROWS)
        # What some rows need all of them need.
        if some is None or len(positions(key_clusters(some, clustered))) < by_range * _LARGEST_SHARE_OF_FILES:
            clusters = key_clusters(source, clustered)
    # All rows of a file have one value of a partition column, so these choose among files alone.
    rows_too = [key for key in keys if leaves_rows_out(key.type) and not key.of_partition]
    # To compare each row's text with several ranges, or its number with many, takes longer than it spares.
    of_rows = {
        key.name: with_widest_gaps(clusters[key.name], most=_MOST_RANGES_OF_ROWS)
        for key in rows_too
        if key.name in clusters and key.type != "string"
    }
    matching = row_predicates(statement, rows_too, statistics, of_rows)
    if listed is not None:
        by_partition = [key for key in keys if key.of_partition]
        predicates = [key.predicate(statistics, clusters.get(key.name)) for key in by_partition]
        chosen = transaction.files.listed_at(positions(clusters), predicates)
        if chosen is not None:
            return Search(chosen, matching)
    is_same = of_rows == clusters and len(rows_too) == len(keys)
    of_files = matching if is_same else row_predicates(statement, keys, statistics, clusters)
    return Search(candidate_files(statement, transaction, of_files), matching)


def _may_have_clusters(key: SourceKey, statistics: dict[str, Any], listed: Sequence[dict[str, Any]]) -> bool:
    """Whether clusters of a key can leave out files that its range does not.

    They don't if the source's values lie in each of the parts of the target's range between their smallest and their
    greatest, provided that the parts are as narrow as the files.
    """
    if not _tells_files_apart(key, listed):
        return False
    filled = key.filled_parts(statistics)
    if filled is None:
        return True
    return len(files_that_may_hold([key.wanted(statistics, None)], listed)) > filled * _FILES_OF_A_PART


def _tells_files_apart(key: SourceKey, listed: Sequence[dict[str, Any]]) -> bool:
    """Whether one value of a key can leave out files: not if its values lie anywhere, as those of hashes do."""
    assert key.column is not None, "only such keys choose files by listed statistics"
    return files_of_a_value(key.column, key.type, listed) < len(listed) * _LARGEST_SHARE_OF_FILES


def _columns_to_compare(
    statement: ResolvedMerge, transaction: MergeTransaction, keys: Sequence[SourceKey]
) -> list[str]:
    """The physical names of the keys' columns, if files are chosen by nothing else and their values compared here."""
    if not all(is_comparable(key.type) for key in keys):
        return []
    kinds = {clause.kind for clause in statement.clauses}
    by_more_than_keys = (
        "not matched by source" in kinds
        or bool(statement.target_only_conjuncts)
        or (kinds == {"matched"} and all(statement.target_only_clause_conjuncts))
    )
    if by_more_than_keys:
        return []
    names = [transaction.files.physical_name(key.target_name) for key in keys]
    known = [name for name in names if name is not None]
    return known if len(known) == len(keys) else []


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


def candidate_files(statement: ResolvedMerge, transaction: MergeTransaction, matching: Sequence[Column]) -> FileSet:
    """The files that :func:`candidate_predicates` leave, which count as read; all where there are none.

    Delta casts the texts of partition values in the session's way. Spark, when it reads the rows, takes NULL for one
    that is no value of the type, such as the empty text of some writers. So the keys' ranges must not fail the merge.
    """
    predicates = candidate_predicates(statement, matching)
    try:
        return transaction.files.filter(predicates) if predicates else transaction.files.all()
    except MergeExecutionError as error:
        without_keys = statement.target_only_conjuncts
        if error.condition not in _NO_SUCH_VALUE or len(matching) == len(without_keys):
            raise
        return candidate_files(statement, transaction, without_keys)


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
