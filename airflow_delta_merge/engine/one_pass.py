"""Merges that are sure to touch all candidate files: source and files are joined once, and what comes out is written.

Where a large source updates whatever it matches, nearly every candidate file is touched, and the search for touched
files finds out at the price of a second join what was clear before. The same goes for a source that replaces much of a
few files, and for a small merge whose keys lead to one file, which spends its time on planning and starting jobs. Here
the new files are written first and looked at then: what they must be is counted in the pass that writes them. If the
counts say anything but that every candidate file was touched and no target row matched twice, what was written is
deleted. Where no row was taken at all, it is known then that there is nothing but to append the source; else the merge
takes its two phases.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import raises_merge_errors
from airflow_delta_merge.engine.kept_join import fits_one_task, is_small, join_in_one_task
from airflow_delta_merge.engine.matches import clause_counts, rows_of_clause
from airflow_delta_merge.engine.outer_join import follows_from_the_join, new_rows, with_clauses
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet, WrittenFiles
    from airflow_delta_merge.engine.merge_context import MergeContext

_log = logging.getLogger(__name__)

#: So many rows of candidate files, at most, for each row of the source.
_TARGET_ROWS_FOR_ONE = 4

#: Nothing is kept here, so several times as much is joined as where the join is kept.
_TIMES_OF_KEPT = 4

#: A broadcast source takes the place of a search up to so many rows of the candidate files. To count what is written
#: takes longer for each row than to search it, but a search takes planning and starting jobs first.
_MOST_ROWS_OF_BROADCAST = 1_000_000

#: From so many bytes of candidate files on, two tasks make up for the job that broadcasts the source to them.
_BYTES_FOR_ONE_TASK = 2 * 1024 * 1024


def is_likely_to_touch_all(merge: MergeContext) -> bool:
    """Whether to expect that every candidate file is touched, and the new files follow from one join alone.

    A source that is broadcast to many rows is not meant: with it the search for touched files shuffles nothing. Unless
    little is written for nothing, should a file not be touched after all, there must be a source row for every few rows
    of the files.
    """
    candidates, source = merge.candidates, merge.source
    taken_by = {each.action for each in merge.clauses_of("matched") if each.condition is None}
    num_rows = candidates.num_rows or 0
    if not (taken_by and num_rows and source.num_rows and merge.settings.one_pass):
        return False
    if merge.update_only_changed or not follows_from_the_join(merge):
        return False
    meets_all = source.num_rows >= candidates.count * max(1, merge.settings.one_pass_from_rows)
    if is_small(merge):
        return candidates.count == 1 or meets_all
    if not meets_all:
        return False
    if _is_quickly_broadcast_to(merge):
        return True
    is_most = num_rows <= source.num_rows * _TARGET_ROWS_FOR_ONE
    return is_most and (_is_moderate(merge) or ("update" in taken_by and not source.is_small))


def _is_quickly_broadcast_to(merge: MergeContext) -> bool:
    """Whether the source is broadcast, to so few rows that all of them may be written for nothing."""
    candidates = merge.candidates
    return (
        merge.source.is_small
        and not merge.insert_clauses
        and candidates.num_bytes <= merge.settings.join_once_bytes * _TIMES_OF_KEPT
        and (candidates.num_rows or 0) <= _MOST_ROWS_OF_BROADCAST
    )


def _is_moderate(merge: MergeContext) -> bool:
    return fits_one_task(merge, merge.settings.join_once_bytes * _TIMES_OF_KEPT)


@dataclass(frozen=True)
class OnePass:
    """What came of one pass.

    :param written: the new files; None when there are none, since no clause took a row of the target.
    :param rows_of_clause: target rows that each clause took, in the order of the clauses' numbers.
    :param inserted_rows: rows that insert clauses made in the new files.
    """

    written: WrittenFiles | None
    rows_of_clause: tuple[int, ...]
    inserted_rows: int


def write_in_one_pass(merge: MergeContext) -> OnePass | None:
    """Join source and candidate files and write the new files.

    :return: None when the merge must take its two phases; nothing that was written here is left then.
    """
    rows, counted = _joined(merge)
    try:
        observed, values = merge.gateway.observing(rows, counted)
        num_bytes = merge.candidates.num_bytes + merge.source.num_bytes
        actions = raises_merge_errors(merge.write.write_files)(new_rows(merge, observed), input_bytes=num_bytes)
    except MergeExecutionError as error:
        # An ambiguous match is to be told before any error that a value's expression raises.
        _log.info("Writing in one pass failed, taking two phases: %s", error)
        return None
    found, written = values(), merge.transaction.written_files(actions)
    taken = rows_of_clause(found, len(merge.target_clauses))
    if _is_as_expected(merge, found, taken, written.added):
        return OnePass(written, taken, found["inserted_rows"])
    merge.transaction.discard(actions)
    if not any(taken):
        return OnePass(None, taken, 0)
    _log.info("Not every candidate file is touched just once, taking two phases")
    return None


def _joined(merge: MergeContext) -> tuple[DataFrame, list[Any]]:
    """Target rows beside the source rows they match, unmatched source rows if they may be inserted, and aggregates."""
    names = merge.names
    is_one_file = merge.candidates.count == 1
    # Paths are long, and each row is joined with its own.
    file = F.lit(0) if is_one_file else F.xxhash64(F.input_file_name())
    target = merge.transaction.target.frame(merge.candidates).select("*", file.alias(names.file_path))
    rows = with_clauses(merge, _join(merge, target))
    clause, inserted = F.col(names.clause), F.col(names.insert_clause)
    # Two paths of one hash would make it fewer than the files, which is safe.
    files = F.size(F.collect_set(F.when(clause > 0, F.col(names.file_path))))
    return rows, [
        *clause_counts(merge, clause),
        F.count(names.file_path).alias("target_rows"),
        F.count_if(inserted > 0).alias("inserted_rows"),
        (F.when(F.max(clause) > 0, 1).otherwise(0) if is_one_file else files).alias("touched_files"),
    ]


def _join(merge: MergeContext, target: DataFrame) -> DataFrame:
    """All rows of the target, and of the source if they may be inserted; shuffled only if both sides are large."""
    source, condition = merge.source, merge.statement.condition
    if merge.insert_clauses:
        # No broadcast can tell which source rows match nothing.
        if _is_moderate(merge):
            return join_in_one_task(target, source, condition, "full")
        return target.join(source.frame, condition, "full")
    if is_small(merge) and merge.candidates.num_bytes < _BYTES_FOR_ONE_TASK:
        return join_in_one_task(target, source, condition, "left")
    return target.join(source.for_join(), condition, "left")


def _is_as_expected(merge: MergeContext, found: dict[str, Any], taken: Sequence[int], added: FileSet) -> bool:
    """Whether all files were touched, each row once, and no retried task counted rows twice."""
    deleted = sum(taken[number - 1] for number in merge.numbers_of("delete"))
    return bool(
        found["touched_files"] == merge.candidates.count
        # A target row comes out once for each source row that it matches.
        and found["target_rows"] == merge.candidates.num_rows
        and added.num_rows == found["target_rows"] - deleted + found["inserted_rows"]
    )
