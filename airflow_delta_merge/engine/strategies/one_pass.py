"""Merges that are expected to touch all candidate files: join source and files once, and write the result directly.

If a large source updates every row that it matches, nearly every candidate file is touched, and searching for touched
files costs a second join without new information. The same is true for a source that replaces most of a few files,
and for a small merge whose keys lead to one file, which spends its time on planning and starting jobs. This strategy
writes the new files first and checks them afterwards, with counts from the same pass. Unless every candidate file was
touched and no target row matched twice, the new files are deleted. If no row was taken at all, only the source is
appended; otherwise the merge takes its two phases.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm.errors import raises_merge_errors
from airflow_delta_merge.engine.delta_jvm.usage import record_operation
from airflow_delta_merge.engine.rows.change_data import with_change_rows
from airflow_delta_merge.engine.rows.kept_join import join_in_one_task
from airflow_delta_merge.engine.rows.matches import clause_counts, rows_of_clause
from airflow_delta_merge.engine.rows.output import (
    change_type,
    clause_number,
    inserted_columns,
    numbered_by_clause,
    updated_columns,
)
from airflow_delta_merge.engine.strategies.outcome import Outcome, Preview
from airflow_delta_merge.engine.strategies.shared_steps import (
    remove_files,
    untouched_reason,
    write_inserts_alone,
    write_step,
)
from airflow_delta_merge.engine.strategies.two_phase import TwoPhase
from airflow_delta_merge.engine.target_metrics import count_rows, set_skipping_metrics, set_written_metrics
from airflow_delta_merge.engine.transactional_write import write_files
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.delta_jvm.transaction import WrittenFiles
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.strategies.facts import Facts

_log = logging.getLogger(__name__)

_EXPECTED = "every candidate file is expected to be touched"

#: Maximum candidate rows per source row.
_TARGET_ROWS_FOR_ONE = 4

#: Several times the limit of a small merge, since nothing is kept.
_TIMES_OF_KEPT = 4

#: Maximum candidate rows for which a broadcast replaces the search. Counting written rows takes longer per row than
#: searching them, but a search must plan and start jobs first.
_MOST_ROWS_OF_BROADCAST = 1_000_000

#: From this size of candidate files on, two tasks make up for the job that broadcasts the source to them.
_BYTES_FOR_ONE_TASK = 2 * 1024 * 1024


class OnePass:
    """Writes the new files in the pass that joins source and candidate files."""

    executor = "ClassicMergeExecutor"

    def fits(self, facts: Facts) -> str | None:
        """Whether every candidate file is expected to be touched, so that one join yields the new files.

        A source that is broadcast to many rows doesn't qualify: its search for touched files shuffles nothing. Nor
        does one that is broadcast to files which can be copied natively: copying is faster than writing all rows.
        Unless a wrong guess would write little in vain, there must be a source row for every few rows of the files.
        """
        if not (facts.source_is_read and facts.settings.shortcuts) or facts.limits_changes:
            return None
        if not (facts.takes_all_by and facts.candidate_rows and facts.source_rows) or facts.update_only_changed:
            return None
        if facts.deletion_vectors or facts.generates_identity or facts.tracks_rows:
            return None
        if not (facts.has_equality and facts.can_copy_rows):
            return None
        meets_all = facts.source_rows >= facts.candidate_files * max(1, facts.settings.one_pass_from_rows)
        if facts.is_small:
            return _EXPECTED if facts.candidate_files == 1 or meets_all else None
        if not meets_all:
            return None
        if _is_quickly_broadcast(facts) and not facts.copies_files:
            return _EXPECTED
        is_most = facts.candidate_rows <= facts.source_rows * _TARGET_ROWS_FOR_ONE
        is_shuffled_update = "update" in facts.takes_all_by and not facts.source_is_broadcast
        return _EXPECTED if is_most and (_is_moderate(facts) or is_shuffled_update) else None

    def preview(self, merge: MergeContext, facts: Facts, reason: str, *, explain: bool) -> Preview:
        """Preview with two phases: only the pass itself, which writes, could show that it doesn't apply."""
        found = TwoPhase().preview(merge, facts, reason, explain=explain)
        if found.num_touched_files < merge.candidates.count:
            return found
        return replace(found, reason=_reason(merge, facts, found.num_touched_files))

    def run(self, merge: MergeContext, facts: Facts, reason: str) -> Outcome | None:
        with merge.metrics.phase("rewrite", "rewriteTimeMs"):
            found, written = _write(merge, facts)
        if found is None:
            return None
        candidates, taken = merge.candidates, rows_of_clause(merge, found)
        set_skipping_metrics(merge, candidates)
        record_operation(merge.gateway, merge.statement, "findTouchedFiles")
        if written is None:
            count_rows(merge, merge.transaction.files.file_set(merge.gateway.seq([])), taken)
            return Outcome(write_inserts_alone(merge, lambda: merge.source.frame), _reason(merge, facts, 0))
        record_operation(merge.gateway, merge.statement, write_step(merge))
        set_written_metrics(merge, written)
        count_rows(merge, candidates, taken)
        merge.metrics.set(numTargetRowsInserted=found["inserted_rows"])
        actions = merge.gateway.concat(written.actions, remove_files(merge, candidates))
        return Outcome(actions, _reason(merge, facts, candidates.count), candidates.count)


