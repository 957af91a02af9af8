"""Where the values of a merge's target come from: :class:`ColumnLineage`, as Spark resolved the statement.

It travels in the job's result file, beside the result, when it was asked for. It imports neither Airflow nor pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_delta_merge.exceptions import MergeResultError

#: How a value takes part in a column, by OpenLineage's names.
DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
#: How a value takes part in which rows there are, or which of several values a column gets.
INDIRECT = ("JOIN", "FILTER", "GROUP_BY", "SORT", "WINDOW", "CONDITIONAL")
#: :attr:`ColumnInput.table` of the target itself.
TARGET = -1


@dataclass(frozen=True, order=True)
class ColumnInput:
    """A column that takes part in another one.

    :param table: the position in :attr:`ColumnLineage.tables` of the one it is in, or :data:`TARGET`.
    :param column: its name, of the outermost column if it is a field.
    :param kind: one of :data:`DIRECT` or :data:`INDIRECT`.
    """

    table: int
    column: str
    kind: str


@dataclass(frozen=True)
class ReadTable:
    """A table, or files read together, from which the source takes rows.

    :param name: as ``catalog.schema.table``; None without a name.
    :param paths: the folders or files.
    :param columns: types by name, as Spark SQL writes them.
    """

    name: str | None
    paths: tuple[str, ...]
    columns: Mapping[str, str]


@dataclass(frozen=True)
class ColumnLineage:
    """The columns of a merge's target, and what they are made of.

    :param columns: the target's columns after the merge: types by name, as Spark SQL writes them.
    :param tables: what the source reads.
    :param inputs: what takes part in a column, by its name. Columns of constants and those that no clause sets are not
        there, nor are those of which something could not be traced.
    :param rows: what decides which rows there are, and so takes part in every column.
    """

    columns: Mapping[str, str]
    tables: tuple[ReadTable, ...]
    inputs: Mapping[str, tuple[ColumnInput, ...]]
    rows: tuple[ColumnInput, ...]

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; a column that takes part is a list of three, as there may be thousands."""
        return {
            "columns": dict(self.columns),
            "tables": [{**asdict(table), "paths": list(table.paths)} for table in self.tables],
            "inputs": {name: _lists(inputs) for name, inputs in self.inputs.items()},
            "rows": _lists(self.rows),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ColumnLineage:
        """Read what :meth:`to_dict` gave.

        :raises MergeResultError: when it is something else.
        """
        try:
            return cls(
                columns=dict(data["columns"]),
                tables=tuple(
                    ReadTable(name=table["name"], paths=tuple(table["paths"]), columns=dict(table["columns"]))
                    for table in data["tables"]
                ),
                inputs={name: _inputs(inputs) for name, inputs in data["inputs"].items()},
                rows=_inputs(data["rows"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise MergeResultError(f"This is no column lineage of this release: {error!r}.") from error


def _lists(inputs: tuple[ColumnInput, ...]) -> list[list[Any]]:
    return [[each.table, each.column, each.kind] for each in inputs]


def _inputs(lists: Any) -> tuple[ColumnInput, ...]:
    return tuple(ColumnInput(table, column, kind) for table, column, kind in lists)
