"""Phase 2 of a merge that updates or deletes: writes new versions of rows, and takes out the old ones.

Old rows are marked by deletion vectors straight from the matches, or the touched files are copied without them. If the
new versions come from the source alone, the target isn't read again. Files that can't be copied are rewritten by Spark,
which joins each of their rows with its source row; a small source is broadcast, so no target row is shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.old_rows.native import copies_without
from airflow_delta_merge.engine.rows.inserts import inserted_rows
from airflow_delta_merge.engine.rows.rewrite import (
    can_meet_source_once,
    deletes_rows_once,
    rewritten_rows,
    updates_and_inserts_of_matches,
    updates_need_only_the_source,
    updates_of_matches,
)
from airflow_delta_merge.engine.strategies.row_counts import check_marked, count_inserted
from airflow_delta_merge.engine.strategies.shared_steps import (
    remove_files,
    untouched_reason,
    write_inserts_alone,
    write_step,
)
from airflow_delta_merge.engine.target_metrics import set_written_metrics
from airflow_delta_merge.engine.transactional_write import write_files, write_rewritten

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet, TrackingColumn
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.rows.touched_files import TouchedFiles


@dataclass(frozen=True)
class AllChanges:
    """What a merge changes, once its touched files are known.

    :param touched: its touched files, and the matches in them.
    """

    merge: MergeContext
    touched: TouchedFiles

    def write(self) -> tuple[JavaObject, AllChanges]:
        """Write the new versions of rows and the inserted rows, and remove the old versions.

        The metrics of :func:`~airflow_delta_merge.engine.target_metrics.count_rows` must have been set before.

        :return: JVM sequence of file actions (files added, and files removed or given a deletion vector), and the
            changes as they were written: files that could not be copied were rewritten.
        """
        merge = self.merge
        if not self.touched.files.count:
            return write_inserts_alone(merge, self.unmatched_rows), self
        with merge.metrics.phase("rewrite", "rewriteTimeMs"):
            with merge.recorded(write_step(merge)):
                added, written = self._write()
                files = merge.transaction.written_files(added)
                set_written_metrics(merge, files)
                merge.metrics.set(numTargetRowsInserted=self._num_inserted(files.added))
            if merge.transaction.writes_deletion_vectors:
                with merge.recorded("writeDeletionVectors"):
                    return merge.gateway.concat(added, self._mark_rows()), written
            return merge.gateway.concat(added, remove_files(merge, self.touched.files)), written

    def _write(self) -> tuple[JavaObject, AllChanges]:
        """Write only new rows if the rest stays or can be copied natively, else let Spark rewrite the files in full."""
        if self.touched.keeps_rest and not self.merge.transaction.writes_deletion_vectors:
            added = self._write_beside_copies()
            if added is not None:
                return added, self
            rewriting = self._of(keeps_rest=False)
            return rewriting._write_rows(), rewriting
        return self._write_rows(), self

    def _of(self, **changed: Any) -> AllChanges:
        """The same changes, with other fields of the touched files."""
        return replace(self, touched=replace(self.touched, **changed))

    def _write_beside_copies(self) -> JavaObject | None:
        """Write new rows while the touched files are copied; None if they can't be copied, with nothing left behind.

        Spark waits for the copies only if it needs the old values of taken rows, which the driver's copying pass keeps.
        Where executors copy, it reads these rows from the touched files.
        """
        merge, touched = self.merge, self.touched
        keep = self._reads_taken_rows() and not merge.transaction.copy_terms.by_executors
        with copies_without(merge, touched.matches, touched.files, keep_taken_rows=keep) as copies:
            taken_rows = copies.taken_rows() if copies is not None and keep else None
            if copies is None or (keep and taken_rows is None):
                return None
            written = self._of(taken_rows=taken_rows)._write_rows()
            copied = copies.actions()
            if copied is None:
                merge.transaction.discard(written)
                return None
            return merge.gateway.concat(written, copied)

    def _reads_taken_rows(self) -> bool:
        """Whether writing the new versions must read the old rows again."""
        if not self.writes_new_versions() or self.touched.kept is not None:
            return False
        return not (self._updates_from_source_alone() or deletes_rows_once(self.merge, self.touched))

    def reason(self) -> str:
        """How this merge works and why, in one sentence."""
        merge, touched = self.merge, self.touched
        if not touched.files.count:
            return untouched_reason(merge)
        how = "which are copied without these rows" if touched.keeps_rest else "which are rewritten"
        if merge.transaction.writes_deletion_vectors:
            how = "whose rows are marked by deletion vectors straight from the matches"
            if not self.writes_new_versions():
                how += ", and not written again"
            elif self._updates_from_source_alone():
                how += ", and the new rows come from the source alone"
        source = "the source is broadcast" if merge.source.is_small else "the source is shuffled"
        if touched.kept is not None:
            source = "source and target are small and joined once"
        return f"clauses take rows of {touched.files.count} files, {how}; {source}"

    def writes_new_versions(self) -> bool:
        """Whether Spark writes rows of the touched files. It doesn't if the rest stays and nothing is updated."""
        merge = self.merge
        return not self.touched.keeps_rest or bool(merge.update_clauses) or merge.transaction.writes_change_data

    def _write_rows(self) -> JavaObject:
        """Write new versions of rows and inserted rows. Returns the actions that add them."""
        merge = self.merge
        if merge.insert_clauses and self._updates_from_source_alone() and can_meet_source_once(merge, self.touched):
            return self._write_from_source()
        rows, tracking = self.new_versions() if self.writes_new_versions() else (None, [])
        inserted: DataFrame | None = None
        if merge.insert_clauses:
            changes = merge.transaction.writes_change_data
            inserted = inserted_rows(merge, self.unmatched_rows(), tracking=tracking, change_data=changes)
        is_nothing = rows is None and inserted is None
        return merge.gateway.seq([]) if is_nothing else self._write_frames(rows, inserted)

    def _write_from_source(self) -> JavaObject:
        """Write updates and inserts, both made from source rows."""
        merge = self.merge
        most_rows = max(merge.source.num_rows, self.touched.num_pairs)
        return write_files(
            merge,
            updates_and_inserts_of_matches(merge, self.touched),
            input_bytes=merge.source.num_bytes * most_rows // max(1, merge.source.num_rows),
        )

    def _write_frames(self, rows: DataFrame | None, inserted: DataFrame | None) -> JavaObject:
        merge, files = self.merge, self.touched.files
        if rows is not None and not self.touched.keeps_rest:
            # Several pairs may share one source row, so this is an estimate.
            num_inserted = max(0, merge.source.num_rows - self.touched.num_pairs)
            return write_rewritten(
                merge,
                rows,
                files=files,
                moves_rows=merge.statement.may_change(merge.transaction.partition_columns),
                inserted=inserted,
                inserted_bytes=merge.source.num_bytes * num_inserted // max(1, merge.source.num_rows),
            )
        sized = [(rows, self._bytes_of_new_versions()), (inserted, merge.source.num_bytes)]
        parts = [(part, num_bytes) for part, num_bytes in sized if part is not None]
        together = reduce(DataFrame.unionAll, (part for part, _ in parts))
        return write_files(merge, together, input_bytes=sum(num_bytes for _, num_bytes in parts))

    def _bytes_of_new_versions(self) -> int:
        files, taken = self.touched.files, sum(self.touched.rows_of_clause)
        return files.num_bytes * taken // files.num_rows if files.num_rows else files.num_bytes

    def new_versions(self) -> tuple[DataFrame, list[TrackingColumn]]:
        """The rows that replace the removed ones, and the row tracking columns."""
        merge = self.merge
        if self._updates_from_source_alone():
            return updates_of_matches(merge, self.touched), []
        return rewritten_rows(merge, self.touched)

    def _updates_from_source_alone(self) -> bool:
        return self.touched.keeps_rest and self.touched.kept is None and updates_need_only_the_source(self.merge)

    def unmatched_rows(self) -> DataFrame:
        """The source rows that appear in no match."""
        merge, touched = self.merge, self.touched
        if touched.num_pairs == 0:
            return merge.source.frame
        if touched.kept is not None:
            return touched.kept.unmatched_source_rows()
        ids = touched.matches.select(merge.names.matched_row_id).filter(F.col(merge.names.matched_row_id).isNotNull())
        return merge.source_without(ids)

    def _mark_rows(self) -> JavaObject:
        """Mark every row that a clause takes as deleted from its file."""
        merge = self.merge
        actions, counts, emptied = merge.transaction.deletion_vector_actions(
            self.touched.files, self.touched.matches.filter(F.col("clause") > 0).select("path", "row_index")
        )
        check_marked(self.touched, merge.transaction.files.rows_more(actions))
        merge.metrics.set(
            numTargetDeletionVectorsAdded=counts["numDeletionVectorsAdded"],
            numTargetDeletionVectorsRemoved=counts["numDeletionVectorsRemoved"],
            numTargetDeletionVectorsUpdated=counts["numDeletionVectorsUpdated"],
            numTargetFilesRemoved=counts["numRemovedFiles"],
            numTargetBytesRemoved=emptied.num_bytes,
            numTargetPartitionsRemovedFrom=emptied.partitions,
        )
        return actions

    def count_inserts(self) -> int:
        """The number of rows that the insert clauses make, by a job."""
        return inserted_rows(self.merge, self.unmatched_rows()).count() if self.merge.insert_clauses else 0

    def _num_inserted(self, added: FileSet) -> int:
        if added.num_rows is None:  # the session does not collect statistics
            return self.count_inserts()
        return count_inserted(self.merge, self.touched, added.num_rows)
