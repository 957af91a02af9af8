"""Merges that only insert: source rows that match no target row are appended, nothing is removed or rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.change_data import with_insert_rows
from airflow_delta_merge.engine.key_filter import filtered_condition, is_filtered
from airflow_delta_merge.engine.matches import search_tasks
from airflow_delta_merge.engine.output import clause_number, inserted_columns

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet, JavaObject, TrackingColumn
    from airflow_delta_merge.engine.merge_context import MergeContext, StartedMerge

#: To build a hash table of so many source rows and one of their matches takes longer than to shuffle them, if a filter
#: leaves few of the target's rows to be shuffled with them.
_MANY_ROWS = 100_000


def inserts_only(merge: StartedMerge) -> bool:
    """Whether the merge has insert clauses alone, and the session lets it pass over several matches of a row."""
    insert_only = bool(merge.insert_clauses) and not merge.target_clauses
    return insert_only and merge.gateway.flag("spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled")


class InsertOnlyMergeExecutor:
    """Writes source rows that match nothing, for merges with insert clauses only.

    1. Prune: only files whose rows the source's keys can equal are searched.
    2. Anti join: source rows with a match in those files are left out. A small source is broadcast to find its
       matched rows, so that the target is never shuffled; without a candidate file there is no join at all.
    3. Write (:func:`write_inserts`): the rows that an insert clause takes are appended.
    """

    def __init__(self, merge: MergeContext) -> None:
        self._merge = merge
        self.reason = ""

    def find_unmatched(self) -> DataFrame:
        """The source rows that match no row of the candidate files."""
        merge = self._merge
        set_skipping_metrics(merge, merge.candidates)
        return self._unmatched(merge.candidates)

    def _unmatched(self, candidates: FileSet) -> DataFrame:
        merge = self._merge
        source = merge.source
        if candidates.count == 0 or source.num_rows == 0:
            self.reason = "only insert clauses, and no file can hold a match: the source is appended without a join"
            return source.frame
        target = merge.transaction.target.frame(candidates, most_tasks=search_tasks(merge, candidates))
        if not source.is_small or (source.num_rows >= _MANY_ROWS and is_filtered(merge)):
            self.reason = "only insert clauses: the source is joined with the candidate files and appended"
            return source.frame.join(target, filtered_condition(merge), "left_anti")
        self.reason = "only insert clauses: the source is broadcast to the candidate files and appended"
        matched = target.join(source.for_join(), filtered_condition(merge), "inner").select(
            F.col(merge.names.source_row_id).alias(merge.names.matched_row_id)
        )
        return merge.source_without(matched)


def inserted_rows(
    merge: StartedMerge,
    unmatched: DataFrame,
    *,
    tracking: Sequence[TrackingColumn] = (),
    change_data: bool = False,
) -> DataFrame:
    """The rows that the insert clauses make of source rows without a match.

    :param tracking: columns by which the table tracks its rows; they are NULL for new rows.
    :param change_data: whether change rows are written beside the data; a merge that only appends needs none.
    :return: columns of the table's final schema, ``tracking`` and, with change data, ``_change_type``.
    """
    clauses = merge.insert_clauses
    number = F.col(merge.names.clause)
    numbered = unmatched.select("*", clause_number(clauses).alias(merge.names.clause)).filter(number > 0)
    values = inserted_columns(clauses, number)
    values += [F.lit(None).cast("bigint") for _ in tracking]
    columns = merge.output_columns(values, tracking)
    rows = with_insert_rows(numbered, columns) if change_data else numbered.select(*columns)
    return merge.transaction.target.marked_as_tracking(rows, tracking)


def write_inserts(merge: MergeContext, unmatched: DataFrame) -> JavaObject:
    """Append what the insert clauses make of ``unmatched`` and set the metrics of added files."""
    if merge.source.num_rows == 0:
        return merge.gateway.seq([])
    return append_rows(merge, unmatched, input_bytes=merge.source.num_bytes)


def append_rows(merge: StartedMerge, unmatched: DataFrame, *, input_bytes: int) -> JavaObject:
    """As :func:`write_inserts`, of a merge whose source need not have been read.

    :param input_bytes: a rough size of ``unmatched``.
    """
    rows = inserted_rows(merge, unmatched)
    added = merge.write.write_files(rows, input_bytes=input_bytes)
    files = merge.transaction.files.file_set(added)
    set_adding_metrics(merge, files)
    merge.metrics.set(numTargetRowsInserted=files.num_rows if files.num_rows is not None else rows.count())
    return added


def set_adding_metrics(merge: StartedMerge, added: FileSet) -> None:
    """Set the metrics of files that were written and are added to the table."""
    merge.metrics.set(
        numTargetFilesAdded=added.count,
        numTargetBytesAdded=added.num_bytes,
        numTargetPartitionsAddedTo=added.partitions,
    )


def set_skipping_metrics(merge: StartedMerge, candidates: FileSet) -> None:
    """Set the metrics of files before and after data skipping."""
    num_files, num_bytes = merge.transaction.files.table_size
    merge.metrics.set(
        numTargetFilesBeforeSkipping=num_files,
        numTargetBytesBeforeSkipping=num_bytes,
        numTargetFilesAfterSkipping=candidates.count,
        numTargetBytesAfterSkipping=candidates.num_bytes,
        numTargetPartitionsAfterSkipping=candidates.partitions,
    )
