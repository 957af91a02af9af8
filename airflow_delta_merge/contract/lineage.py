"""Where the values of a merge's target come from: :class:`ColumnLineage`, from the statement as Spark resolved it.

If requested, the job's result file includes it. It imports neither Airflow nor pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_delta_merge.exceptions import MergeResultError

#: How a value becomes part of a column, by OpenLineage's names.
DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
#: How a value decides which rows exist, or which of several values a column gets.
INDIRECT = ("JOIN", "FILTER", "GROUP_BY", "SORT", "WINDOW", "CONDITIONAL")
#: :attr:`ColumnInput.table` of the target itself.
TARGET = -1


@dataclass(frozen=True, order=True)
class ColumnInput:
    """A column that is an input of another one.

    :param table: its table's position in :attr:`ColumnLineage.tables`, or :data:`TARGET`.
    :param column: its name; for a field, the outermost column's.
    :param kind: one of :data:`DIRECT` or :data:`INDIRECT`.
    """

    table: int
    column: str
    kind: str


@dataclass(frozen=True)
class ReadTable:
    """A table, or files read together, that the source reads.

    :param name: the name as ``catalog.schema.table``; None without a name.
    :param paths: the folders or files.
    :param columns: types by name, as Spark SQL writes them.
    """

    name: str | None
    paths: tuple[str, ...]
    columns: Mapping[str, str]


@dataclass(frozen=True)
class ColumnLineage:
    """The columns of a merge's target and their inputs.

    :param columns: the target's columns after the merge: types by name, as Spark SQL writes them.
    :param tables: the tables and files that the source reads.
    :param inputs: each column's inputs, by its name. Columns of constants, columns that no clause sets and columns that
        could not be traced completely are left out.
    :param rows: the inputs that decide which rows exist, and so affect every column.
    """

    columns: Mapping[str, str]
    tables: tuple[ReadTable, ...]
    inputs: Mapping[str, tuple[ColumnInput, ...]]
    rows: tuple[ColumnInput, ...]

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types. Each input is a list of three items, since there may be thousands."""
        return {
            "columns": dict(self.columns),
            "tables": [{**asdict(table), "paths": list(table.paths)} for table in self.tables],
            "inputs": {name: _lists(inputs) for name, inputs in self.inputs.items()},
            "rows": _lists(self.rows),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ColumnLineage:
        """Restore it from :meth:`to_dict`.

        :raises MergeResultError: when the data is something else.
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
            raise MergeResultError(f"This is not a column lineage of this release: {error!r}.") from error


def _lists(inputs: tuple[ColumnInput, ...]) -> list[list[Any]]:
    return [[each.table, each.column, each.kind] for each in inputs]


def _inputs(lists: Any) -> tuple[ColumnInput, ...]:
    return tuple(ColumnInput(table, column, kind) for table, column, kind in lists)
