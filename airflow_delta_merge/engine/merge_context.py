"""What the phases of one merge share."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.identifiers import quote_identifier

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import DeltaJvm, JavaObject, ResolvedClause, TrackingColumn
    from airflow_delta_merge.engine.metrics import MergeMetrics
    from airflow_delta_merge.engine.source import MaterializedSource
    from airflow_delta_merge.engine.transactional_write import TransactionalWrite


class ColumnNames:
    """Names for the engine's own columns, which no column of a user can have."""

    def __init__(self) -> None:
        token = uuid.uuid4().hex
        self.source_row_id = f"_source_row_id_{token}"
        self.file_path = f"_file_path_{token}"
        self.row_index = f"_row_index_{token}"
        self.clause = f"_clause_{token}"
        self.matched_row_id = f"_matched_row_id_{token}"
        self.matched_path = f"_matched_path_{token}"
        self.matched_row_index = f"_matched_row_index_{token}"
        self.statistic = f"_statistic_{token}"


@dataclass(frozen=True)
class MergeContext:
    """One merge after its source was materialized.

    :param command: Delta's resolved command, a JVM object that is only handed back to ``delta``.
    :param copied: JVM expressions that copy a target row, in the order of the table's final schema.
    :param clauses: all clauses in the grammar's order.
    """

    delta: DeltaJvm
    command: JavaObject
    write: TransactionalWrite
    source: MaterializedSource
    copied: Sequence[JavaObject]
    clauses: Sequence[ResolvedClause]
    names: ColumnNames
    metrics: MergeMetrics
    candidate_predicates: Sequence[JavaObject] = field(default_factory=tuple)

    @cached_property
    def condition(self) -> Column:
        return self.delta.condition(self.command)

    @cached_property
    def column_names(self) -> list[str]:
        """The columns of the table's final schema."""
        return [copy.name() for copy in self.copied]

    @cached_property
    def partition_columns(self) -> list[Column]:
        return [F.col(quote_identifier(name)) for name in self.delta.partition_columns(self.write.transaction)]

    @cached_property
    def writes_change_data(self) -> bool:
        return self.delta.writes_change_data(self.command, self.write.transaction)

    def clauses_of(self, *kinds: str) -> list[ResolvedClause]:
        return [clause for clause in self.clauses if clause.kind in kinds]

    @property
    def target_clauses(self) -> list[ResolvedClause]:
        """The clauses that act on target rows, in the order of their numbers."""
        return self.clauses_of("matched", "not matched by source")

    @property
    def insert_clauses(self) -> list[ResolvedClause]:
        return self.clauses_of("not matched")

    def output_columns(self, values: Sequence[Column], tracking: Sequence[TrackingColumn]) -> list[Column]:
        """Values under the names of the final schema, then of the columns by which the table tracks its rows."""
        width = len(self.column_names)
        named = [value.alias(name) for value, name in zip(values[:width], self.column_names, strict=True)]
        tracked = zip(values[width:], tracking, strict=True)
        return named + [self.delta.tracking_alias(value, column) for value, column in tracked]

    def without_ids(self, ids: DataFrame, id_column: str, *, num_ids: int | None) -> DataFrame:
        """The source rows whose number is not among ``ids``.

        :param num_ids: how many ids there are, None if that is not known.
        """
        small = self.source.is_small if num_ids is None else num_ids <= self.source.num_rows
        ids = F.broadcast(ids) if small and self.source.is_small else ids
        unmatched = F.col(self.names.source_row_id) == F.col(id_column)
        return self.source.frame.join(ids, unmatched, "left_anti")
