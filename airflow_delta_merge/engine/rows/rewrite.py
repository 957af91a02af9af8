"""The rows that replace those taken by clauses: plans from matches and files to new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.rows.change_data import with_change_rows
from airflow_delta_merge.engine.rows.matches import positions_in
from airflow_delta_merge.engine.rows.output import (
    change_type,
    clause_number,
    columns_of_clause,
    inserted_columns,
    numbered_by_clause,
    updated_columns,
)
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_scan import TrackingColumn
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.rows.touched_files import TouchedFiles

#: Approximate bytes per match in Spark's hash table.
_BYTES_OF_MATCH = 32


def updates_need_only_the_source(merge: MergeContext) -> bool:
    """Whether the new version of every updated row follows from its source row, without the old version."""
    if not merge.settings.shortcuts:
        return False
    if merge.transaction.target.tracks_rows or merge.transaction.writes_change_data:
        return False
    updates = merge.update_clauses
    # A target row without a match needs its old version, even if the clause sets only constants.
    return bool(updates) and all(clause.kind == "matched" and clause.needs_only_the_source for clause in updates)


def updates_of_matches(merge: MergeContext, touched: TouchedFiles) -> DataFrame:
    """The new versions of updated rows, from the matches and the source; see :func:`updates_need_only_the_source`.

    :return: columns of the final schema.
    """
    matched, same = _matched(merge, touched.matches.filter(F.col("clause").isin(merge.numbers_of("update"))))
    # The source comes first: Spark gives new attributes to the second occurrence of a relation.
    joined = merge.source.for_join().join(matched, same, "inner")
    return joined.select(*merge.output_columns(_updated_from_source(merge), []))


def can_meet_source_once(merge: MergeContext, touched: TouchedFiles) -> bool:
    """Whether one join of the source with its matches is no worse than separate joins for updates and inserts.

    The join must keep all source rows, so it broadcasts the matches instead of the source, or shuffles both.
    """
    return _is_broadcast(merge, touched) or not merge.source.is_small


def updates_and_inserts_of_matches(merge: MergeContext, touched: TouchedFiles) -> DataFrame:
    """The rows of :func:`updates_of_matches` plus the rows that insert clauses make from unmatched source rows.

    :return: columns of the final schema.
    """
    names, numbers = merge.names, merge.numbers_of("update")
    matched, same = _matched(merge, touched.matches.filter(F.col(names.matched_row_id).isNotNull()))
    joined = merge.source.frame.join(F.broadcast(matched) if _is_broadcast(merge, touched) else matched, same, "left")
    is_new, inserted = F.col(names.matched_row_id).isNull(), F.col(names.insert_clause)
    rows = joined.select(
        "*", F.when(is_new, clause_number(merge.insert_clauses)).otherwise(F.lit(0)).alias(names.insert_clause)
    ).filter(F.col(names.clause).isin(numbers) | (inserted > 0))
    new = inserted_columns(merge, inserted)
    pairs = zip(new, _updated_from_source(merge), strict=True)
    values = [F.when(is_new, value).otherwise(updated) for value, updated in pairs]
    return rows.select(*merge.output_columns(values, []))


def _matched(merge: MergeContext, matches: DataFrame) -> tuple[DataFrame, Column]:
    """The source row's and the clause's number of each match, and the condition that joins them with the source."""
    names = merge.names
    matched = matches.select(F.col(names.matched_row_id), F.col("clause").alias(names.clause))
    return matched, F.col(names.source_row_id) == F.col(names.matched_row_id)


def _is_broadcast(merge: MergeContext, touched: TouchedFiles) -> bool:
    return touched.num_pairs * _BYTES_OF_MATCH <= merge.settings.broadcast_bytes


def _updated_from_source(merge: MergeContext) -> list[Column]:
    """The columns of an updated row, from its source row and the clause's number."""
    return columns_of_clause(merge.update_clauses, merge.numbers_of("update"), F.col(merge.names.clause))


