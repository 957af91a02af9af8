"""New files out of one join: target rows beside the source rows they match, and source rows that match nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.change_data import with_change_rows
from airflow_delta_merge.engine.matches import numbered_by_clause
from airflow_delta_merge.engine.output import change_type, clause_number, inserted_columns, updated_columns

if TYPE_CHECKING:
    from airflow_delta_merge.engine.merge_context import MergeContext


def with_clauses(merge: MergeContext, joined: DataFrame) -> DataFrame:
    """The rows of a join, numbered by the clause that takes a target row and by the one that inserts a source row.

    :param joined: rows of target and source; ``names.file_path`` is NULL in source rows that match nothing, and
        ``names.source_row_id`` in such target rows.
    """
    names = merge.names
    is_target_row = F.col(names.file_path).isNotNull()
    has_match = is_target_row & F.col(names.source_row_id).isNotNull()
    return joined.select(
        "*",
        F.when(is_target_row, numbered_by_clause(merge, has_match)).otherwise(F.lit(0)).alias(names.clause),
        F.when(~is_target_row, clause_number(merge.insert_clauses)).otherwise(F.lit(0)).alias(names.insert_clause),
    )


def new_rows(merge: MergeContext, rows: DataFrame) -> DataFrame:
    """The rows to write in place of the target's and what insert clauses make of the source's.

    :param rows: as :func:`with_clauses` gives them.
    :return: columns of the final schema; with change data the change rows too, and ``_change_type``.
    """
    names, changes = merge.names, merge.transaction.writes_change_data
    is_target_row = F.col(names.file_path).isNotNull()
    clause, inserted = F.col(names.clause), F.col(names.insert_clause)
    is_kept, deletes = is_target_row, merge.numbers_of("delete")
    if deletes and not changes:
        is_kept = is_kept & ~clause.isin(deletes)
    values = updated_columns(merge.statement.copied_columns, merge.target_clauses, clause)
    if merge.insert_clauses:
        is_kept = is_kept | (inserted > 0)
        new = inserted_columns(merge.insert_clauses, inserted)
        pairs = zip(values, new, strict=True)
        values = [F.when(is_target_row, value).otherwise(of_source) for value, of_source in pairs]
    rows, columns = rows.filter(is_kept), merge.output_columns(values, [])
    if not changes:
        return rows.select(*columns)
    kind = F.when(is_target_row, change_type(merge.target_clauses, clause)).otherwise(F.lit("insert"))
    return with_change_rows(rows, columns, merge.statement.copied_row, kind)
