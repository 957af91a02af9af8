"""Inserts of a source that is written as it is read, and not kept.

To keep the source tells which files can hold its keys, and spares their rows' comparison with it. Where there are no
files, where all are read in no time, or where a large source's keys may be in any of them, that is not worth a job of
its own and the rows' memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import record_operation
from airflow_delta_merge.engine.insert_only_merge import append_rows, inserts_only, set_skipping_metrics
from airflow_delta_merge.engine.key_filter import TARGET_ROWS_FOR_ONE
from airflow_delta_merge.engine.pruning import candidate_files, tells_files_apart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.delta_jvm import JavaObject, MergeStep
    from airflow_delta_merge.engine.merge_context import StartedMerge

FIRST_LOAD = "the table has no files: the source is appended as it is read"
SMALL_TABLE = "only insert clauses and a small table: it is broadcast to the source, which is appended as it is read"
LARGE_SOURCE = (
    "only insert clauses and a large source whose keys may be in any file: what is left of it is appended as it is read"
)

#: Spark takes what it knows nothing of for 8 exabytes. This is more than enough not to bring tasks together.
_MOST_BYTES = 1 << 50

#: So many rows are broadcast in the time that it takes to keep a source and to look at its keys.
_MOST_ROWS = 500_000
#: Rows take several times as much in memory as in files.
_TIMES_OF_FILES = 4
#: A table that is so many times as large as what is joined once is read whole for a source that is no smaller.
_TIMES_FOR_LARGE_SOURCE = 4


def reason_to_read_once(merge: StartedMerge) -> str | None:
    """Why the source should be written as it is read; None if it must be looked at before, or is better kept."""
    # First what is known without a call: most merges are neither.
    if not (_inserts_all(merge) if _is_empty(merge) else inserts_only(merge)):
        return None
    # Rows that get identity values are shuffled to as many tasks as their size asks for.
    if _is_partition_a_key(merge) or merge.transaction.generates_identity:
        return None
    if not merge.gateway.flag("spark.databricks.delta.stats.collect"):  # these tell how many rows were written
        return None
    if _is_empty(merge):
        return FIRST_LOAD
    if not merge.settings.read_once:
        return None
    if _is_table_small(merge):
        return SMALL_TABLE
    is_better_read = _is_source_large(merge) and not tells_files_apart(merge.statement, merge.transaction)
    return LARGE_SOURCE if is_better_read else None


def _is_empty(merge: StartedMerge) -> bool:
    """Whether the table has no files, so that no source row has a match."""
    return merge.transaction.files.table_size[0] == 0


def _is_partition_a_key(merge: StartedMerge) -> bool:
    """Whether the source tells which partitions the merge reads, so that it must be looked at first.

    Backfills of several partitions beside each other are in no conflict then.
    """
    return any(key.target_name in merge.transaction.partition_columns for key in merge.statement.equalities)


def _inserts_all(merge: StartedMerge) -> bool:
    """Whether every source row is inserted into a table without files, so that the new rows tell their number."""
    return merge.settings.first_load and any(clause.condition is None for clause in merge.insert_clauses)


def _is_table_small(merge: StartedMerge) -> bool:
    """Whether to read the whole table takes no longer than to keep the source, by what is known of both.

    Spark may take the source for far larger than it is, so that the table must be one that is read soon in any case.
    """
    transaction, most_bytes = merge.transaction, merge.settings.join_once_bytes
    _, num_bytes = transaction.files.table_size
    if num_bytes > most_bytes * _TIMES_FOR_LARGE_SOURCE:
        return False
    num_rows = transaction.files.num_listed_rows
    if num_rows is None or num_rows > _MOST_ROWS:
        return False
    return num_bytes <= most_bytes or merge.statement.estimated_source_bytes >= num_bytes


def _is_source_large(merge: StartedMerge) -> bool:
    """Whether the source is sure to be shuffled: files that are read whole, since of all else Spark knows no size.

    Beside a table that is many times as large, a filter of its keys would spare shuffling most of the table's.
    """
    statement, (_, table_bytes) = merge.statement, merge.transaction.files.table_size
    least = max(merge.settings.broadcast_bytes // _TIMES_OF_FILES, table_bytes // TARGET_ROWS_FOR_ONE)
    return bool(statement.equalities) and statement.reads_whole_files and statement.estimated_source_bytes >= least


def unmatched_rows(merge: StartedMerge) -> DataFrame:
    """The source rows that match no row of the table, each computed once; sets the metrics of files.

    For a table with files Delta's metric ``numSourceRows`` is counted as they are computed, as the built-in MERGE does.
    """
    statement, transaction = merge.statement, merge.transaction
    # They count as read, so that of two first loads at a time one is in conflict with the other.
    candidates = candidate_files(statement, transaction, statement.target_only_conjuncts)
    set_skipping_metrics(merge, candidates)
    source = statement.source_frame()
    if _is_empty(merge):
        return source
    counted = statement.counting_rows(source, "numSourceRows")
    # Constants of a source that isn't kept reach the scan of the target, where Spark compares them with Parquet's
    # statistics as they are: wrong for texts that are no UTF-8, and for what some writers write there.
    target = transaction.target.frame(candidates, reads_all_rows=True)
    if _is_table_small(merge):
        target = F.broadcast(target)
    return counted.join(target, statement.condition, "left_anti")


def write_unmatched_rows(merge: StartedMerge) -> JavaObject:
    """Read the source, once, and write what the insert clauses make of its unmatched rows; sets the metrics.

    :return: JVM sequence of file actions.
    """
    step: MergeStep = "writeInsertsOnlyWhenNoMatchedClauses"
    if not inserts_only(merge):  # into a table without files
        record_operation(merge.gateway, merge.statement, "findTouchedFiles")
        step = "writeInsertsOnlyWhenNoMatches"
    with merge.metrics.phase("rewrite", "rewriteTimeMs"), merge.recorded(step):
        unmatched = unmatched_rows(merge)
        input_bytes = min(merge.statement.estimated_source_bytes, _MOST_BYTES)
        added = append_rows(merge, unmatched, input_bytes=input_bytes)
    set_source_metrics(merge)
    return added


def set_source_metrics(merge: StartedMerge) -> None:
    """Set the number of source rows, once their unmatched ones were computed."""
    if _is_empty(merge):
        merge.metrics.set(numSourceRows=merge.metrics.values["numTargetRowsInserted"])
    else:
        merge.metrics.read_back()
    merge.metrics.set(operationNumSourceRows=merge.metrics.values["numSourceRows"])
