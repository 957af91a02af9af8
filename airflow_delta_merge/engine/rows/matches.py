"""Which target rows match the source, and which clause takes each: the plans of a merge's first phase."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.pruning.key_filter import filtered_condition
from airflow_delta_merge.engine.rows.output import numbered_by_clause

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.merge_context import MergeContext

#: Bits of a row's number within one task, as ``monotonically_increasing_id`` builds it.
_ROW_BITS = 33

#: A search reads only the narrow columns of the files.
_SEARCHED_BYTES_PER_TASK = 16 * 1024 * 1024
#: More tasks than cores, so that no core waits long for the last task.
_TASKS_PER_CORE = 8


@dataclass(frozen=True)
class MatchCounts:
    """What the search found.

    :param pairs: pairs of a source row and a target row that match.
    :param matched_rows: distinct target rows in them.
    :param clauses: rows that each clause takes, in the order of the clauses' numbers; a row counts once for each pair.
    """

    pairs: int
    matched_rows: int
    clauses: tuple[int, ...]

    @classmethod
    def of(cls, merge: MergeContext, values: dict[str, Any]) -> MatchCounts:
        """From the values of :func:`match_counts`."""
        return cls(values["pairs"], values["matched_rows"], rows_of_clause(merge, values))


def clause_counts(merge: MergeContext, clause: Column) -> list[Column]:
    """Aggregates over rows for :func:`rows_of_clause`.

    :param clause: the number of the clause that takes the target row.
    """
    numbers = range(1, len(merge.target_clauses) + 1)
    return [F.count_if(clause == F.lit(n)).alias(f"clause_{n}") for n in numbers]


def rows_of_clause(merge: MergeContext, values: dict[str, Any]) -> tuple[int, ...]:
    """Rows that each clause takes, in the order of the clauses' numbers, from the values of :func:`clause_counts`."""
    return tuple(values[f"clause_{n}"] for n in range(1, len(merge.target_clauses) + 1))


def match_counts(merge: MergeContext, matched: Column, number: Column, clause: Column) -> list[Column]:
    """Aggregates over rows for :class:`MatchCounts`.

    :param matched: whether the target row has a matching source row.
    :param number: the target row's number (long).
    :param clause: the number of the clause that takes it.
    """
    distinct = merge.gateway.distinct_count(F.when(matched, number))
    return [F.count_if(matched).alias("pairs"), distinct.alias("matched_rows"), *clause_counts(merge, clause)]


def positions_in(
    merge: MergeContext, files: FileSet, *, where: Sequence[Column] = (), most_tasks: int | None = None
) -> DataFrame:
    """The target's rows in ``files``, each with its file's path, its index in the file and a number.

    The index is set where positions must be the same in each read; else it is NULL, so the reader need not count. The
    number is unique in this read.

    :param where: predicates that the rows must fulfil.
    :param most_tasks: maximum number of tasks that read them; None for Spark's own number.
    """
    transaction = merge.transaction
    indexed = transaction.writes_deletion_vectors or transaction.writes_change_data or merge.copies_files
    return transaction.target.frame_with_positions(
        files, merge.names, indexed=indexed, where=where, most_tasks=most_tasks
    )


def matches_of(merge: MergeContext, rows: DataFrame) -> DataFrame:
    """The matches, as :attr:`~airflow_delta_merge.engine.rows.touched_files.TouchedFiles.matches` describes them.

    :param rows: target rows with their positions, joined with source rows and their numbers.
    """
    names, is_taken = merge.names, F.col(merge.names.clause) > 0
    # New names for all columns: these rows are later joined with the source that they came from.
    return rows.select(
        F.when(is_taken, F.col(names.file_path)).alias("path"),
        F.when(is_taken, F.col(names.row_index)).alias("row_index"),
        F.col(names.row_number).alias("row_number"),
        F.col(names.source_row_id).alias(names.matched_row_id),
        F.col(names.clause).alias("clause"),
    )


def search_tasks(merge: MergeContext) -> int:
    """Maximum number of tasks that the search of the candidate files is worth.

    Spark counts every file as at least 4 MB, so 100,000 small files become 3,000 tasks, also in each later stage.
    """
    worthwhile = math.ceil(merge.candidates.num_bytes / _SEARCHED_BYTES_PER_TASK)
    return max(worthwhile, _TASKS_PER_CORE * merge.gateway.default_parallelism)


def find_matches(merge: MergeContext) -> DataFrame:
    """Join the candidate files' rows with the source, reading only what the conditions need."""
    names = merge.names
    by_source = merge.clauses_of("not matched by source")
    where = [] if by_source else merge.row_predicates
    target = positions_in(merge, merge.candidates, where=where, most_tasks=search_tasks(merge))
    source = merge.source.for_join()
    if by_source:
        joined = target.join(source, merge.statement.condition, "left")
    else:
        joined = target.join(source, filtered_condition(merge), "inner")
    has_match = F.col(names.source_row_id).isNotNull()
    rows = joined.select("*", numbered_by_clause(merge, has_match).alias(names.clause))
    if by_source:
        rows = rows.filter(has_match | (F.col(names.clause) > 0))
    return matches_of(merge, rows)


def count_matches(merge: MergeContext, matches: DataFrame) -> tuple[list[str], MatchCounts]:
    """The encoded paths of the files in which a clause takes a row, and the counts, by one row a task."""
    touched: set[str] = set()
    totals: Counter[str] = Counter()
    if not merge.candidates.count:
        return [], MatchCounts.of(merge, totals)
    number, is_matched = F.col("row_number"), F.col(merge.names.matched_row_id).isNotNull()
    counts = match_counts(merge, is_matched, number.bitwiseAND((1 << _ROW_BITS) - 1), F.col("clause"))
    paths = F.collect_set("path").alias("paths")
    for row in matches.groupBy(F.shiftright(number, _ROW_BITS)).agg(paths, *counts).collect():
        found = row.asDict()
        touched.update(found.pop("paths"))
        totals.update(found)
    return sorted(touched), MatchCounts.of(merge, totals)
