"""The last check before a commit: whether what was written has as many rows as the search for matches foretold.

Delta's own check of the numbers of records leaves out merges that delete rows, and those that insert may lose as many.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_delta_merge.engine.target_metrics import count_rows
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.rows.touched_files import TouchedFiles


def count_inserted(merge: MergeContext, touched: TouchedFiles, num_written: int) -> int:
    """Number of rows that the insert clauses wrote.

    The metrics of :func:`~airflow_delta_merge.engine.target_metrics.count_rows` must have been set before; that of
    copied rows is set again where the log's numbers of rows are wrong.

    :param num_written: number of rows in all the files that the merge adds.
    :raises MergeExecutionError: when rows are missing or too many.
    """
    fewest, most = _bounds_of_inserted(merge, touched)
    inserted = num_written - _num_others(merge)
    if not fewest <= inserted <= most and not merge.transaction.writes_deletion_vectors:
        count_rows(merge, replace(touched.files, num_rows=None), touched.rows_of_clause)
        inserted = num_written - _num_others(merge)
    if not fewest <= inserted <= most:
        expected = f"{fewest + _num_others(merge)}"
        if most > fewest:
            expected += f" to {most + _num_others(merge)}"
        raise _wrong_count(f"The merge wrote {num_written} rows where it should have written {expected}.")
    return inserted


def check_marked(touched: TouchedFiles, more_rows: int | None) -> None:
    """Check that deletion vectors mark as many rows as clauses take.

    :param more_rows: by how many rows the table grows; None if that is unknown.
    :raises MergeExecutionError: when they mark other numbers of rows.
    """
    taken = sum(touched.rows_of_clause)
    if more_rows is not None and -more_rows != taken:
        raise _wrong_count(f"The merge marked {-more_rows} rows as deleted where clauses take {taken}.")


def _bounds_of_inserted(merge: MergeContext, touched: TouchedFiles) -> tuple[int, int]:
    """The smallest and the greatest number of rows that the insert clauses can make."""
    if not merge.insert_clauses:
        return 0, 0
    source = merge.source.num_rows
    inserts_all = any(clause.condition is None for clause in merge.insert_clauses)
    return max(0, source - touched.num_pairs) if inserts_all else 0, source - min(1, touched.num_pairs)


def _num_others(merge: MergeContext) -> int:
    return merge.metrics.values["numTargetRowsCopied"] + merge.metrics.values["numTargetRowsUpdated"]


def _wrong_count(what: str) -> MergeExecutionError:
    return MergeExecutionError(
        f"{what} Nothing was committed. This is a fault of airflow_delta_merge: please report it, and until it is "
        'mended, merge with engine="builtin".'
    )
