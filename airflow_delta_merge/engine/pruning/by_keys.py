"""Which target files can match, by the keys of the source.

Delta's own MERGE prunes only by predicates on the target. This engine also uses the source: for an equality between a
target column and a source column, rows outside the source's range of that column cannot match (the idea of
delta-io/delta#517, #1563 and #2567). Clustered keys give several ranges, so that one stray key does not make every
file a candidate. A predicate is only used if it provably drops no match; otherwise the file stays a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from airflow_delta_merge.engine.data_files.file_statistics import (
    files_of_a_value,
    files_that_may_hold,
    is_comparable,
    range_of_all,
)
from airflow_delta_merge.engine.data_files.trusted_bounds import Range, leaves_rows_out
from airflow_delta_merge.engine.pruning.candidate_files import candidate_files
from airflow_delta_merge.engine.pruning.key_clusters import key_clusters, with_widest_gaps
from airflow_delta_merge.engine.pruning.source_keys import LONGEST_CUT, WHOLE_TYPES, SourceKey, source_keys

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.source.materialized import MaterializedSource
    from airflow_delta_merge.engine.started_merge import StartedMerge

#: The search for clusters is skipped if a sample of this many source rows already needs this share of the files in the
#: keys' range, or if a single value of a key needs this share of all files.
_SAMPLED_ROWS = 2_000
_LARGEST_SHARE_OF_FILES = 0.75
#: Pruning pays off for tables of more files, however small, and for tables of at least this part of a small merge.
_FEW_FILES = 4
_PART_OF_SMALL_MERGE = 8
#: Fewer files are searched faster than clusters are found, unless they are larger than a small merge.
_FILES_FOR_CLUSTERS = 8
#: The search for clusters is skipped if the parts that the source fills average at most this many files each.
_FILES_OF_A_PART = 2
_MOST_FILES_IN_PARTS = 128
#: Maximum number of ranges that each row's key is compared with.
_MOST_RANGES_OF_ROWS = 8


def keys_to_prune_by(merge: StartedMerge) -> list[SourceKey]:
    """The keys whose values in the source leave out files; none if pruning does not pay off.

    Where listed statistics choose the files, the keys know their columns and ranges. New keys beyond the table's
    values, as in most upserts, then don't widen the range of the search.
    """
    return _keys_and_statistics(merge)[0] if _is_worth_pruning(merge) else []


def _keys_and_statistics(merge: StartedMerge) -> tuple[list[SourceKey], list[dict[str, Any]] | None]:
    """The keys, and the listed statistics if these choose the files (the keys then know their columns), else None."""
    keys = source_keys(merge)
    columns = _columns_to_compare(merge, keys) if keys else []
    listed = merge.transaction.files.listed_statistics if columns else None
    if listed is None:
        return keys, None
    return [_of_target(key, column, listed) for key, column in zip(keys, columns, strict=True)], listed


def _of_target(key: SourceKey, column: str, listed: Sequence[dict[str, Any]]) -> SourceKey:
    """The key with its column, and with the range to search for matches; None for all values."""
    # Partition columns have no range: a writer that adds a new partition must conflict with this merge.
    within = None if key.of_partition else range_of_all(column, key.type, listed)
    by_clusters = (
        within is not None
        and key.type in WHOLE_TYPES
        and within[1] - within[0] < LONGEST_CUT
        and len(listed) <= _MOST_FILES_IN_PARTS
    )
    return replace(key, column=column, within=within, by_clusters=by_clusters)


def _is_worth_pruning(merge: StartedMerge) -> bool:
    """Whether pruning by the source's keys can save more time than it costs.

    Planning and compiling the predicates takes as long as reading a few small files. In a partitioned table they also
    prevent conflicts with writers of other partitions, and for an insert-only merge they can avoid the join.
    """
    if not merge.settings.prune_by_source:
        return False
    num_files, num_bytes = merge.transaction.files.table_size
    if num_files > _FEW_FILES or num_bytes >= merge.settings.small_merge_bytes // _PART_OF_SMALL_MERGE:
        return True
    return bool(merge.transaction.partition_columns) or not merge.target_clauses


def keys_separate_files(merge: StartedMerge) -> bool:
    """Whether the source's keys may leave out files. False if each value is known to be possible in most files."""
    keys, listed = _keys_and_statistics(merge)
    return listed is None or any(_separates_files(key, listed) for key in keys)


