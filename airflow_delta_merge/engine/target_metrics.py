"""Sets the metrics of the target's rows and files, under Delta's names, from what a merge has counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.delta_jvm.transaction import WrittenFiles
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.started_merge import StartedMerge


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


def set_adding_metrics(merge: StartedMerge, added: FileSet) -> None:
    """Set the metrics of files that were written and are added to the table."""
    merge.metrics.set(
        numTargetFilesAdded=added.count,
        numTargetBytesAdded=added.num_bytes,
        numTargetPartitionsAddedTo=added.partitions,
    )


def set_written_metrics(merge: MergeContext, written: WrittenFiles) -> None:
    """Set the metrics of added data files and change files."""
    set_adding_metrics(merge, written.added)
    merge.metrics.set(numTargetChangeFilesAdded=written.num_change_files, numTargetChangeFileBytes=written.change_bytes)


def count_rows(merge: MergeContext, files: FileSet, rows_of_clause: Sequence[int]) -> None:
    """Set the metrics of updated, deleted and copied rows.

    :param files: the touched files.
    :param rows_of_clause: target rows that each clause takes, in the order of the clauses' numbers.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for clause, rows in zip(merge.target_clauses, rows_of_clause, strict=True):
        counts[clause.kind, clause.action] += rows
    updated = counts["matched", "update"] + counts["not matched by source", "update"]
    deleted = counts["matched", "delete"] + counts["not matched by source", "delete"]
    copied = 0 if merge.transaction.writes_deletion_vectors else _num_rows(merge, files) - updated - deleted
    merge.metrics.set(
        numTargetRowsUpdated=updated,
        numTargetRowsMatchedUpdated=counts["matched", "update"],
        numTargetRowsNotMatchedBySourceUpdated=counts["not matched by source", "update"],
        numTargetRowsDeleted=deleted,
        numTargetRowsMatchedDeleted=counts["matched", "delete"],
        numTargetRowsNotMatchedBySourceDeleted=counts["not matched by source", "delete"],
        numTargetRowsCopied=copied,
    )


def _num_rows(merge: MergeContext, files: FileSet) -> int:
    if files.num_rows is not None:
        return files.num_rows
    return merge.transaction.target.frame(files).count()
