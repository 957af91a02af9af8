"""Steps that all strategies share which update or delete rows: remove files, insert when nothing matches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_delta_merge.engine.rows.inserts import write_inserts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
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


def untouched_reason(merge: MergeContext) -> str:
    """The reason in the result of a merge that takes no row of the target."""
    inserts = "the unmatched source rows are appended" if merge.insert_clauses else "nothing is written"
    return f"no file is touched: {inserts}"