def _is_quickly_broadcast(facts: Facts) -> bool:
    """Whether the source is broadcast, and the rows are few enough to risk writing them in vain."""
    return (
        facts.source_is_broadcast
        and not facts.inserts
        and facts.candidate_bytes <= facts.settings.small_merge_bytes * _TIMES_OF_KEPT
        and facts.candidate_rows <= _MOST_ROWS_OF_BROADCAST
    )


def _is_moderate(facts: Facts) -> bool:
    return facts.fits_one_task(facts.settings.small_merge_bytes * _TIMES_OF_KEPT)


def _reason(merge: MergeContext, facts: Facts, num_touched: int) -> str:
    if not num_touched:
        return untouched_reason(merge)
    source = "small" if facts.is_small or facts.source_is_broadcast else "large"
    return f"all {num_touched} candidate files are rewritten, in the one pass that joins them with the {source} source"


def _write(merge: MergeContext, facts: Facts) -> tuple[dict[str, Any] | None, WrittenFiles | None]:
    """Join source and candidate files and write the new files.

    :return: the aggregates of :func:`_joined`, or None if the merge must take its two phases; and the new files, or
        None if no clause took a row of the target. Files that aren't returned are deleted.
    """
    (rows, counted), observation = _joined(merge, facts), Observation()
    try:
        observed = _new_rows(merge, rows.observe(observation, *counted))
        num_bytes = merge.candidates.num_bytes + merge.source.num_bytes
        with raises_merge_errors():
            actions = write_files(merge, observed, input_bytes=num_bytes)
    except MergeExecutionError as error:
        # An ambiguous match must be reported before any error from a value's expression.
        _log.info("Writing in one pass failed, taking two phases: %s", error)
        return None, None
    found, written = observation.get, merge.transaction.written_files(actions)
    taken = rows_of_clause(merge, found)
    if _is_as_expected(merge, found, taken, written.added):
        return found, written
    merge.transaction.discard(actions)
    if not any(taken):
        return found, None
    _log.info("Not every candidate file is touched just once, taking two phases")
    return None, None


