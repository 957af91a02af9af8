"""Patterns whose source has the current state of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_delta_merge.config import (
    MergeSource,
    MergeTarget,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_by_source_update,
    when_not_matched_insert_all,
)
from airflow_delta_merge.config.checks import check_null_keys, column_names, refuse_set, require_bool, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import quote_name
from airflow_delta_merge.patterns.pattern import Pattern, column


@dataclass(frozen=True, kw_only=True)
class InsertNew(Pattern):
    """Insert rows with new keys; existing rows stay unchanged.

    :param keys: the key columns.
    :param null_safe: whether two NULLs in a key are equal.
    :param null_keys: ``fail`` without a commit for source rows with a NULL key, or ``allow`` them. Each merge would
        insert these again, unless ``null_safe``.
    :param latest_by: columns that choose the latest of several source rows with one key; by default two rows with a
        new key are both inserted.
    :raises MergeConfigError: when a value is invalid.
    """

    NAME: ClassVar[str] = "insert_new"
    null_safe: bool = False
    latest_by: tuple[str, ...] = ()
    null_keys: str = "fail"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_null_keys(self.null_keys)
        require_bool(self.null_safe, "null_safe")
        refuse_set(self.latest_by, "latest_by")
        object.__setattr__(self, "latest_by", column_names(self.latest_by, "latest_by"))

    def _parts(self, target: MergeTarget, source: MergeSource) -> dict[str, Any]:
        return {
            "on": self.keys,
            "null_safe": self.null_safe,
            "null_keys": self.null_keys,
            "source_dedupe": self.latest_by or None,
            "clauses": self._clauses(),
        }

    def _clauses(self) -> list[Any]:
        return [when_not_matched_insert_all()]


@dataclass(frozen=True, kw_only=True)
class Upsert(InsertNew):
    """Update rows with existing keys, insert the others.

    :param keys: the key columns.
    :param null_safe: whether two NULLs in a key are equal.
    :param null_keys: ``fail`` without a commit for source rows with a NULL key, or ``allow`` them. Each merge would
        insert these again, unless ``null_safe``.
    :param latest_by: columns that choose the latest of several source rows with one key; by default they make the
        merge fail.
    :param keep: columns that an update leaves as they are, e.g. ``created_at``.
    :raises MergeConfigError: when a value is invalid.
    """

    NAME: ClassVar[str] = "upsert"
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "keep", column_names(self.keep, "keep"))

    def _clauses(self) -> list[Any]:
        return [when_matched_update_all(except_columns=self.keep), when_not_matched_insert_all()]


@dataclass(frozen=True, kw_only=True)
class Sync(Upsert):
    """Make the target equal to the source: update, insert, and delete rows that the source doesn't have.

    :param keys: the key columns.
    :param null_safe: whether two NULLs in a key are equal.
    :param null_keys: ``fail`` without a commit for source rows with a NULL key, or ``allow`` them. Each merge would
        insert these again, unless ``null_safe``.
    :param latest_by: columns that choose the latest of several source rows with one key; by default they make the merge
        fail.
    :param keep: columns that an update leaves as they are.
    :param where: a SQL condition over the target, e.g. ``target.region = 'EU'``: only such rows are deleted. A
        ``window`` of the merge limits deletes, too.
    :raises MergeConfigError: when a value is invalid.
    """

    NAME: ClassVar[str] = "sync"
    where: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.where is not None:
            require_text(self.where, "where")

    def _clauses(self) -> list[Any]:
        return [*super()._clauses(), self._missing()]

    def _missing(self) -> Any:
        return when_not_matched_by_source_delete(condition=self.where)


@dataclass(frozen=True, kw_only=True)
class SoftDelete(Sync):
    """Like :class:`Sync`, but rows that the source doesn't have are marked; one that comes back is unmarked.

    :param keys: the key columns.
    :param null_safe: whether two NULLs in a key are equal.
    :param null_keys: ``fail`` without a commit for source rows with a NULL key, or ``allow`` them. Each merge would
        insert these again, unless ``null_safe``.
    :param latest_by: columns that choose the latest of several source rows with one key; by default they make the merge
        fail.
    :param keep: columns that an update leaves as they are.
    :param where: a SQL condition over the target: only such rows are marked.
    :param deleted_column: the target's BOOLEAN column with the mark; the source doesn't have it.
    :param deleted_at_column: a TIMESTAMP column of the target with the time of the mark; NULL in other rows.
    :raises MergeConfigError: when a value is invalid, or ``keep`` has a column of the mark.
    """

    NAME: ClassVar[str] = "soft_delete"
    deleted_column: str = "is_deleted"
    deleted_at_column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        marks = [column(name).lower() for name in (self.deleted_column, self.deleted_at_column) if name is not None]
        for name in self.keep:
            if quote_name(name).lower() in marks:
                raise MergeConfigError(f"keep has {name}, but a row that comes back is unmarked. Remove it from keep.")

    def _parts(self, target: MergeTarget, source: MergeSource) -> dict[str, Any]:
        marks = f"false AS {column(self.deleted_column)}"
        if self.deleted_at_column is not None:
            marks += f", CAST(NULL AS TIMESTAMP) AS {column(self.deleted_at_column)}"
        return {**super()._parts(target, source), "source": source.selecting(f"SELECT *, {marks} FROM source")}

    def _missing(self) -> Any:
        marks = {self.deleted_column: "true"}
        if self.deleted_at_column is not None:
            marks[self.deleted_at_column] = "current_timestamp()"
        unmarked = f"NOT coalesce(target.{column(self.deleted_column)}, false)"
        condition = unmarked if self.where is None else f"{unmarked} AND (\n{self.where}\n)"
        return when_not_matched_by_source_update(set=marks, condition=condition)
