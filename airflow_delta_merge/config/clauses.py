"""The ``WHEN`` clauses of a merge; the ``when_…`` functions read like the statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from airflow_delta_merge.config.checks import check_fields, column_names, pairs, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier, quote_name

_E = TypeVar("_E", bound=StrEnum)


class ClauseKind(StrEnum):
    """When a clause applies, in the order that the MERGE grammar requires."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"


class ClauseAction(StrEnum):
    """What a clause does to its rows."""

    UPDATE = "update"
    UPDATE_ALL = "update_all"
    DELETE = "delete"
    INSERT = "insert"
    INSERT_ALL = "insert_all"


_ACTIONS_OF_KIND = {
    ClauseKind.MATCHED: (ClauseAction.UPDATE, ClauseAction.UPDATE_ALL, ClauseAction.DELETE),
    ClauseKind.NOT_MATCHED: (ClauseAction.INSERT, ClauseAction.INSERT_ALL),
    ClauseKind.NOT_MATCHED_BY_SOURCE: (ClauseAction.UPDATE, ClauseAction.DELETE),
}
_ACTIONS_WITH_VALUES = (ClauseAction.UPDATE, ClauseAction.INSERT)


@dataclass(frozen=True)
class MergeClause:
    """One ``WHEN … THEN …`` of a merge. Build it with the ``when_…`` functions, which read like the statement.

    :param kind: when the clause applies.
    :param action: what it does.
    :param values: pairs of (column, SQL expression) of an ``update`` or ``insert``; empty for all other actions.
        A column may be a struct's field (``address.city``), for updates.
    :param condition: an additional SQL condition, or None.
    :param except_columns: top-level columns that an ``update_all`` doesn't change or an ``insert_all`` leaves out.
    :raises MergeConfigError: when the parts don't fit together or are invalid.
    """

    kind: ClauseKind
    action: ClauseAction
    values: tuple[tuple[str, str], ...] = ()
    condition: str | None = None
    except_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind, action = _enum(ClauseKind, self.kind), _enum(ClauseAction, self.action)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "action", action)
        object.__setattr__(self, "values", pairs(self.values, f"the values of the {kind} {action} clause"))
        if action not in _ACTIONS_OF_KIND[kind]:
            allowed = ", ".join(_ACTIONS_OF_KIND[kind])
            raise MergeConfigError(f"A {kind} clause cannot {action}; it can: {allowed}.")
        if action in _ACTIONS_WITH_VALUES and not self.values:
            raise MergeConfigError(
                f"The {kind} {action} clause sets no column. Add at least one column with its SQL expression."
            )
        if action not in _ACTIONS_WITH_VALUES and self.values:
            raise MergeConfigError(
                f"The {kind} {action} clause has {len(self.values)} columns, but takes none. Remove them."
            )
        if self.condition is not None:
            require_text(self.condition, f"the condition of the {kind} {action} clause")
        for column, value in self.values:
            parse_multipart(require_text(column, f"a column of the {kind} {action} clause"))
            require_text(value, f"the value of column {column!r} in the {kind} {action} clause")
        object.__setattr__(self, "except_columns", column_names(self.except_columns, "except_columns"))
        if self.except_columns and not self.is_star:
            raise MergeConfigError(
                f"except_columns needs update_all or insert_all, and is not available with {action}."
            )
        for column in self.except_columns:
            if len(parse_multipart(column)) > 1:  # leaving out its struct would leave out other fields, too
                raise MergeConfigError(
                    f"except_columns has {column!r}, which is a field of a struct. Leave out a whole column, or set "
                    "the others one by one."
                )

    @property
    def is_star(self) -> bool:
        """Whether the clause takes every column by name."""
        return self.action in (ClauseAction.UPDATE_ALL, ClauseAction.INSERT_ALL)

    def only_where(self, condition: str) -> MergeClause:
        """The clause restricted to rows that fulfil a condition."""
        both = condition if self.condition is None else f"{condition} AND (\n  {self.condition}\n)"
        return replace(self, condition=both)

    def with_columns(self, columns: Sequence[str], source_alias: str) -> MergeClause:
        """The clause with its star expanded to the target's columns, without ``except_columns``.

        :param columns: the target's columns, unquoted.
        :raises MergeConfigError: when ``except_columns`` has a column that the target lacks.
        """
        left_out = {parse_multipart(column)[0].lower() for column in self.except_columns}
        if unknown := sorted(left_out - {column.lower() for column in columns}):
            raise MergeConfigError(f"except_columns has columns that the target does not have: {', '.join(unknown)}.")
        source = quote_identifier(source_alias)
        taken = [quote_identifier(column) for column in columns if column.lower() not in left_out]
        action = ClauseAction.UPDATE if self.action is ClauseAction.UPDATE_ALL else ClauseAction.INSERT
        return MergeClause(self.kind, action, tuple((each, f"{source}.{each}") for each in taken), self.condition)

    def to_sql(self) -> str:
        """The clause as Spark SQL. Each expression ends its line, so that a comment in it ends there."""
        when = {
            ClauseKind.MATCHED: "WHEN MATCHED",
            ClauseKind.NOT_MATCHED: "WHEN NOT MATCHED",
            ClauseKind.NOT_MATCHED_BY_SOURCE: "WHEN NOT MATCHED BY SOURCE",
        }[self.kind]
        condition = f" AND (\n  {self.condition}\n)" if self.condition is not None else ""
        return f"{when}{condition} THEN {self._action_sql()}"

    def _action_sql(self) -> str:
        columns = [quote_name(column) for column, _ in self.values]
        match self.action:
            case ClauseAction.DELETE:
                return "DELETE"
            case ClauseAction.UPDATE_ALL:
                return f"UPDATE SET *{self._except_sql()}"
            case ClauseAction.INSERT_ALL:
                return f"INSERT *{self._except_sql()}"
            case ClauseAction.UPDATE:
                assigned = zip(columns, self.values, strict=True)
                sets = "\n, ".join(f"{column} = {value}" for column, (_, value) in assigned)
                return f"UPDATE SET\n  {sets}\n"
            case ClauseAction.INSERT:
                values = "\n, ".join(value for _, value in self.values)
                return f"INSERT ({', '.join(columns)}) VALUES (\n  {values}\n)"

    def _except_sql(self) -> str:
        # Only for display: Spark has no such syntax, and the engine expands the star when it knows the columns.
        names = ", ".join(quote_name(column) for column in self.except_columns)
        return f" EXCEPT ({names})" if names else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "action": str(self.action),
            "values": [list(pair) for pair in self.values],
            "condition": self.condition,
            "except_columns": list(self.except_columns),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MergeClause:
        check_fields(cls, data, "clause")
        values, except_columns = data.get("values") or (), data.get("except_columns") or ()
        return cls(data["kind"], data["action"], values, data.get("condition"), except_columns)