def _joined(merge: MergeContext, facts: Facts) -> tuple[DataFrame, list[Any]]:
    """Target rows joined with their source rows, unmatched source rows if they may be inserted, and aggregates."""
    names = merge.names
    is_one_file = merge.candidates.count == 1
    # A hash instead of the path: every joined row carries it, and paths are long.
    file = F.lit(0) if is_one_file else F.xxhash64(F.input_file_name())
    target = merge.transaction.target.frame(merge.candidates).select("*", file.alias(names.file_path))
    rows = _with_clauses(merge, _join(merge, facts, target))
    clause, inserted = F.col(names.clause), F.col(names.insert_clause)
    # A hash collision would make this fewer than the files, which is safe.
    files = F.size(F.collect_set(F.when(clause > 0, F.col(names.file_path))))
    return rows, [
        *clause_counts(merge, clause),
        F.count(names.file_path).alias("target_rows"),
        F.count_if(inserted > 0).alias("inserted_rows"),
        (F.when(F.max(clause) > 0, 1).otherwise(0) if is_one_file else files).alias("touched_files"),
    ]


def _join(merge: MergeContext, facts: Facts, target: DataFrame) -> DataFrame:
    """All rows of the target, and of the source if they may be inserted; shuffled only if both sides are large."""
    source, condition = merge.source, merge.statement.condition
    if merge.insert_clauses:
        # A broadcast join cannot find the source rows that match nothing.
        if _is_moderate(facts):
            return join_in_one_task(target, source, condition, "full")
        return target.join(source.frame, condition, "full")
    if facts.is_small and merge.candidates.num_bytes < _BYTES_FOR_ONE_TASK:
        return join_in_one_task(target, source, condition, "left")
    return target.join(source.for_join(), condition, "left")


def _with_clauses(merge: MergeContext, joined: DataFrame) -> DataFrame:
    """The rows of a join, with the number of the clause that takes the target row or inserts the source row.

    :param joined: rows of target and source; ``names.file_path`` is NULL in source rows that match nothing, and
        ``names.source_row_id`` in such target rows.
    """
    names = merge.names
    is_target_row = F.col(names.file_path).isNotNull()
    has_match = is_target_row & F.col(names.source_row_id).isNotNull()
    return joined.select(
        "*",
        F.when(is_target_row, numbered_by_clause(merge, has_match)).otherwise(F.lit(0)).alias(names.clause),
        F.when(~is_target_row, clause_number(merge.insert_clauses)).otherwise(F.lit(0)).alias(names.insert_clause),
    )


def _new_rows(merge: MergeContext, rows: DataFrame) -> DataFrame:
    """The rows that replace the target's rows, and the rows that insert clauses make from source rows.

    :param rows: the result of :func:`_with_clauses`.
    :return: columns of the final schema; with change data the change rows too, and ``_change_type``.
    """
    names, changes = merge.names, merge.transaction.writes_change_data
    is_target_row = F.col(names.file_path).isNotNull()
    clause, inserted = F.col(names.clause), F.col(names.insert_clause)
    is_kept, deletes = is_target_row, merge.numbers_of("delete")
    if deletes and not changes:
        is_kept = is_kept & ~clause.isin(deletes)
    values = updated_columns(merge, clause)
    if merge.insert_clauses:
        is_kept = is_kept | (inserted > 0)
        new = inserted_columns(merge, inserted)
        pairs = zip(values, new, strict=True)
        values = [F.when(is_target_row, value).otherwise(of_source) for value, of_source in pairs]
    rows, columns = rows.filter(is_kept), merge.output_columns(values, [])
    if not changes:
        return rows.select(*columns)
    kind = F.when(is_target_row, change_type(merge, clause)).otherwise(F.lit("insert"))
    return with_change_rows(rows, columns, merge.statement.copied_row, kind)


def _is_as_expected(merge: MergeContext, found: dict[str, Any], taken: Sequence[int], added: FileSet) -> bool:
    """Whether all files were touched, each row once, and no retried task counted rows twice."""
    deleted = sum(taken[number - 1] for number in merge.numbers_of("delete"))
    return bool(
        found["touched_files"] == merge.candidates.count
        # A target row comes out once for each source row that it matches.
        and found["target_rows"] == merge.candidates.num_rows
        and added.num_rows == found["target_rows"] - deleted + found["inserted_rows"]
    )
