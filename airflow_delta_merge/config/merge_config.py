"""One merge, whole: target, source, condition, clauses and options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_delta_merge.config.checks import (
    check_null_keys,
    in_order,
    refuse_output,
    require_bool,
    require_text,
)
from airflow_delta_merge.config.clauses import ClauseKind, MergeClause
from airflow_delta_merge.config.create_table import CreateTable
from airflow_delta_merge.config.merge_engine import MergeEngine
from airflow_delta_merge.config.merge_window import MergeWindow
from airflow_delta_merge.config.options import MergeOptions
from airflow_delta_merge.config.relations import MergeSource, MergeTarget
from airflow_delta_merge.config.source_dedupe import SourceDedupe
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier, quote_name, quote_text


@dataclass(frozen=True, kw_only=True)
class MergeConfig(MergeOptions):
    """One merge, whole: ``MERGE INTO target USING source ON on clauses…``.

    :param target: the table, as :class:`MergeTarget` or what :meth:`MergeTarget.of` reads.
    :param source: the rows, as :class:`MergeSource` or what :meth:`MergeSource.of` reads.
    :param on: a SQL condition (a string) or key columns that both sides have (a list of names).
    :param clauses: one or more clauses; kinds may come in any order, clauses of one kind apply in theirs.
    :param null_safe: with key columns: whether two NULLs are equal (``<=>``).
    :param target_alias: the name of the target in conditions and values.
    :param source_alias: the name of the source in conditions and values.
    :param with_schema_evolution: whether columns that only the source has are added to the target.
    :param source_dedupe: with key columns: which of several source rows with one key is merged, as
        :class:`SourceDedupe` or what :meth:`SourceDedupe.of` reads; by default none is left out.
    :param update_only_changed: whether to skip rows that an update would leave as they are; they are neither written
        nor counted.
    :param create_table: whether and how to create a missing target first, as :class:`CreateTable` or what
        :meth:`CreateTable.of` reads.
    :param window: the part of the table to merge, by a column's values, as :class:`MergeWindow` or a dict like it:
        source rows outside are left out, target rows outside stay as they are.
    :param guards: conditions under which the merge fails instead of committing, as
        :class:`~airflow_delta_merge.config.MergeGuards` or a dict of its parameters.
    :param engine: the engine that finds and writes the changes, as :class:`MergeEngine` or its name. Delta's own,
        ``builtin``, has neither ``update_only_changed`` nor ``expect_source``.
    :param null_keys: with key columns: ``allow`` source rows with a NULL key, or ``fail`` without a commit. Such rows
        match nothing, unless ``null_safe``.
    :raises MergeConfigError: when any of it is invalid.
    """

    _WHAT = "config"

    target: MergeTarget
    source: MergeSource
    on: str | tuple[str, ...]
    clauses: tuple[MergeClause, ...]
    null_safe: bool = False
    target_alias: str = "target"
    source_alias: str = "source"
    with_schema_evolution: bool = False
    source_dedupe: SourceDedupe | None = None
    create_table: CreateTable | None = None
    window: MergeWindow | None = None
    null_keys: str = "allow"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("null_safe", "with_schema_evolution"):
            require_bool(getattr(self, name), name)
        object.__setattr__(self, "target", MergeTarget.of(self.target))
        object.__setattr__(self, "source", MergeSource.of(self.source))
        object.__setattr__(self, "on", _check_on(self.on, self.null_safe))
        object.__setattr__(self, "clauses", _check_clauses(self.clauses))
        self._check_options()
        for alias in (self.target_alias, self.source_alias):
            require_text(alias, "an alias")
        if self.target_alias.lower() == self.source_alias.lower():
            raise MergeConfigError(
                f"Target and source have the same alias {self.target_alias!r}. Set different aliases."
            )

    def _check_options(self) -> None:
        check_null_keys(self.null_keys)
        if self.null_keys == "fail" and isinstance(self.on, str):
            raise MergeConfigError('null_keys="fail" needs key columns. Set on to a list of columns.')
        if self.create_table is not None:
            object.__setattr__(self, "create_table", CreateTable.of(self.create_table))
        if self.window is not None:
            object.__setattr__(self, "window", MergeWindow.of(self.window))
        if self.source_dedupe is not None:
            object.__setattr__(self, "source_dedupe", SourceDedupe.of(self.source_dedupe))
            if isinstance(self.on, str):
                raise MergeConfigError("source_dedupe needs key columns. Set on to a list of columns.")
            self._check_is_not_unique_anyway(self.on)
        if self.with_schema_evolution and any(clause.except_columns for clause in self.clauses):
            raise MergeConfigError("except_columns and with_schema_evolution exclude each other.")

    def _check_is_not_unique_anyway(self, keys: tuple[str, ...]) -> None:
        expected = self.guards.expect_source
        if expected is not None and expected.is_unique_by(keys):
            raise MergeConfigError(
                "source_dedupe leaves one row for each key, so expect_source's unique could never fail. Remove one "
                "of the two."
            )

    @property
    def has_star_exceptions(self) -> bool:
        """Whether a star leaves columns out, so that it must be written out before Spark can read it."""
        return any(clause.except_columns for clause in self.clauses)

    def with_target_columns(self, columns: Sequence[str]) -> MergeConfig:
        """The same merge with the stars that leave columns out written out for the target's columns."""
        clauses = [
            clause.with_columns(columns, self.source_alias) if clause.except_columns else clause
            for clause in self.clauses
        ]
        return replace(self, clauses=tuple(clauses))

    @property
    def condition_sql(self) -> str:
        """The ON condition as SQL, also when keys were given; without the window."""
        if isinstance(self.on, str):
            return self.on
        target, source = quote_identifier(self.target_alias), quote_identifier(self.source_alias)
        equals = "<=>" if self.null_safe else "="
        keys = [quote_name(key) for key in self.on]
        return " AND ".join(f"{target}.{key} {equals} {source}.{key}" for key in keys)

    def to_sql(self, *, source_relation: str | None = None, source_columns: Sequence[str] | None = None) -> str:
        """The MERGE statement.

        :param source_relation: SQL that replaces the source, e.g. the name of the view that reads its files.
        :param source_columns: the source's columns, where ``source_dedupe`` must name them.
        """
        evolution = "WITH SCHEMA EVOLUTION " if self.with_schema_evolution else ""
        source = self.source.to_sql(source_relation)
        condition, clauses = f"(\n  {self.condition_sql}\n)", self.ordered_clauses
        if self.window is not None:
            source = f"(\nSELECT * FROM {source} WHERE {self.window.source_condition()}\n)"
            of_window = self.window.target_condition(quote_identifier(self.target_alias))
            condition = f"{of_window} AND {condition}"
            by_source = ClauseKind.NOT_MATCHED_BY_SOURCE
            clauses = tuple(each.only_where(of_window) if each.kind is by_source else each for each in clauses)
        if self.source_dedupe is not None:
            source = self.source_dedupe.to_sql(source, self.on, null_safe=self.null_safe, columns=source_columns)
        if self.null_keys == "fail" and self.engine is MergeEngine.BUILTIN:
            source = self._with_keys(source)  # this package's own engine looks at the keys as it reads them
        lines = [
            f"MERGE {evolution}INTO {self.target.to_sql()} AS {quote_identifier(self.target_alias)}",
            f"USING {source} AS {quote_identifier(self.source_alias)}",
            f"ON {condition}",
        ]
        lines += [clause.to_sql() for clause in clauses]
        return "\n".join(lines)

    def _with_keys(self, source: str) -> str:
        """A source of which reading a row with a NULL key raises an error."""
        if self.null_safe:
            return source
        keys = [quote_name(key) for key in self.on]
        message = quote_text(f"A row of the source has a NULL in {', '.join(self.on)}, and null_keys is fail.")
        has_keys = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        return f"(\nSELECT * FROM {source} WHERE assert_true({has_keys}, {message}) IS NULL\n)"

    @property
    def ordered_clauses(self) -> tuple[MergeClause, ...]:
        """The clauses in the order of the grammar; within a kind as they were given."""
        kinds = list(ClauseKind)
        return tuple(sorted(self.clauses, key=lambda clause: kinds.index(clause.kind)))

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; ``from_dict`` reads it back."""
        return {
            "target": self.target.to_dict(),
            "source": self.source.to_dict(),
            "on": self.on if isinstance(self.on, str) else list(self.on),
            "clauses": [clause.to_dict() for clause in self.clauses],
            "null_safe": self.null_safe,
            "target_alias": self.target_alias,
            "source_alias": self.source_alias,
            "with_schema_evolution": self.with_schema_evolution,
            "source_dedupe": None if self.source_dedupe is None else self.source_dedupe.to_dict(),
            "create_table": None if self.create_table is None else self.create_table.to_dict(),
            "window": None if self.window is None else self.window.to_dict(),
            "null_keys": self.null_keys,
            **super().to_dict(),
        }


def _check_on(on: str | Iterable[str], null_safe: bool) -> str | tuple[str, ...]:
    if isinstance(on, str):
        require_text(on, "on")
        if null_safe:
            raise MergeConfigError("null_safe needs key columns; in a condition use <=>.")
        names = [name.strip() for name in on.split(",")]
        if all(re.fullmatch(r"[^\W\d]\w*", name) for name in names) and on.strip().lower() not in ("true", "false"):
            raise MergeConfigError(f"on={on!r} names columns and is no condition. For key columns use on={names!r}.")
        return on
    refuse_output(on, "on")
    if isinstance(on, Mapping) or not isinstance(on, Iterable):
        raise MergeConfigError(f"on must be a SQL condition or a list of key columns, got {type(on).__name__}.")
    keys = in_order(on)
    if not keys:
        raise MergeConfigError("on is empty. Set it to a SQL condition or at least one key column.")
    for key in keys:
        require_text(key, "a key column in on")
        if "`" not in key and re.search(r"[=<>]", key):
            raise MergeConfigError(
                f"on has the key column {key!r}, which looks like a condition. Set on to one condition, a "
                "string, or to key columns, a list. Put a column with such a name in backticks."
            )
        parse_multipart(key)
    if len(set(keys)) != len(keys):
        raise MergeConfigError(f"on names a key column twice: {', '.join(keys)}.")
    return keys


def _check_clauses(clauses: Iterable[MergeClause | Mapping[str, Any]]) -> tuple[MergeClause, ...]:
    if isinstance(clauses, (MergeClause, Mapping, str)):
        clauses = (clauses,)
    if not isinstance(clauses, Iterable):
        raise MergeConfigError(f"clauses must be a list of clauses, got {clauses!r:.80}.")
    checked = tuple(_clause(clause) for clause in clauses)
    if not checked:
        raise MergeConfigError(
            "A merge needs at least one clause, e.g. when_matched_update_all() and when_not_matched_insert_all()."
        )
    for kind in ClauseKind:
        of_kind = [clause for clause in checked if clause.kind is kind]
        for clause in of_kind[:-1]:
            if clause.condition is None:
                raise MergeConfigError(
                    f"The {kind} {clause.action} clause has no condition, so the {kind} clause after it could never "
                    "apply. Add a condition, or move it to the end."
                )
    return checked


def _clause(value: MergeClause | Mapping[str, Any]) -> MergeClause:
    if isinstance(value, MergeClause):
        return value
    if isinstance(value, Mapping):
        return MergeClause.from_dict(value)
    raise MergeConfigError(f"{value!r} is not a clause. Use when_matched_update_all() and the like, or dicts.")
