"""Phase 1 of a merge that updates or deletes: which files have rows that clauses take.

The source is joined with the candidate files, reading only the columns that the conditions need, which decides for each
target row which clause takes it. The matches are kept. Spark counts them into one row per task: pairs, distinct target
rows (a bitmap of row numbers), rows of each clause and the paths of their files. These give the touched files, the
ambiguity error and all row metrics. A file is touched only if a clause takes one of its rows; pairs for which every
condition is false touch nothing (delta-io/delta#1812).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from airflow_delta_merge.engine.delta_jvm.errors import raises_merge_errors
from airflow_delta_merge.engine.old_rows.native import is_worth_copying
from airflow_delta_merge.engine.rows.kept_join import KeptJoin, join_and_keep
from airflow_delta_merge.engine.rows.matches import MatchCounts, count_matches, find_matches, matches_of
from airflow_delta_merge.engine.target_metrics import set_skipping_metrics
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.merge_context import MergeContext

_log = logging.getLogger(__name__)

#: How Spark's conditions for a file that it can't read begin.
_UNREADABLE = "FAILED_READ_FILE"


@dataclass(frozen=True)
class TouchedFiles:
    """What the search for matches found.

    :param files: files with a row that a clause takes.
    :param paths: their paths, as Spark encodes them; None when all candidate files are touched.
    :param matches: one row for each matched pair and each target row that a by-source clause takes: ``path`` (the
        file's, as Spark encodes it) and ``row_index`` (long), both NULL in a row that no clause takes, ``row_number``
        (long, see :func:`~airflow_delta_merge.engine.rows.matches.positions_in`), the source row's number (long, NULL
        without a match) and ``clause`` (its number).
    :param num_pairs: how many pairs of source and target rows match.
    :param has_multiple_matches: whether several source rows delete one target row.
    :param rows_of_clause: target rows that each clause takes, in the order of the clauses' numbers.
    :param kept: the join that found them, if it was kept.
    :param keeps_rest: whether Spark writes only new versions of rows; all others stay, or are copied natively.
    :param taken_rows: files with only the rows that clauses take, if the native copy made such files.
    """

    files: FileSet
    paths: Sequence[str] | None
    matches: DataFrame
    num_pairs: int
    has_multiple_matches: bool
    rows_of_clause: tuple[int, ...]
    kept: KeptJoin | None = None
    keeps_rest: bool = False
    taken_rows: FileSet | None = None

    def release(self) -> None:
        """Free the memory and disk that the matches take."""
        if self.kept is not None:
            self.kept.release()
        self.matches.unpersist()


def find_touched_files(merge: MergeContext, *, is_small: bool) -> TouchedFiles:
    """Find the files to rewrite and count the rows of each clause.

    :param is_small: whether source and candidate files are small, so that their join is kept with all columns.
    :raises MergeExecutionError: when several source rows match one target row and the result would be ambiguous
        (Delta's DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE).
    """
    with merge.metrics.phase("scan", "scanTimeMs"):
        touched = _by_kept_join(merge) if is_small else _by_matches(merge)
    set_skipping_metrics(merge, merge.candidates)
    return touched


def _by_kept_join(merge: MergeContext) -> TouchedFiles:
    try:
        with raises_merge_errors():
            kept = join_and_keep(merge)
    except MergeExecutionError as error:
        if not str(error.condition).startswith(_UNREADABLE):
            raise
        # It reads all columns. A damaged one may be one that nothing else reads.
        _log.warning(
            "A file of the table can't be read with all its columns, so only the needed ones are read: %s", error
        )
        return _by_matches(merge)
    try:
        return _touched_files(merge, kept.totals, kept.paths, matches_of(merge, kept.matching_rows()), kept)
    except BaseException:
        kept.release()
        raise


def _by_matches(merge: MergeContext) -> TouchedFiles:
    matches = find_matches(merge)
    if merge.insert_clauses or merge.transaction.writes_deletion_vectors or merge.copies_files:
        matches = matches.persist()  # they are needed again
    try:
        paths, found = count_matches(merge, matches)
        return _touched_files(merge, found, paths, matches)
    except BaseException:
        matches.unpersist()
        raise


def _touched_files(
    merge: MergeContext,
    found: MatchCounts,
    paths: list[str],
    matches: DataFrame,
    kept: KeptJoin | None = None,
) -> TouchedFiles:
    transaction, candidates = merge.transaction, merge.candidates
    deletes_all, ambiguous = _deletes_all_matched(merge), found.pairs > found.matched_rows
    if ambiguous and not deletes_all:
        raise transaction.multiple_matches_error()
    all_touched = len(paths) == candidates.count
    files = candidates if all_touched else transaction.files.select(candidates, paths)
    # That clause is the first: several source rows delete a row only once.
    rows_of_clause = (found.matched_rows, *found.clauses[1:]) if deletes_all else found.clauses
    return TouchedFiles(
        files=files,
        paths=None if all_touched else paths,
        matches=matches,
        num_pairs=found.pairs,
        has_multiple_matches=ambiguous,
        rows_of_clause=rows_of_clause,
        kept=kept,
        keeps_rest=transaction.writes_deletion_vectors or is_worth_copying(merge, files, sum(rows_of_clause)),
    )


def _deletes_all_matched(merge: MergeContext) -> bool:
    """Whether there is only an unconditional delete: it doesn't matter how many source rows match a deleted row."""
    matched = merge.clauses_of("matched")
    return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None
