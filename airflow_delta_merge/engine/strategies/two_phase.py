"""Merges that update or delete: find the touched files, then rewrite them or mark their rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.change_data import CHANGE_TYPE
from airflow_delta_merge.engine.changes import (
    remove_files,
    untouched_reason,
    write_inserts_alone,
    write_step,
)
from airflow_delta_merge.engine.guards import check_changes
from airflow_delta_merge.engine.inserts import counted_inserts, inserted_rows
from airflow_delta_merge.engine.matches import MatchCounts, count_matches, find_matches, matches_of
from airflow_delta_merge.engine.metrics import count_rows, set_skipping_metrics, set_written_metrics
from airflow_delta_merge.engine.old_rows.native import copies_without, is_worth_copying
from airflow_delta_merge.engine.rewrite import (
    TouchedFiles,
    can_meet_source_once,
    deletes_rows_once,
    rewritten_rows,
    updates_and_inserts_of_matches,
    updates_need_only_the_source,
    updates_of_matches,
)
from airflow_delta_merge.engine.strategies.kept_join import KeptJoin, join_and_keep
from airflow_delta_merge.engine.strategies.outcome import Outcome, Preview

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet, TrackingColumn
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.strategies.facts import Facts


_log = logging.getLogger(__name__)


class TwoPhase:
    """Finds the rows that clauses take, then writes. Used for every merge that no other strategy fits."""

    executor = "ClassicMergeExecutor"

    def fits(self, facts: Facts) -> str | None:
        return "rows of the target may be updated or deleted" if facts.source_is_read else None

    def preview(self, merge: MergeContext, facts: Facts, reason: str, *, explain: bool) -> Preview:
        classic = ClassicMergeExecutor(merge, is_small=facts.is_small)
        touched = classic.find_touched_files()
        try:
            explained = {"matches": touched.matches}
            count_rows(merge, touched.files, touched.rows_of_clause)
            if touched.files.count and classic.writes_new_versions(touched):
                explained["rewritten rows"] = classic.new_versions(touched)[0]
            if merge.insert_clauses:
                explained["inserted rows"] = counted_inserts(merge, classic.unmatched_rows(touched))
            plans = {name: merge.gateway.explained(rows) for name, rows in explained.items()} if explain else {}
            return Preview(classic.reason(touched), touched.files.count, touched.files.num_bytes, plans)
        finally:
            touched.release()

    def run(self, merge: MergeContext, facts: Facts, reason: str) -> Outcome:
        classic = ClassicMergeExecutor(merge, is_small=facts.is_small)
        with merge.recorded("findTouchedFiles"):
            touched = classic.find_touched_files()
        try:
            count_rows(merge, touched.files, touched.rows_of_clause)
            _log.info("%s pairs match; %s", touched.num_pairs, classic.reason(touched))
            check_changes(merge, lambda: classic.unmatched_rows(touched), touched.files)
            actions, written = classic.write_all_changes(touched)
            return Outcome(actions, classic.reason(written), touched.files.count)
        finally:
            touched.release()


class ClassicMergeExecutor:
    """Merges in two phases.

    Phase 1, :meth:`find_touched_files`: join the source with the candidate files, reading only the columns that
    the conditions need, and decide for each target row which clause takes it. The matches are kept. Spark counts them
    into one row per task: pairs, distinct target rows (a bitmap of row numbers), rows of each clause and the paths of
    their files. These give the touched files, the ambiguity error and all row metrics. A file is touched only if a
    clause takes one of its rows; pairs for which every condition is false touch nothing (delta-io/delta#1812).

    Phase 2, :meth:`write_all_changes`: write new versions of rows and source rows without a match, and remove the old
    rows: mark them by deletion vectors straight from the matches, or copy the touched files without them. If the new
    versions come from the source alone, the target isn't read again. Files that can't be copied are rewritten by Spark,
    which joins each of their rows with its source row; a small source is broadcast, so no target row is shuffled.

    If source and candidate files are small, the join of phase 1 is kept with all columns, and phase 2 writes from it
    (:mod:`~airflow_delta_merge.engine.strategies.kept_join`).
    """

    def __init__(self, merge: MergeContext, *, is_small: bool) -> None:
        self._merge = merge
        self._is_small = is_small
        self._deletion_vectors = merge.transaction.writes_deletion_vectors

    def find_touched_files(self) -> TouchedFiles:
        """Find the files to rewrite and count the rows of each clause.

        :raises MergeExecutionError: when several source rows match one target row and the result would be ambiguous
            (Delta's DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE).
        """
        merge = self._merge
        with merge.metrics.phase("scan", "scanTimeMs"):
            touched = self._touched_by_kept_join() if self._is_small else self._touched_by_matches()
        set_skipping_metrics(merge, merge.candidates)
        return touched

    def _touched_by_kept_join(self) -> TouchedFiles:
        merge = self._merge
        kept = join_and_keep(merge)
        try:
            return self._touched_files([kept.totals], kept.paths, matches_of(merge, kept.matching_rows()), kept)
        except BaseException:
            kept.release()
            raise

    def _touched_by_matches(self) -> TouchedFiles:
        merge = self._merge
        matches = find_matches(merge, merge.candidates)
        if merge.insert_clauses or self._deletion_vectors or merge.copies_files:
            matches = matches.persist()  # they are needed again
        try:
            paths, counts = count_matches(merge, matches) if merge.candidates.count else ([], [])
            return self._touched_files(counts, paths, matches)
        except BaseException:
            matches.unpersist()
            raise

    def _touched_files(
        self, found: Sequence[MatchCounts], paths: list[str], matches: DataFrame, kept: KeptJoin | None = None
    ) -> TouchedFiles:
        transaction, candidates = self._merge.transaction, self._merge.candidates
        ambiguous = any(counts.pairs > counts.matched_rows for counts in found)
        if ambiguous and not self._deletes_all_matched:
            raise transaction.multiple_matches_error()
        all_touched = len(paths) == candidates.count
        files = candidates if all_touched else transaction.files.select(candidates, paths)
        rows_of_clause = self._rows_of_clause(found)
        return TouchedFiles(
            files=files,
            paths=None if all_touched else paths,
            matches=matches,
            num_pairs=sum(counts.pairs for counts in found),
            has_multiple_matches=ambiguous,
            rows_of_clause=rows_of_clause,
            kept=kept,
            keeps_rest=self._deletion_vectors or is_worth_copying(self._merge, files, sum(rows_of_clause)),
        )

    @property
    def _deletes_all_matched(self) -> bool:
        """Whether there is only an unconditional delete: it doesn't matter how many source rows match a deleted row."""
        matched = self._merge.clauses_of("matched")
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None

    def _rows_of_clause(self, found: Sequence[MatchCounts]) -> tuple[int, ...]:
        rows = [sum(counts.clauses[n] for counts in found) for n in range(len(self._merge.target_clauses))]
        if self._deletes_all_matched:
            rows[0] = sum(counts.matched_rows for counts in found)
        return tuple(rows)

    def write_all_changes(self, touched: TouchedFiles) -> tuple[JavaObject, TouchedFiles]:
        """Write the new versions of rows and the inserted rows, and remove the old versions.

        The metrics of :func:`~airflow_delta_merge.engine.metrics.count_rows` must have been set before.

        :return: JVM sequence of file actions (files added, and files removed or given a deletion vector), and the
            touched files as they were written: files that could not be copied were rewritten.
        """
        merge = self._merge
        if not touched.files.count:
            return write_inserts_alone(merge, lambda: self.unmatched_rows(touched)), touched
        with merge.metrics.phase("rewrite", "rewriteTimeMs"):
            with merge.recorded(write_step(merge)):
                added, written = self._write(touched)
                self._set_added(touched, added)
            if self._deletion_vectors:
                with merge.recorded("writeDeletionVectors"):
                    return merge.gateway.concat(added, self._mark_rows(touched)), written
            return merge.gateway.concat(added, remove_files(merge, touched.files)), written

    def _write(self, touched: TouchedFiles) -> tuple[JavaObject, TouchedFiles]:
        """Write only new rows if the rest stays or can be copied natively, else let Spark rewrite the files in full."""
        if touched.keeps_rest and not self._deletion_vectors:
            added = self._write_beside_copies(touched)
            if added is not None:
                return added, touched
            touched = replace(touched, keeps_rest=False)
        return self._write_rows(touched), touched

    def _write_beside_copies(self, touched: TouchedFiles) -> JavaObject | None:
        """Write new rows while the touched files are copied; None if they can't be copied, with nothing left behind.

        Spark waits for the copies only if it needs the old values of taken rows, which the driver's copying pass keeps.
        Where executors copy, it reads these rows from the touched files.
        """
        merge = self._merge
        keep = self._reads_taken_rows(touched) and not merge.transaction.copy_terms.by_executors
        with copies_without(merge, touched.files, touched.matches, keep_taken_rows=keep) as copies:
            taken_rows = copies.taken_rows() if copies is not None and keep else None
            if copies is None or (keep and taken_rows is None):
                return None
            written = self._write_rows(replace(touched, taken_rows=taken_rows))
            copied = copies.actions()
            if copied is None:
                merge.transaction.discard(written)
                return None
            return merge.gateway.concat(written, copied)

    def _reads_taken_rows(self, touched: TouchedFiles) -> bool:
        """Whether writing the new versions must read the old rows again."""
        if not self.writes_new_versions(touched) or touched.kept is not None:
            return False
        return not (self._updates_from_source_alone(touched) or deletes_rows_once(self._merge, touched))

    def reason(self, touched: TouchedFiles) -> str:
        """How this merge works and why, in one sentence."""
        if not touched.files.count:
            return untouched_reason(self._merge)
        how = "which are copied without these rows" if touched.keeps_rest else "which are rewritten"
        if self._deletion_vectors:
            how = "whose rows are marked by deletion vectors straight from the matches"
            if not self.writes_new_versions(touched):
                how += ", and not written again"
            elif self._updates_from_source_alone(touched):
                how += ", and the new rows come from the source alone"
        source = "the source is broadcast" if self._merge.source.is_small else "the source is shuffled"
        if touched.kept is not None:
            source = "source and target are small and joined once"
        return f"clauses take rows of {touched.files.count} files, {how}; {source}"

    def writes_new_versions(self, touched: TouchedFiles) -> bool:
        """Whether Spark writes rows of the touched files. It doesn't if the rest stays and nothing is updated."""
        merge = self._merge
        return not touched.keeps_rest or bool(merge.update_clauses) or merge.transaction.writes_change_data

    def _write_rows(self, touched: TouchedFiles) -> JavaObject:
        """Write new versions of rows and inserted rows. Returns the actions that add them."""
        merge = self._merge
        if merge.insert_clauses and self._updates_from_source_alone(touched) and can_meet_source_once(merge, touched):
            return self._write_from_source(touched)
        rows: DataFrame | None = None
        tracking: list[TrackingColumn] = []
        if self.writes_new_versions(touched):
            rows, tracking = self.new_versions(touched)
        inserted: DataFrame | None = None
        if merge.insert_clauses:
            inserted = self._inserted(touched, tracking)
        is_nothing = rows is None and inserted is None
        return merge.gateway.seq([]) if is_nothing else self._write_frames(touched, rows, inserted)

    def _set_added(self, touched: TouchedFiles, actions: JavaObject) -> None:
        """Set the metrics of added files, including copies."""
        written = self._merge.transaction.written_files(actions)
        set_written_metrics(self._merge, written)
        self._merge.metrics.set(numTargetRowsInserted=self._num_inserted(written.added, touched))

    def _write_from_source(self, touched: TouchedFiles) -> JavaObject:
        """Write updates and inserts, both made from source rows."""
        merge = self._merge
        most_rows = max(merge.source.num_rows, touched.num_pairs)
        return merge.write.write_files(
            updates_and_inserts_of_matches(merge, touched),
            input_bytes=merge.source.num_bytes * most_rows // max(1, merge.source.num_rows),
        )

    def _write_frames(self, touched: TouchedFiles, rows: DataFrame | None, inserted: DataFrame | None) -> JavaObject:
        merge, files = self._merge, touched.files
        if rows is not None and not touched.keeps_rest:
            # Several pairs may share one source row, so this is an estimate.
            num_inserted = max(0, merge.source.num_rows - touched.num_pairs)
            return merge.write.write_rewritten(
                rows,
                files=files,
                moves_rows=merge.statement.may_change(merge.transaction.partition_columns),
                inserted=inserted,
                inserted_bytes=merge.source.num_bytes * num_inserted // max(1, merge.source.num_rows),
            )
        sized = [(rows, self._bytes_of_new_versions(touched)), (inserted, merge.source.num_bytes)]
        parts = [(part, num_bytes) for part, num_bytes in sized if part is not None]
        together = reduce(DataFrame.unionAll, (part for part, _ in parts))
        return merge.write.write_files(together, input_bytes=sum(num_bytes for _, num_bytes in parts))

    @staticmethod
    def _bytes_of_new_versions(touched: TouchedFiles) -> int:
        files = touched.files
        return files.num_bytes * sum(touched.rows_of_clause) // files.num_rows if files.num_rows else files.num_bytes

    def new_versions(self, touched: TouchedFiles) -> tuple[DataFrame, list[TrackingColumn]]:
        """The rows that replace the removed ones, and the row tracking columns."""
        merge = self._merge
        if self._updates_from_source_alone(touched):
            return updates_of_matches(merge, touched), []
        return rewritten_rows(merge, touched)

    def _updates_from_source_alone(self, touched: TouchedFiles) -> bool:
        return touched.keeps_rest and touched.kept is None and updates_need_only_the_source(self._merge)

    def unmatched_rows(self, touched: TouchedFiles) -> DataFrame:
        """The source rows that appear in no match."""
        merge = self._merge
        if touched.num_pairs == 0:
            return merge.source.frame
        if touched.kept is not None:
            return touched.kept.unmatched_source_rows()
        ids = touched.matches.select(merge.names.matched_row_id).filter(F.col(merge.names.matched_row_id).isNotNull())
        return merge.source_without(ids)

    def _mark_rows(self, touched: TouchedFiles) -> JavaObject:
        """Mark every row that a clause takes as deleted from its file."""
        merge = self._merge
        actions, counts, emptied = merge.transaction.deletion_vector_actions(
            touched.files, touched.matches.filter(F.col("clause") > 0).select("path", "row_index")
        )
        merge.metrics.set(
            numTargetDeletionVectorsAdded=counts["numDeletionVectorsAdded"],
            numTargetDeletionVectorsRemoved=counts["numDeletionVectorsRemoved"],
            numTargetDeletionVectorsUpdated=counts["numDeletionVectorsUpdated"],
            numTargetFilesRemoved=counts["numRemovedFiles"],
            numTargetBytesRemoved=emptied.num_bytes,
            numTargetPartitionsRemovedFrom=emptied.partitions,
        )
        return actions

    def _inserted(self, touched: TouchedFiles, tracking: Sequence[TrackingColumn] = ()) -> DataFrame:
        changes = self._merge.transaction.writes_change_data
        return inserted_rows(self._merge, self.unmatched_rows(touched), tracking=tracking, change_data=changes)

    def _num_inserted(self, added: FileSet, touched: TouchedFiles) -> int:
        if not self._merge.insert_clauses:
            return 0
        if added.num_rows is not None:
            values = self._merge.metrics.values
            return added.num_rows - values["numTargetRowsCopied"] - values["numTargetRowsUpdated"]
        # The session does not collect statistics.
        inserted = self._inserted(touched)
        if self._merge.transaction.writes_change_data:
            inserted = inserted.filter(F.col(CHANGE_TYPE).isNull())
        return inserted.count()