def when_matched_update(*, set: Mapping[str, str], condition: str | None = None) -> MergeClause:
    """Update matched rows.

    :param set: SQL expressions over target and source, by target column; a column may be a struct's field.
    :param condition: a SQL condition over target and source; None for all such rows.
    :raises MergeConfigError: when a column or an expression is invalid.
    """
    return MergeClause(ClauseKind.MATCHED, ClauseAction.UPDATE, pairs(set, "set"), condition)


def when_matched_update_all(*, condition: str | None = None, except_columns: Sequence[str] = ()) -> MergeClause:
    """Update every column of matched rows with the source's column of the same name.

    :param condition: a SQL condition over target and source; None for all such rows.
    :param except_columns: top-level target columns to leave as they are; not available with schema evolution.
    :raises MergeConfigError: when the condition or a column is invalid.
    """
    return MergeClause(
        ClauseKind.MATCHED, ClauseAction.UPDATE_ALL, (), condition, column_names(except_columns, "except_columns")
    )


def when_matched_delete(*, condition: str | None = None) -> MergeClause:
    """Delete matched rows.

    :param condition: a SQL condition over target and source; None for all such rows.
    :raises MergeConfigError: when the condition is invalid.
    """
    return MergeClause(ClauseKind.MATCHED, ClauseAction.DELETE, condition=condition)


def when_not_matched_insert(*, values: Mapping[str, str], condition: str | None = None) -> MergeClause:
    """Insert source rows that match nothing.

    :param values: SQL expressions over the source, by target column; other columns get their default, or NULL.
    :param condition: a SQL condition over the source; None for all such rows.
    :raises MergeConfigError: when a column or an expression is invalid.
    """
    return MergeClause(ClauseKind.NOT_MATCHED, ClauseAction.INSERT, pairs(values, "values"), condition)


def when_not_matched_insert_all(*, condition: str | None = None, except_columns: Sequence[str] = ()) -> MergeClause:
    """Insert source rows that match nothing, all columns by name.

    :param condition: a SQL condition over the source; None for all such rows.
    :param except_columns: top-level target columns that get their default, or NULL; not available with schema
        evolution.
    :raises MergeConfigError: when the condition or a column is invalid.
    """
    return MergeClause(
        ClauseKind.NOT_MATCHED, ClauseAction.INSERT_ALL, (), condition, column_names(except_columns, "except_columns")
    )


def when_not_matched_by_source_update(*, set: Mapping[str, str], condition: str | None = None) -> MergeClause:
    """Update target rows that no source row matches.

    :param set: SQL expressions over the target, by target column; a column may be a struct's field.
    :param condition: a SQL condition over the target; None for all such rows.
    :raises MergeConfigError: when a column or an expression is invalid.
    """
    return MergeClause(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.UPDATE, pairs(set, "set"), condition)


def when_not_matched_by_source_delete(*, condition: str | None = None) -> MergeClause:
    """Delete target rows that no source row matches.

    :param condition: a SQL condition over the target; None for all such rows.
    :raises MergeConfigError: when the condition is invalid.
    """
    return MergeClause(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.DELETE, condition=condition)


def _enum(enum: type[_E], value: str) -> _E:
    try:
        return enum(value)
    except ValueError:
        allowed = ", ".join(enum)
        name = "kind" if enum is ClauseKind else "action"
        raise MergeConfigError(f"Unknown clause {name} {value!r}. Use one of: {allowed}.") from None
