"""Applies a stream of changes in sequence order, regardless of the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_delta_merge.config import (
    MergeSource,
    MergeTarget,
    SourceDedupe,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.config.checks import check_null_keys, column_names, refuse_set, require_bool
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.patterns.pattern import ChangePattern, column


@dataclass(frozen=True, kw_only=True)
class ApplyChanges(ChangePattern):
    """Bring each row to its latest change; changes that are older than the target's row are ignored.

    Of several changes of one key in the source, the one with the greatest sequence counts. A change that comes twice
    does nothing the second time. Without ``deleted_column`` a deleted row is gone, so an older change in a later merge
    would insert it again. With it the row stays, marked, with its last values, and changes may arrive in any order.

    :param keys: the key columns.
    :param sequence_by: columns of target and source that order the changes of a key, most significant first; never NULL
        in the source.
    :param operation_column: the source's column with the kind of change; without it no change is a delete. It isn't
        written, unless the target has it, too.
    :param delete_operations: the values of ``operation_column`` that mean a delete, in any case.
    :param on_ties: for several changes of one key with the same, greatest sequence: ``fail``, or ``pick`` any of them.
    :param deleted_column: a BOOLEAN column of the target, which the source doesn't have, that marks deleted rows.
    :param null_safe: whether two NULLs in a key are equal.
    :param null_keys: ``fail`` without a commit for changes with a NULL key, or ``allow`` them. They match nothing,
        unless ``null_safe``.
    :raises MergeConfigError: when a value is invalid.
    """

    NAME: ClassVar[str] = "apply_changes"
    sequence_by: tuple[str, ...]
    on_ties: str = "fail"
    deleted_column: str | None = None
    null_safe: bool = False
    null_keys: str = "fail"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_null_keys(self.null_keys)
        require_bool(self.null_safe, "null_safe")
        refuse_set(self.sequence_by, "sequence_by")
        object.__setattr__(self, "sequence_by", column_names(self.sequence_by, "sequence_by"))
        if not self.sequence_by:
            raise MergeConfigError("sequence_by is empty. Name the columns that order the changes of a key.")
        if self.deleted_column is not None and self.operation_column is None:
            raise MergeConfigError(
                "deleted_column needs operation_column, which says which changes are deletes. Set operation_column, or "
                "remove deleted_column."
            )

    def _parts(self, target: MergeTarget, source: MergeSource) -> dict[str, Any]:
        return {
            "on": self.keys,
            "null_safe": self.null_safe,
            "null_keys": self.null_keys,
            "source_dedupe": SourceDedupe(latest_by=self.sequence_by, on_ties=self.on_ties),
            **(self._marking(source) if self.deleted_column is not None else self._deleting()),
        }

    def _deleting(self) -> dict[str, Any]:
        if self.operation_column is None:
            return {"clauses": [when_matched_update_all(condition=self._newer()), when_not_matched_insert_all()]}
        deletes = self._is_delete(of="source")
        return {
            "clauses": [
                when_matched_delete(condition=f"{self._newer()} AND {deletes}"),
                when_matched_update_all(condition=self._newer()),
                when_not_matched_insert_all(condition=f"NOT {deletes}"),
            ]
        }

    def _marking(self, source: MergeSource) -> dict[str, Any]:
        assert self.deleted_column is not None
        mark = column(self.deleted_column)
        # A delete has no values for the other columns, so they keep their last values.
        marked = {name: f"source.{column(name)}" for name in (*self.sequence_by, self.deleted_column)}
        return {
            "source": source.selecting(f"SELECT *, {self._is_delete()} AS {mark} FROM source"),
            "clauses": [
                when_matched_update(set=marked, condition=f"{self._newer()} AND source.{mark}"),
                when_matched_update_all(condition=self._newer()),
                when_not_matched_insert_all(),
            ],
        }

    def _newer(self) -> str:
        """Whether the source's sequence is after the target's; a target row without one is older than all."""
        columns = [column(name) for name in self.sequence_by]
        unknown = " AND ".join(f"target.{name} IS NULL" for name in columns)
        if len(columns) == 1:
            after = f"source.{columns[0]} > target.{columns[0]}"
        else:
            source, target = (", ".join(f"{side}.{name}" for name in columns) for side in ("source", "target"))
            after = f"struct({source}) > struct({target})"
        return f"({after} OR {unknown})"
