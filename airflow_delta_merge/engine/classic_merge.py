"""Merges that update or delete: find the touched files, then rewrite them or mark their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from airflow_delta_merge.engine.change_data import CHANGE_TYPE
from airflow_delta_merge.engine.insert_only_merge import inserted_rows, set_adding_metrics, set_skipping_metrics
from airflow_delta_merge.engine.rewrite import (
    TouchedFiles,
    numbered_by_clause,
    positions_in,
    rewritten_rows,
    updates_need_only_the_source,
    updates_of_matches,
)

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet, JavaObject, TrackingColumn
    from airflow_delta_merge.engine.merge_context import MergeContext

#: Bits of a row's number within one task, as ``monotonically_increasing_id`` builds it; a row's index in its file has
#: fewer.
_ROW_BITS = 33


class ClassicMergeExecutor:
    """Merges in two phases.

    Phase 1, :meth:`find_touched_files`: join the source with the candidate files, reading only the columns that
    the conditions need, and decide for each target row which clause takes it. The matches are kept, and counted by
    Spark into one row a file: pairs, distinct target rows (a bitmap of row numbers) and rows of each clause. That
    tells the touched files, the ambiguity error and all row metrics. A file is touched only if a clause takes one
    of its rows; pairs for which every condition is false touch nothing (delta-io/delta#1812).

    Phase 2, :meth:`write_all_changes`: read the touched files whole, beside each row the source row it matches,
    and write updated and unmodified rows in the files' own order; a small source is broadcast, so that no target
    row is shuffled. With deletion vectors only new versions of rows are written, and the old ones are marked
    straight from the matches; where the new versions come from the source alone, the target isn't read again.
    Source rows that appear in no match are inserted.
    """

    def __init__(self, merge: MergeContext) -> None:
        self._merge = merge
        self._deletion_vectors = merge.transaction.writes_deletion_vectors

    def find_touched_files(self) -> TouchedFiles:
        """Find the files to rewrite and count the rows of each clause.

        :raises MergeExecutionError: when several source rows match one target row and it is not clear what
            becomes of it (Delta's DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE).
        """
        merge = self._merge
        with merge.metrics.phase("scan", "scanTimeMs"):
            matches = self._matches(merge.candidates)
            if merge.insert_clauses or self._deletion_vectors:
                matches = matches.persist()  # they are needed again
            try:
                touched = self._touched_files(merge.candidates, matches)
            except BaseException:
                matches.unpersist()
                raise
        set_skipping_metrics(merge)
        return touched

    def _touched_files(self, candidates: FileSet, matches: DataFrame) -> TouchedFiles:
        transaction = self._merge.transaction
        by_file = self._count_by_file(matches) if candidates.count else []
        ambiguous = any(row["pairs"] > row["matched_rows"] for row in by_file)
        if ambiguous and not self._deletes_all_matched:
            raise transaction.multiple_matches_error()
        paths = {row["path"] for row in by_file if any(row["clauses"])}
        files = transaction.select_files(candidates, sorted(paths))
        num_pairs = sum(row["pairs"] for row in by_file)
        return TouchedFiles(files, matches, num_pairs, ambiguous, self._rows_of_clause(by_file))

    def _matches(self, candidates: FileSet) -> DataFrame:
        merge, names = self._merge, self._merge.names
        by_source = merge.clauses_of("not matched by source")
        rows = [] if by_source else merge.row_predicates
        target = positions_in(merge, candidates, where=rows)
        joined = target.join(merge.source.for_join(), merge.statement.condition, "left" if by_source else "inner")
        row_id = F.col(names.source_row_id)
        # Fresh names for all: these rows are later joined with the source that they came from.
        matches = joined.select(
            F.col(names.file_path).alias("path"),
            F.col(names.row_index).alias("row_index"),
            row_id.alias(names.matched_row_id),
            numbered_by_clause(merge, row_id.isNotNull()).alias("clause"),
        )
        if not by_source:
            return matches
        return matches.filter(F.col(names.matched_row_id).isNotNull() | (F.col("clause") > 0))

    def _count_by_file(self, matches: DataFrame) -> list[Row]:
        """One row a file, or a part of one that a task read by itself.

        :return: ``path``, ``pairs``, ``matched_rows`` (distinct ones) and ``clauses`` (the rows that each one takes).
        """
        merge = self._merge
        number, clause = F.col("row_index"), F.col("clause")
        matched = F.col(merge.names.matched_row_id).isNotNull()
        clauses = [F.count_if(clause == F.lit(n)) for n in range(1, len(merge.target_clauses) + 1)]
        counts = matches.groupBy("path", F.shiftright(number, _ROW_BITS)).agg(
            F.count_if(matched).alias("pairs"),
            merge.gateway.distinct_count(F.when(matched, number.bitwiseAND((1 << _ROW_BITS) - 1))).alias(
                "matched_rows"
            ),
            F.array(*clauses).alias("clauses"),
        )
        return counts.collect()

    @property
    def _deletes_all_matched(self) -> bool:
        """A single unconditional delete: it does not matter how many source rows match the deleted row."""
        matched = self._merge.clauses_of("matched")
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None

    def _rows_of_clause(self, by_file: Sequence[Row]) -> tuple[int, ...]:
        counts = [sum(row["clauses"][n] for row in by_file) for n in range(len(self._merge.target_clauses))]
        if self._deletes_all_matched:
            counts[0] = sum(row["matched_rows"] for row in by_file)
        return tuple(counts)

    def write_all_changes(self, touched: TouchedFiles) -> JavaObject:
        """Write the new versions of rows and what is inserted, and take the old versions out.

        The metrics of :meth:`count_rows` must have been set.

        :return: JVM sequence of file actions: files added, and files removed or given a deletion vector.
        """
        merge = self._merge
        with merge.metrics.phase("rewrite", "rewriteTimeMs"):
            added = self._write_rows(touched)
            if self._deletion_vectors:
                return merge.gateway.concat(added, self._mark_rows(touched))
            merge.metrics.set(
                numTargetFilesRemoved=touched.files.count,
                numTargetBytesRemoved=touched.files.num_bytes,
                numTargetPartitionsRemovedFrom=touched.files.partitions,
            )
            return merge.gateway.concat(added, merge.transaction.remove_actions(touched.files))

    def told(self, touched: TouchedFiles) -> str:
        """How this merge goes about its work, and why, in a sentence."""
        if not touched.files.count:
            inserts = "the unmatched source rows are appended" if self._merge.insert_clauses else "nothing is written"
            return f"no file is touched: {inserts}"
        how = "which are rewritten"
        if self._deletion_vectors:
            how = "whose rows are marked by deletion vectors straight from the matches"
            if not self.writes_new_versions:
                how += ", and not written again"
            elif updates_need_only_the_source(self._merge):
                how += ", and the new rows come from the source alone"
        source = "broadcast" if self._merge.source.is_small else "shuffled"
        return f"clauses take rows of {touched.files.count} files, {how}; the source is {source}"

    @property
    def writes_new_versions(self) -> bool:
        """Whether rows of the touched files are written again: not if deletion vectors take them out for good."""
        merge = self._merge
        updates = bool(merge.clauses_that("update"))
        return not self._deletion_vectors or updates or merge.transaction.writes_change_data

    def _write_rows(self, touched: TouchedFiles) -> JavaObject:
        merge = self._merge
        parts: list[DataFrame] = []
        tracking: list[TrackingColumn] = []
        input_bytes = 0
        if self.writes_new_versions:
            new_versions, tracking = self.new_versions(touched)
            parts.append(new_versions)
            input_bytes += touched.files.num_bytes
        inserted: DataFrame | None = None
        if merge.insert_clauses:
            inserted = inserted_rows(
                merge, self.unmatched_rows(touched), tracking=tracking, change_data=merge.transaction.writes_change_data
            )
            parts.append(inserted)
            input_bytes += merge.source.num_bytes
        if not parts:
            return merge.gateway.seq([])
        actions = merge.write.write_files(reduce(DataFrame.unionAll, parts), input_bytes=input_bytes)
        added, change_files, change_bytes = merge.transaction.split_change_files(actions)
        set_adding_metrics(merge, added)
        merge.metrics.set(
            numTargetChangeFilesAdded=change_files,
            numTargetChangeFileBytes=change_bytes,
            numTargetRowsInserted=self._num_inserted(added, inserted),
        )
        return actions

    def new_versions(self, touched: TouchedFiles) -> tuple[DataFrame, list[TrackingColumn]]:
        """The rows to write in place of those that are taken out, and the columns by which the table tracks them."""
        merge = self._merge
        if self._deletion_vectors and updates_need_only_the_source(merge):
            return updates_of_matches(merge, touched), []
        return rewritten_rows(merge, touched, keep_unmodified=not self._deletion_vectors)

    def unmatched_rows(self, touched: TouchedFiles) -> DataFrame:
        """The source rows that appear in no match."""
        merge = self._merge
        if touched.num_pairs == 0:
            return merge.source.frame
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

    def count_rows(self, touched: TouchedFiles) -> None:
        """Set the metrics of updated, deleted and copied rows, which the matches tell before anything is written."""
        merge = self._merge
        counts: Counter[tuple[str, str]] = Counter()
        for clause, rows in zip(merge.target_clauses, touched.rows_of_clause, strict=True):
            counts[clause.kind, clause.action] += rows
        updated = counts["matched", "update"] + counts["not matched by source", "update"]
        deleted = counts["matched", "delete"] + counts["not matched by source", "delete"]
        copied = 0 if self._deletion_vectors else self._num_rows(touched.files) - updated - deleted
        merge.metrics.set(
            numTargetRowsUpdated=updated,
            numTargetRowsMatchedUpdated=counts["matched", "update"],
            numTargetRowsNotMatchedBySourceUpdated=counts["not matched by source", "update"],
            numTargetRowsDeleted=deleted,
            numTargetRowsMatchedDeleted=counts["matched", "delete"],
            numTargetRowsNotMatchedBySourceDeleted=counts["not matched by source", "delete"],
            numTargetRowsCopied=copied,
        )

    def _num_rows(self, files: FileSet) -> int:
        if files.num_rows is not None:
            return files.num_rows
        return self._merge.transaction.target.frame(files).count()

    def _num_inserted(self, added: FileSet, inserted: DataFrame | None) -> int:
        if inserted is None:
            return 0
        if added.num_rows is not None:
            values = self._merge.metrics.values
            return added.num_rows - values["numTargetRowsCopied"] - values["numTargetRowsUpdated"]
        # The session does not collect statistics.
        if self._merge.transaction.writes_change_data:
            inserted = inserted.filter(F.col(CHANGE_TYPE).isNull())
        return inserted.count()
