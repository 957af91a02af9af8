"""Which target files a merge must look at: predicates for ``filterFiles`` from its conditions and the source's keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_delta_merge.engine.data_files.trusted_bounds import leaves_files_out, with_margin
from airflow_delta_merge.engine.pruning.source_keys import in_range
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_parts import TargetPart
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.started_merge import StartedMerge


def candidate_files(merge: StartedMerge, of_keys: Sequence[Column]) -> FileSet:
    """The files that may hold a row that the merge must look at; all files without predicates. They count as read.

    A predicate over partitions may raise an error for a file, as no other part of its condition is asked first:
    ``t.origin = 'files' AND to_date(t.day, 'yyyyMMdd') < …``. Delta also casts the texts of partition values as the
    session says, and may fail, where Spark reads an invalid text, such as the empty text of some writers, as NULL. So a
    merge must fail only by the predicates by which Delta's own MERGE chooses files.

    :param of_keys: predicates over the target, all of which are true for every row that a source row matches.
    """
    files, predicates = merge.transaction.files, _predicates(merge, of_keys)
    try:
        return files.filter(predicates) if predicates else files.all()
    except MergeExecutionError:
        if merge.clauses_of("not matched by source"):
            return files.all()  # then Delta's own MERGE reads all files
        if not of_keys:
            raise
        return candidate_files(merge, [])


def _predicates(merge: StartedMerge, of_keys: Sequence[Column]) -> list[Column]:
    """Predicates over the target, all of which are true for every row that the merge must look at.

    They choose files by their statistics only. Evaluated for rows, a clause's condition might raise an error for a row
    that the clause does not apply to.
    """
    if merge.clauses_of("not matched by source"):
        return _predicates_by_source(merge, of_keys)
    matching = [*merge.statement.conjuncts.target_only, *of_keys]
    if not merge.insert_clauses:
        # A row matters only if it fulfils the target's part of some clause's condition.
        parts = merge.statement.conjuncts.target_only_of_clauses
        if all(parts):
            matching.append(reduce(Column.__or__, map(_conjunction, parts)))
    return matching


def _predicates_by_source(merge: StartedMerge, of_keys: Sequence[Column]) -> list[Column]:
    """:func:`_predicates` with NOT MATCHED BY SOURCE clauses.

    Delta's own MERGE then reads all files, so only bounds that can be trusted may leave one out.
    """

    def trusted(parts: Sequence[TargetPart]) -> list[Column]:
        return [predicate for part in parts if (predicate := _trusted(merge, part)) is not None]

    parts = merge.statement.conjuncts.target_parts(merge.transaction.partition_columns)
    by_source = [trusted(of_clause) for of_clause in parts.by_source]
    if not all(by_source):
        return []
    # A row matters if it can match, or if a by-source clause can take it. Predicates that both share stay separate:
    # a predicate over partitions alone prevents conflicts with writers of other partitions.
    matching = [*trusted(parts.condition), *of_keys]
    either = reduce(Column.__or__, map(_conjunction, by_source), _conjunction(matching))
    return [*trusted(parts.shared), either]


def _trusted(merge: StartedMerge, part: TargetPart) -> Column | None:
    """A predicate that is true for each file that can hold a row for which this part of a condition is true.

    None if nothing leaves files out.
    """
    if isinstance(part, Column):
        return part
    if not merge.settings.prune_by_source or not leaves_files_out(part.type):
        return None
    ends = [end for end in (part.low, part.high) if end is not None]
    low, high = with_margin(part.type, (ends[0], ends[-1]), in_utc=merge.transaction.is_in_utc, ascii_only=True)
    known = None if part.low is None else low, None if part.high is None else high
    return None if known == (None, None) else in_range(part.column, known, part.type)


def _conjunction(predicates: Sequence[Column]) -> Column:
    return reduce(Column.__and__, predicates, F.lit(True))
