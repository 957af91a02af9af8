"""Inserts a source that is written while it is read, without keeping it.

Keeping the source shows which files can hold its keys, so fewer rows are compared. That is not worth an extra job and
the memory if the table has no files, if reading all of them is fast, or if a large source's keys may be in any file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm.usage import MergeStep, record_operation
from airflow_delta_merge.engine.pruning.candidate_files import candidate_files
from airflow_delta_merge.engine.rows.inserts import append_rows, counted_inserts
from airflow_delta_merge.engine.strategies.facts import MOST_ROWS, Facts
from airflow_delta_merge.engine.strategies.outcome import Outcome, Preview
from airflow_delta_merge.engine.target_metrics import set_skipping_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.started_merge import StartedMerge

FIRST_LOAD = "the table has no files: the source is appended as it is read"
SMALL_TABLE = "only insert clauses and a small table: it is broadcast to the source, which is appended as it is read"
LARGE_SOURCE = (
    "only insert clauses and a large source whose keys may be in any file: what is left of it is appended as it is read"
)

#: Spark assumes 8 exabytes for an unknown size. This cap is still large enough to keep tasks from being merged.
_MOST_BYTES = 1 << 50

#: A table up to this many times the small-merge size is read in full if the source is at least as large.
_TIMES_FOR_LARGE_SOURCE = 4


class StreamInserts:
    """Appends source rows without a match as they are read."""

    executor = "InsertOnlyMergeExecutor"

    def fits(self, facts: Facts) -> str | None:
        if facts.source_is_read or facts.has_guards or not facts.settings.shortcuts:
            return None
        if not (facts.only_inserts if facts.table_files else facts.inserts_all):
            return None
        # Partition values in the source prevent conflicts between merges of different partitions, so the source must be
        # read first. Rows with identity values are shuffled into tasks by their size, which must be known.
        if facts.is_partition_a_key or facts.generates_identity:
            return None
        if not facts.collects_statistics:  # they count the written rows
            return None
        if not facts.table_files:
            return FIRST_LOAD
        if _is_table_small(facts):
            return SMALL_TABLE
        return LARGE_SOURCE if facts.is_source_large and facts.keys_in_any_file else None

    def preview(self, merge: StartedMerge, facts: Facts, reason: str, *, explain: bool) -> Preview:
        rows = counted_inserts(merge, _unmatched_rows(merge, reason))
        _set_source_metrics(merge, reason)
        return Preview(reason, spark_plans={"inserted rows": merge.gateway.explained(rows)} if explain else {})

    def run(self, merge: StartedMerge, facts: Facts, reason: str) -> Outcome:
        # Delta records the step even if it does not materialize the source.
        record_operation(merge.gateway, merge.statement, "materializeSource")
        step: MergeStep = "writeInsertsOnlyWhenNoMatchedClauses"
        if not facts.only_inserts:  # into a table without files
            record_operation(merge.gateway, merge.statement, "findTouchedFiles")
            step = "writeInsertsOnlyWhenNoMatches"
        with merge.metrics.phase("rewrite", "rewriteTimeMs"), merge.recorded(step):
            input_bytes = min(merge.statement.estimated_source_bytes, _MOST_BYTES)
            added = append_rows(merge, _unmatched_rows(merge, reason), input_bytes=input_bytes)
        _set_source_metrics(merge, reason)
        return Outcome(added, reason)


def _is_table_small(facts: Facts) -> bool:
    """Whether reading the whole table should take no longer than keeping the source.

    Spark may overestimate the source's size by far, so the table must be fast to read in any case.
    """
    if facts.table_rows is None or facts.table_rows > MOST_ROWS:
        return False
    small_bytes = facts.settings.small_merge_bytes
    if facts.table_bytes > small_bytes * _TIMES_FOR_LARGE_SOURCE:
        return False
    return facts.table_bytes <= small_bytes or facts.estimated_source_bytes >= facts.table_bytes


def _unmatched_rows(merge: StartedMerge, reason: str) -> DataFrame:
    """The source rows that match no row of the table, each computed once; sets the metrics of files.

    For a table with files, Delta's metric ``numSourceRows`` counts them while they are computed, as in Delta's MERGE.
    """
    statement, transaction = merge.statement, merge.transaction
    # They count as read, so that two concurrent first loads conflict.
    candidates = candidate_files(merge, [])
    set_skipping_metrics(merge, candidates)
    source = statement.source_frame()
    if reason == FIRST_LOAD:
        return source
    counted = statement.counting_rows(source)
    target = transaction.target.frame(candidates, reads_all_rows=True)
    if reason == SMALL_TABLE:
        target = F.broadcast(target)
    return counted.join(target, statement.condition, "left_anti")


def _set_source_metrics(merge: StartedMerge, reason: str) -> None:
    """Set the number of source rows, after the unmatched rows were computed."""
    if reason == FIRST_LOAD:
        merge.metrics.set(numSourceRows=merge.metrics.values["numTargetRowsInserted"])
    else:
        merge.metrics.read_back()
    merge.metrics.set(operationNumSourceRows=merge.metrics.values["numSourceRows"])
