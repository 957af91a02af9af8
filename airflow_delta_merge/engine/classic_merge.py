"""Merges that update or delete: find the touched files, then rewrite them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from airflow_delta_merge.engine.insert_only_merge import inserted_rows, set_skipping_metrics
from airflow_delta_merge.engine.output import target_row_clause, updated_column

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet, JavaObject
    from airflow_delta_merge.engine.merge_context import MergeContext


@dataclass(frozen=True)
class TouchedFiles:
    """What the search for matches found.

    :param files: files that hold a row which a clause takes.
    :param matches: one row for each matched pair and each target row that a by-source clause takes: the file's
        path, the row's index, the source row's number (NULL without a match) and the clause's number.
    :param num_pairs: how many pairs of source and target rows match.
    :param rows_of_clause: target rows that each clause takes, in the order of the clauses' numbers.
    """

    files: FileSet
    matches: DataFrame
    num_pairs: int
    rows_of_clause: tuple[int, ...]


class ClassicMergeExecutor:
    """Merges in two phases.

    Phase 1, :meth:`find_touched_files`: join the source with the candidate files, reading only the columns that
    the conditions need, and decide for each target row which clause takes it. The matches are kept, and counted by
    Spark into one row a file: pairs, distinct target rows (a bitmap of row indexes) and rows of each clause. That
    tells the touched files, the ambiguity error and all row metrics. A file is touched only if a clause takes one
    of its rows; pairs for which every condition is false touch nothing (delta-io/delta#1812).

    Phase 2, :meth:`write_all_changes`: read the touched files whole, beside each row the source row it matches,
    and write updated and unmodified rows in the files' own order; a small source is broadcast, so that no target
    row is shuffled. Source rows that appear in no match are inserted.
    """

    def __init__(self, merge: MergeContext) -> None:
        self._merge = merge
        self.reason = ""

    def find_touched_files(self) -> TouchedFiles:
        """Find the files to rewrite and count the rows of each clause.

        :raises MergeExecutionError: when several source rows match one target row and it is not clear what
            becomes of it (Delta's DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE).
        """
        merge = self._merge
        with merge.metrics.phase("scan", "scanTimeMs"):
            candidates = merge.delta.filter_files(merge.write.transaction, merge.candidate_predicates)
            matches = self._matches(candidates)
            if merge.insert_clauses:
                matches = matches.persist()  # the inserts need the matches again
            by_file = self._count_by_file(matches) if candidates.count else []
            self._check_multiple_matches(by_file)
            rows_of_clause = self._rows_of_clause(by_file)
            paths = [row["path"] for row in by_file if any(row["clauses"])]
            files = merge.delta.select_files(merge.command, merge.write.transaction, candidates, paths)
        set_skipping_metrics(merge, candidates)
        return TouchedFiles(files, matches, sum(row["pairs"] for row in by_file), rows_of_clause)

    def _matches(self, candidates: FileSet) -> DataFrame:
        merge, names = self._merge, self._merge.names
        target = merge.delta.target_frame_with_positions(
            merge.command, merge.write.transaction, candidates, path=names.file_path, row_index=names.row_index
        )
        by_source = merge.clauses_of("not matched by source")
        joined = target.join(merge.source.for_join(), merge.condition, "left" if by_source else "inner")
        row_id = F.col(names.source_row_id)
        number = target_row_clause(merge.clauses_of("matched"), by_source, row_id.isNotNull())
        # Fresh names for all: these rows are later joined with the source that they came from.
        matches = joined.select(
            F.col(names.file_path).alias("path"),
            F.col(names.row_index).alias("row_index"),
            row_id.alias(names.matched_row_id),
            number.alias("clause"),
        )
        if not by_source:
            return matches
        return matches.filter(F.col(names.matched_row_id).isNotNull() | (F.col("clause") > 0))

    def _count_by_file(self, matches: DataFrame) -> list[Row]:
        """One row a file: path, pairs, distinct matched rows, and the rows of each clause."""
        merge = self._merge
        matched = F.col(merge.names.matched_row_id).isNotNull()
        clauses = [F.count_if(F.col("clause") == F.lit(n)) for n in range(1, len(merge.target_clauses) + 1)]
        counts = matches.groupBy("path").agg(
            F.count_if(matched).alias("pairs"),
            merge.delta.distinct_count(F.when(matched, F.col("row_index"))).alias("matched_rows"),
            F.array(*clauses).alias("clauses"),
        )
        return counts.collect()

    def _check_multiple_matches(self, by_file: Sequence[Row]) -> None:
        ambiguous = any(row["pairs"] > row["matched_rows"] for row in by_file)
        if ambiguous and not self._deletes_all_matched:
            raise self._merge.delta.multiple_matches_error()

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
        """Rewrite the touched files and insert source rows that match nothing.

        :return: JVM sequence of the added files.
        """
        merge = self._merge
        with merge.metrics.phase("rewrite", "rewriteTimeMs"):
            input_bytes = touched.files.num_bytes
            rows = self._rewritten_rows(touched.files)
            inserted: DataFrame | None = None
            if merge.insert_clauses:
                inserted = inserted_rows(merge, self.unmatched_rows(touched))
                input_bytes += merge.source.num_bytes
                rows = rows.unionAll(inserted)
            added = merge.write.write_files(rows, input_bytes=input_bytes, partition_columns=merge.partition_columns)
            self._set_row_metrics(touched, merge.delta.file_set(added), inserted)
        self.reason = (
            f"matched or by-source clauses touch {touched.files.count} files, which are rewritten with the source "
            + ("broadcast" if merge.source.is_small else "shuffled")
        )
        return added

    def unmatched_rows(self, touched: TouchedFiles) -> DataFrame:
        """The source rows that appear in no match."""
        merge = self._merge
        if touched.num_pairs == 0:
            return merge.source.frame
        ids = touched.matches.select(merge.names.matched_row_id).filter(F.col(merge.names.matched_row_id).isNotNull())
        return merge.without_ids(ids, merge.names.matched_row_id, num_ids=touched.num_pairs)

    def _rewritten_rows(self, files: FileSet) -> DataFrame:
        """Every row of the files that no clause deletes, updated where a clause says so, in the final schema."""
        merge, names = self._merge, self._merge.names
        target = merge.delta.target_frame(merge.command, merge.write.transaction, files)
        joined = target.join(merge.source.for_join(), merge.condition, "left")
        taken = target_row_clause(
            merge.clauses_of("matched"),
            merge.clauses_of("not matched by source"),
            F.col(names.source_row_id).isNotNull(),
        )
        number = F.col(names.clause)
        numbered = joined.select("*", taken.alias(names.clause))
        deletes = [n for n, clause in enumerate(merge.target_clauses, start=1) if clause.action == "delete"]
        kept = numbered.filter(~number.isin(deletes)) if deletes else numbered
        return kept.select(*self._output_columns(number))

    def _output_columns(self, number: Column) -> list[Column]:
        merge = self._merge
        copied = [merge.delta.column(copy.child()) for copy in merge.copied]
        return [
            updated_column(position, column, merge.target_clauses, number).alias(name)
            for position, (column, name) in enumerate(zip(copied, merge.column_names, strict=True))
        ]

    def _set_row_metrics(self, touched: TouchedFiles, added: FileSet, inserted: DataFrame | None) -> None:
        merge = self._merge
        counts = dict.fromkeys((("matched", "update"), ("matched", "delete")), 0)
        counts |= dict.fromkeys((("not matched by source", "update"), ("not matched by source", "delete")), 0)
        for clause, rows in zip(merge.target_clauses, touched.rows_of_clause, strict=True):
            counts[clause.kind, clause.action] += rows
        updated = counts["matched", "update"] + counts["not matched by source", "update"]
        deleted = counts["matched", "delete"] + counts["not matched by source", "delete"]
        copied = self._num_rows(touched.files) - updated - deleted
        if added.num_rows is not None:
            num_inserted = added.num_rows - copied - updated
        else:  # statistics are switched off
            num_inserted = inserted.count() if inserted is not None else 0
        merge.metrics.set(
            numTargetRowsUpdated=updated,
            numTargetRowsMatchedUpdated=counts["matched", "update"],
            numTargetRowsNotMatchedBySourceUpdated=counts["not matched by source", "update"],
            numTargetRowsDeleted=deleted,
            numTargetRowsMatchedDeleted=counts["matched", "delete"],
            numTargetRowsNotMatchedBySourceDeleted=counts["not matched by source", "delete"],
            numTargetRowsCopied=copied,
            numTargetRowsInserted=num_inserted,
            numTargetFilesRemoved=touched.files.count,
            numTargetBytesRemoved=touched.files.num_bytes,
            numTargetPartitionsRemovedFrom=touched.files.partitions,
            numTargetFilesAdded=added.count,
            numTargetBytesAdded=added.num_bytes,
            numTargetPartitionsAddedTo=added.partitions,
        )

    def _num_rows(self, files: FileSet) -> int:
        if files.num_rows is not None:
            return files.num_rows
        return self._merge.delta.target_frame(self._merge.command, self._merge.write.transaction, files).count()
