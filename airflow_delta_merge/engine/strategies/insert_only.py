"""Merges that only insert: source rows that match no target row are appended, nothing is removed or rewritten.

1. Prune: search only files that can hold the source's keys.
2. Anti join: drop source rows with a match in those files. A small source is broadcast to find its matched rows, so the
   target is never shuffled. Without candidate files there is no join at all.
3. Write: append the rows that an insert clause takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.guards import check_guards
from airflow_delta_merge.engine.pruning.key_filter import filtered_condition, is_filtered
from airflow_delta_merge.engine.rows.inserts import counted_inserts, inserted_rows, write_inserts
from airflow_delta_merge.engine.rows.matches import search_tasks
from airflow_delta_merge.engine.strategies.outcome import Outcome, Preview
from airflow_delta_merge.engine.target_metrics import set_skipping_metrics

if TYPE_CHECKING:
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.strategies.facts import Facts

#: From this many source rows on, building hash tables of the source and its matches takes longer than a shuffle, if a
#: filter leaves few of the target's rows to shuffle.
_MANY_ROWS = 100_000

NO_CANDIDATES = "only insert clauses, and no file can hold a match: the source is appended without a join"
JOIN_REASON = "only insert clauses: the source is joined with the candidate files and appended"
BROADCAST_REASON = "only insert clauses: the source is broadcast to the candidate files and appended"


class InsertOnly:
    """Appends the source rows that match nothing."""

    executor = "InsertOnlyMergeExecutor"

    def fits(self, facts: Facts) -> str | None:
        if not (facts.source_is_read and facts.only_inserts):
            return None
        if facts.candidate_files == 0 or facts.source_rows == 0:
            return NO_CANDIDATES
        return BROADCAST_REASON if facts.source_is_broadcast else JOIN_REASON

    def preview(self, merge: MergeContext, facts: Facts, reason: str, *, explain: bool) -> Preview:
        unmatched, reason = _unmatched(merge, reason)
        rows = counted_inserts(merge, unmatched)
        return Preview(reason, spark_plans={"inserted rows": merge.gateway.explained(rows)} if explain else {})

    def run(self, merge: MergeContext, facts: Facts, reason: str) -> Outcome:
        unmatched, reason = _unmatched(merge, reason)
        check_guards(merge, lambda: inserted_rows(merge, unmatched).count())
        timed = merge.metrics.phase("rewrite", "rewriteTimeMs")
        with timed, merge.recorded("writeInsertsOnlyWhenNoMatchedClauses"):
            return Outcome(write_inserts(merge, unmatched), reason)


def _unmatched(merge: MergeContext, reason: str) -> tuple[DataFrame, str]:
    """The source rows that match no row of the candidate files, and the reason to report; sets the file metrics."""
    source, candidates = merge.source, merge.candidates
    set_skipping_metrics(merge, candidates)
    if reason == NO_CANDIDATES:
        return source.frame, reason
    target = merge.transaction.target.frame(candidates, most_tasks=search_tasks(merge), reads_all_rows=True)
    if reason == JOIN_REASON or (source.num_rows >= _MANY_ROWS and is_filtered(merge)):
        return source.frame.join(target, filtered_condition(merge), "left_anti"), JOIN_REASON
    matched = target.join(source.for_join(), filtered_condition(merge), "inner").select(
        F.col(merge.names.source_row_id).alias(merge.names.matched_row_id)
    )
    return merge.source_without(matched), reason
