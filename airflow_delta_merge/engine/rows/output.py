"""Turns clauses into columns: which clause takes a row, and what the row becomes.

Clauses that act on target rows are numbered from 1 in the grammar's order (matched, then not matched by source),
insert clauses likewise among themselves; 0 means that no clause takes the row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.statement import ResolvedClause
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.started_merge import StartedMerge

#: Types within a type's text that Spark can't compare, or not text by text; a field's name may have the same words.
_INCOMPARABLE = re.compile(r"(?:^|[<:,])(?:map<|variant(?:$|[>,])|string collate )")


def clause_number(clauses: Sequence[ResolvedClause], *, first: int = 1) -> Column:
    """Number of the first clause whose condition holds, counted from ``first``; 0 when none does.

    All conditions are evaluated for every row, even after one holds, because Delta does so: a condition that
    raises an error raises it for each row.

    :param clauses: clauses of one kind.
    :return: an integer column.
    """
    if not clauses:
        return F.lit(0)
    if clauses[0].condition is None:
        return F.lit(first)
    if len(clauses) == 1:
        return F.when(clauses[0].condition, F.lit(first)).otherwise(F.lit(0))
    holds = [F.coalesce(c.condition, F.lit(False)) if c.condition is not None else F.lit(True) for c in clauses]
    padding = [F.lit(False)] * (first - 1)
    return F.array_position(F.array(*padding, *holds), True).cast("int")


def numbered_by_clause(merge: MergeContext, has_match: Column) -> Column:
    """Number of the clause that takes a target row (joined with its source row), 0 when none does.

    :param has_match: whether the target row has a matching source row.
    """
    matched, by_source = merge.clauses_of("matched"), merge.clauses_of("not matched by source")
    number = F.when(has_match, clause_number(matched)).otherwise(clause_number(by_source, first=len(matched) + 1))
    return _only_changes(merge, number) if merge.options.update_only_changed else number


def _only_changes(merge: MergeContext, number: Column) -> Column:
    """The clause's number, but 0 for a row that an update clause would not change."""
    copied, types = merge.statement.copied_columns, merge.statement.column_types
    for index, clause in enumerate(merge.target_clauses, start=1):
        if clause.action != "update":
            continue
        changes = F.lit(False)
        for new, old, type_, may_change in zip(clause.values, copied, types, clause.changes, strict=True):
            if may_change:
                changes = changes | _differ(new, old, type_)
        number = F.when((number == F.lit(index)) & ~changes, F.lit(0)).otherwise(number)
    return number


def _differ(new: Column, old: Column, type_: str) -> Column:
    """Whether two values of a type differ, or might: Spark can't compare some types."""
    if type_.startswith("string collate "):  # texts that are equal by the collation may still be different texts
        new, old, type_ = new.cast("string"), old.cast("string"), "string"
    if _INCOMPARABLE.search(type_):
        return F.lit(True)
    return ~new.eqNullSafe(old)


def updated_columns(merge: MergeContext, number: Column, *, updates_all: bool = False) -> list[Column]:
    """The columns of the rewritten target row: new values where an update clause changes them, else the old ones.

    :param number: the number of the clause that took the row.
    :param updates_all: whether an update clause took each row. Then no old value appears that none of them keeps, which
        Spark may be unable to cast to the type that its column evolves to.
    :return: columns of the final schema.
    """
    numbered = enumerate(merge.target_clauses, start=1)
    updates = [(number == F.lit(index), clause) for index, clause in numbered if clause.action == "update"]
    columns = []
    for position, old in enumerate(merge.statement.copied_columns):
        changes = [(taken, clause.values[position]) for taken, clause in updates if clause.changes[position]]
        other = changes.pop()[1] if updates_all and len(changes) == len(updates) else old
        for taken, value in reversed(changes):
            other = F.when(taken, value).otherwise(other)
        columns.append(other)
    return columns


def change_type(merge: MergeContext, number: Column) -> Column:
    """The change type of a target row in the change data feed: NULL for a row that is only copied."""
    updated = F.when(number.isin(merge.numbers_of("update")), "update_postimage")
    return updated.when(number.isin(merge.numbers_of("delete")), "delete")


def columns_of_clause(clauses: Sequence[ResolvedClause], numbers: Sequence[int], number: Column) -> list[Column]:
    """The columns of a row that one of these clauses makes. Rows that none of them takes must be filtered out before.

    :param clauses: at least one clause that inserts or updates.
    :param numbers: their numbers.
    :param number: the number of the clause that takes the row.
    :return: columns of the final schema.
    """
    columns = list(clauses[-1].values)
    for clause, its_number in reversed(list(zip(clauses[:-1], numbers, strict=False))):
        taken = number == F.lit(its_number)
        pairs = zip(clause.values, columns, strict=True)
        columns = [F.when(taken, value).otherwise(other) for value, other in pairs]
    return columns


def inserted_columns(merge: StartedMerge, number: Column) -> list[Column]:
    """The columns of a row that one of the insert clauses makes; see :func:`columns_of_clause`."""
    clauses = merge.insert_clauses
    return columns_of_clause(clauses, range(1, len(clauses) + 1), number)
