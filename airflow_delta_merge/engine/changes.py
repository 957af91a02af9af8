"""What all merges that update or delete rows do: count rows, remove files, insert when nothing matches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from airflow_delta_merge.engine.inserts import set_adding_metrics, write_inserts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.delta_jvm.transaction import WrittenFiles
    from airflow_delta_merge.engine.delta_jvm.usage import MergeStep
    from airflow_delta_merge.engine.merge_context import MergeContext


def write_step(merge: MergeContext) -> MergeStep:
    """Delta's name for writing the new versions of rows."""
    if merge.transaction.writes_deletion_vectors:
        return "writeModifiedRowsOnly"
    matched_only = len(merge.clauses_of("matched")) == len(merge.statement.clauses)
    if matched_only and merge.gateway.flag("spark.databricks.delta.merge.optimizeMatchedOnlyMerge.enabled"):
        return "writeAllUpdatesAndDeletes"
    return "writeAllChanges"


def write_inserts_alone(merge: MergeContext, unmatched: Callable[[], DataFrame]) -> JavaObject:
    """Insert the source rows without a match, if there are insert clauses. Returns the actions that add files.

    :param unmatched: gives the source rows without a match.
    """
    with merge.recorded("writeInsertsOnlyWhenNoMatches"):
        if not merge.insert_clauses:
            merge.metrics.set(numSourceRowsInSecondScan=-1)  # Delta's value for "stopped early"
            return merge.gateway.seq([])
        with merge.metrics.phase("rewrite", "rewriteTimeMs"):
            return write_inserts(merge, unmatched())


def remove_files(merge: MergeContext, files: FileSet) -> JavaObject:
    """Actions that remove the rewritten files; sets the metrics of removed files."""
    merge.metrics.set(
        numTargetFilesRemoved=files.count,
        numTargetBytesRemoved=files.num_bytes,
        numTargetPartitionsRemovedFrom=files.partitions,
    )
    return merge.transaction.remove_actions(files)


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


def untouched_reason(merge: MergeContext) -> str:
    """The reason in the result of a merge that takes no row of the target."""
    inserts = "the unmatched source rows are appended" if merge.insert_clauses else "nothing is written"
    return f"no file is touched: {inserts}"