def choose_files(
    merge: StartedMerge, keys: Sequence[SourceKey], source: MaterializedSource
) -> tuple[FileSet, list[Column]]:
    """Choose the files by the clusters of each key, or by its single range if it has no clusters.

    Searching for clusters costs a job, which is wasted if one range leaves few files or each value needs most files.
    Choosing twice with Delta's job would cost more, and would make Delta count the files between the clusters as read,
    so the merge would conflict with their writers. Listed files are chosen without a job.

    The rows are chosen by keys alone. Spark would compare other parts of ON with statistics that not every writer
    can be trusted with. For a Python function it would also read ahead, and the rows would get a later file's name.

    :return: the files that may hold a row that the merge must read; and predicates over the target, all of which are
        true for every row that can match.
    """
    files = merge.transaction.files
    keys = [replace(key, found=source.statistics) for key in keys]
    keys = [key for key in keys if key.leaves_files_out]
    # Either all keys have a column or none.
    listed = files.listed_statistics if any(key.column is not None for key in keys) else None

    def positions(clusters: dict[str, list[Range]]) -> list[int]:
        return files_that_may_hold([key.sought_ranges(clusters.get(key.name)) for key in keys], listed or [])

    clusters: dict[str, list[Range]] = {}
    by_range = files.table_size[0] if listed is None else len(positions({}))
    if by_range > 1 and _is_worth_clustering(merge):
        clustered = keys if listed is None else [key for key in keys if _may_have_clusters(key, listed)]
        some = None if listed is None else source.some_rows(_SAMPLED_ROWS)
        # The files that a sample needs, all rows need.
        if some is None or len(positions(key_clusters(some, clustered))) < by_range * _LARGEST_SHARE_OF_FILES:
            clusters = key_clusters(source, clustered)
    # All rows of a file have the same partition values, so partition keys only choose files.
    rows_too = [key for key in keys if leaves_rows_out(key.type) and not key.of_partition]
    # Comparing each row's text with several ranges, or its number with many, costs more than it saves.
    of_rows = {
        key.name: with_widest_gaps(clusters[key.name], most=_MOST_RANGES_OF_ROWS)
        for key in rows_too
        if key.name in clusters and key.type != "string"
    }
    of_keys = [key.predicate(of_rows.get(key.name)) for key in rows_too]
    if listed is not None:
        by_partition = [key for key in keys if key.of_partition]
        predicates = [key.predicate(clusters.get(key.name)) for key in by_partition]
        chosen = files.listed_at(positions(clusters), predicates)
        if chosen is not None:
            return chosen, of_keys
    is_same = of_rows == clusters and len(rows_too) == len(keys)
    of_files = of_keys if is_same else [key.predicate(clusters.get(key.name)) for key in keys]
    return candidate_files(merge, of_files), of_keys


def _is_worth_clustering(merge: StartedMerge) -> bool:
    num_files, num_bytes = merge.transaction.files.table_size
    return num_files >= _FILES_FOR_CLUSTERS or num_bytes >= merge.settings.small_merge_bytes


def _may_have_clusters(key: SourceKey, listed: Sequence[dict[str, Any]]) -> bool:
    """Whether clusters of a key can leave out files that its range does not.

    They can't if the source has values in every part of the target's range between its smallest and its greatest value,
    provided that the parts are as narrow as the files.
    """
    if not _separates_files(key, listed):
        return False
    filled = key.filled_parts()
    if filled is None:
        return True
    return len(files_that_may_hold([key.sought_ranges(None)], listed)) > filled * _FILES_OF_A_PART


def _separates_files(key: SourceKey, listed: Sequence[dict[str, Any]]) -> bool:
    """Whether one value of a key can leave out files. It can't if values are spread over all files, like hashes."""
    assert key.column is not None, "only such keys choose files by listed statistics"
    return files_of_a_value(key.column, key.type, listed) < len(listed) * _LARGEST_SHARE_OF_FILES


def _columns_to_compare(merge: StartedMerge, keys: Sequence[SourceKey]) -> list[str]:
    """The physical names of the keys' columns, if only keys choose the files and their types are comparable here."""
    if not all(is_comparable(key.type) for key in keys):
        return []
    statement = merge.statement
    kinds = {clause.kind for clause in statement.clauses}
    by_more_than_keys = (
        "not matched by source" in kinds
        or bool(statement.conjuncts.target_only)
        or (kinds == {"matched"} and all(statement.conjuncts.target_only_of_clauses))
    )
    if by_more_than_keys:
        return []
    names = [merge.transaction.files.physical_name(key.target_name) for key in keys]
    known = [name for name in names if name is not None]
    return known if len(known) == len(keys) else []
