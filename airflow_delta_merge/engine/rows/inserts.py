"""The rows that insert clauses make from unmatched source rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.rows.change_data import with_insert_rows
from airflow_delta_merge.engine.rows.output import clause_number, inserted_columns
from airflow_delta_merge.engine.target_metrics import set_adding_metrics
from airflow_delta_merge.engine.transactional_write import write_files

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.target_scan import TrackingColumn
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.started_merge import StartedMerge


def inserted_rows(
    merge: StartedMerge, unmatched: DataFrame, *, tracking: Sequence[TrackingColumn] = (), change_data: bool = False
) -> DataFrame:
    """The rows that the insert clauses make from source rows without a match.

    :param tracking: the table's row tracking columns; they are NULL for new rows.
    :param change_data: whether change rows are written beside the data; a merge that only appends needs none.
    :return: columns of the table's final schema, ``tracking`` and, with change data, ``_change_type``.
    """
    number = F.col(merge.names.clause)
    numbered = unmatched.select("*", clause_number(merge.insert_clauses).alias(merge.names.clause)).filter(number > 0)
    values = inserted_columns(merge, number)
    values += [F.lit(None).cast("bigint") for _ in tracking]
    columns = merge.output_columns(values, tracking)
    rows = with_insert_rows(numbered, columns) if change_data else numbered.select(*columns)
    return merge.transaction.target.marked_as_tracking(rows, tracking)


def counted_inserts(merge: StartedMerge, unmatched: DataFrame) -> DataFrame:
    """The rows that the insert clauses make from source rows without a match; sets the metric of their number."""
    rows = inserted_rows(merge, unmatched)
    merge.metrics.set(numTargetRowsInserted=rows.count())
    return rows


def write_inserts(merge: MergeContext, unmatched: DataFrame) -> JavaObject:
    """Append the rows that the insert clauses make from ``unmatched`` and set the metrics of added files."""
    if merge.source.num_rows == 0:
        return merge.gateway.seq([])
    return append_rows(merge, unmatched, input_bytes=merge.source.num_bytes)


def append_rows(merge: StartedMerge, unmatched: DataFrame, *, input_bytes: int) -> JavaObject:
    """Like :func:`write_inserts`, for a merge whose source may not have been read yet.

    :param input_bytes: a rough size of ``unmatched``.
    """
    rows = inserted_rows(merge, unmatched)
    added = write_files(merge, rows, input_bytes=input_bytes)
    files = merge.transaction.files.file_set(added)
    set_adding_metrics(merge, files)
    merge.metrics.set(numTargetRowsInserted=files.num_rows if files.num_rows is not None else rows.count())
    return added
