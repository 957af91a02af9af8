"""The definition of a target that the merge creates if it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import check_fields, column_names, option_pairs, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import quote_name


@dataclass(frozen=True, kw_only=True)
class CreateTable:
    """How to create the target as an empty Delta table if it doesn't exist.

    :param columns: its columns with types, ``NOT NULL`` and ``COMMENT`` only:
        ``"id BIGINT NOT NULL, name STRING"``; by default the source's columns, all nullable.
    :param partitioned_by: partition columns.
    :param cluster_by: columns for liquid clustering; not together with ``partitioned_by``.
    :param properties: table properties, as a dict or pairs of (name, value):
        ``{"delta.enableDeletionVectors": True}``.
    :raises MergeConfigError: when a part is invalid.
    """

    columns: str | None = None
    partitioned_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.columns is not None:
            require_text(self.columns, "the columns in create_table")
        for name in ("partitioned_by", "cluster_by"):
            object.__setattr__(self, name, column_names(getattr(self, name), f"create_table's {name}"))
        if self.partitioned_by and self.cluster_by:
            raise MergeConfigError("create_table has both partitioned_by and cluster_by. Remove one of the two.")
        object.__setattr__(self, "properties", option_pairs(self.properties, "create_table's properties"))

    @classmethod
    def of(cls, value: CreateTable | bool | Mapping[str, Any]) -> CreateTable | None:
        """Read it from True (the source's columns), False (don't create it) or a dict of the parameters."""
        if isinstance(value, CreateTable):
            return value
        if isinstance(value, bool):
            return cls() if value else None
        if not isinstance(value, Mapping):
            raise MergeConfigError(f"create_table must be True or a dict, got {type(value).__name__}.")
        check_fields(cls, value, "create_table")
        return cls(**value)

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "partitioned_by": list(self.partitioned_by),
            "cluster_by": list(self.cluster_by),
            "properties": dict(self.properties),
        }

    def to_sql(self, target: str, columns: str) -> str:
        """The CREATE TABLE statement.

        :param target: the table as SQL.
        :param columns: its columns as SQL, quoted where necessary.
        """
        lines = [f"CREATE TABLE IF NOT EXISTS {target} ({columns})", "USING delta"]
        for clause, names in (("PARTITIONED BY", self.partitioned_by), ("CLUSTER BY", self.cluster_by)):
            if names:
                lines.append(f"{clause} ({', '.join(quote_name(name) for name in names)})")
        if self.properties:
            pairs = ", ".join(f"{_literal(name)} = {_literal(value)}" for name, value in self.properties)
            lines.append(f"TBLPROPERTIES ({pairs})")
        return "\n".join(lines)


def _literal(text: str) -> str:
    """A literal of a property, which can't be an expression."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