def rewritten_rows(merge: MergeContext, touched: TouchedFiles) -> tuple[DataFrame, list[TrackingColumn]]:
    """The rows of the touched files to write: updated where a clause says so, without the deleted ones.

    Includes the change rows if the table has change data, and rows that no clause takes unless ``touched`` keeps them.

    :return: columns of the final schema, then the row tracking columns.
    """
    joined, tracking = _joined_with_source(merge, touched)
    number = F.col(merge.names.clause)
    if touched.keeps_rest:
        joined = joined.filter(number > 0)
    deletes = merge.numbers_of("delete")
    if deletes and not merge.transaction.writes_change_data:
        joined = joined.filter(~number.isin(deletes))
    new = updated_columns(merge, number, updates_all=_updates_all(merge, touched))
    columns = merge.output_columns([*new, *_tracking_values(merge, number, tracking)], tracking)
    if merge.transaction.writes_change_data:
        old = [*merge.statement.copied_columns, *(column.column for column in tracking)]
        before = F.struct(*merge.output_columns(old, tracking)) if tracking else merge.statement.copied_row
        rows = with_change_rows(joined, columns, before, change_type(merge, number))
    else:
        rows = joined.select(*columns)
    return merge.transaction.target.marked_as_tracking(rows, tracking), tracking


def deletes_rows_once(merge: MergeContext, touched: TouchedFiles) -> bool:
    """Whether to join rows by position: several source rows delete one row, which must get a single change row."""
    return touched.has_multiple_matches and merge.transaction.writes_change_data


def _joined_with_source(merge: MergeContext, touched: TouchedFiles) -> tuple[DataFrame, list[TrackingColumn]]:
    """The touched files' rows, joined with their source rows, and the number of the clause that takes each."""
    names, transaction = merge.names, merge.transaction
    deletes_once = deletes_rows_once(merge, touched)
    if touched.kept is not None and not deletes_once:
        return touched.kept.target_rows(touched.paths), touched.kept.tracking
    by_source = bool(merge.clauses_of("not matched by source"))
    how = "left" if by_source or not touched.keeps_rest else "inner"
    if deletes_once:
        # Several source rows delete one row, which must get one change row: join with the distinct matched positions.
        if not transaction.target.has_stable_positions:
            raise MergeExecutionError(
                "Several source rows delete the same target row. The table has a change data feed and a column named "
                "_metadata, so the change cannot be recorded once. Remove the duplicates from the source."
            )
        target, tracking = transaction.target.with_row_tracking(positions_in(merge, touched.files))
        matched = touched.matches.filter(F.col(names.matched_row_id).isNotNull())
        marked = matched.select(
            F.col("path").alias(names.matched_path), F.col("row_index").alias(names.matched_row_index)
        ).distinct()
        at_row = (F.col(names.file_path) == F.col(names.matched_path)) & (
            F.col(names.row_index) == F.col(names.matched_row_index)
        )
        joined, has_match = target.join(marked, at_row, how), F.col(names.matched_path).isNotNull()
    else:
        files = touched.taken_rows or touched.files
        frame = transaction.target.frame(files, reads_all_rows=True)
        target, tracking = transaction.target.with_row_tracking(frame)
        joined = target.join(merge.source.for_join(), merge.statement.condition, how)
        has_match = F.col(names.source_row_id).isNotNull()
        if by_source and transaction.partition_columns:
            # Where all unmatched rows are deleted, Spark would make the join an inner one, and Delta compare the texts
            # of partition values, of which one that is invalid would fail the merge. Spark takes what it can't foresee
            # as it is.
            has_match = has_match & (F.monotonically_increasing_id() >= 0)
    return joined.select("*", numbered_by_clause(merge, has_match).alias(names.clause)), tracking


def _updates_all(merge: MergeContext, touched: TouchedFiles) -> bool:
    """Whether each row to write was taken by an update clause; copies of files don't count, as Delta makes none."""
    if not merge.update_clauses or merge.transaction.writes_change_data or merge.options.update_only_changed:
        return False
    kinds = (merge.clauses_of("matched"), merge.clauses_of("not matched by source"))
    takes_all = all(any(clause.condition is None for clause in clauses) for clauses in kinds)
    return takes_all or (touched.keeps_rest and merge.transaction.writes_deletion_vectors)


def _tracking_values(merge: MergeContext, number: Column, tracking: Sequence[TrackingColumn]) -> list[Column]:
    updates = merge.numbers_of("update")
    return [
        F.when(~number.isin(updates), column.column) if column.changes_with_row and updates else column.column
        for column in tracking
    ]
