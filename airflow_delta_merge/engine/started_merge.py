"""What the phases of one merge share before its source is read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column

from airflow_delta_merge.engine.delta_jvm.usage import MergeStep, recorded_operation

if TYPE_CHECKING:
    from airflow_delta_merge.config.options import MergeOptions
    from airflow_delta_merge.engine.column_names import ColumnNames
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
    from airflow_delta_merge.engine.delta_jvm.statement import ResolvedClause, ResolvedMerge
    from airflow_delta_merge.engine.delta_jvm.target_scan import TrackingColumn
    from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction
    from airflow_delta_merge.engine.metrics import MergeMetrics
    from airflow_delta_merge.engine.settings import Settings


@dataclass(frozen=True)
class StartedMerge:
    """One merge in its transaction, before its source is read.

    :param statement: the resolved merge.
    :param transaction: the transaction on the target.
    :param names: the engine's own column names.
    :param metrics: where counts and durations go.
    :param settings: the session's settings for the engine's shortcuts.
    :param options: how the merge runs.
    :param source_attempt: number of times the source was read, this time included.
    """

    gateway: Gateway
    statement: ResolvedMerge
    transaction: MergeTransaction
    names: ColumnNames
    metrics: MergeMetrics
    settings: Settings
    options: MergeOptions
    source_attempt: int

    def clauses_of(self, *kinds: str) -> list[ResolvedClause]:
        return [clause for clause in self.statement.clauses if clause.kind in kinds]

    @property
    def target_clauses(self) -> list[ResolvedClause]:
        """The clauses that act on target rows, in the order of their numbers."""
        return self.clauses_of("matched", "not matched by source")

    @property
    def update_clauses(self) -> list[ResolvedClause]:
        return [clause for clause in self.target_clauses if clause.action == "update"]

    def numbers_of(self, action: str) -> list[int]:
        """The numbers of the clauses on target rows with this action: update or delete."""
        return [number for number, clause in enumerate(self.target_clauses, start=1) if clause.action == action]

    @property
    def insert_clauses(self) -> list[ResolvedClause]:
        return self.clauses_of("not matched")

    @property
    def only_inserts(self) -> bool:
        """Whether there are only insert clauses, and the session allows several matches of a source row."""
        only = bool(self.insert_clauses) and not self.target_clauses
        return only and self.gateway.flag("spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled")

    def recorded(self, step: MergeStep) -> AbstractContextManager[None]:
        """Record the work inside this context as a step of the merge in Delta's usage events, under Delta's name."""
        return recorded_operation(self.gateway, self.statement, step)

    def output_columns(self, values: Sequence[Column], tracking: Sequence[TrackingColumn]) -> list[Column]:
        """The values, named as in the final schema, followed by the row tracking columns."""
        names = [*self.statement.column_names, *(column.name for column in tracking)]
        return [value.alias(name) for value, name in zip(values, names, strict=True)]
