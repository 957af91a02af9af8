"""The state that the phases of one merge share."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm.usage import MergeStep, recorded_operation

if TYPE_CHECKING:
    from airflow_delta_merge.config.options import MergeOptions
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
    from airflow_delta_merge.engine.delta_jvm.statement import ResolvedClause, ResolvedMerge
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet, TrackingColumn
    from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction
    from airflow_delta_merge.engine.metrics import MergeMetrics
    from airflow_delta_merge.engine.settings import Settings
    from airflow_delta_merge.engine.source.materialized import MaterializedSource


class ColumnNames:
    """Names for the engine's own columns, which no column of a user can have."""

    def __init__(self) -> None:
        token = uuid.uuid4().hex
        self.source_row_id = f"_source_row_id_{token}"
        self.file_path = f"_file_path_{token}"
        self.row_index = f"_row_index_{token}"
        self.row_number = f"_row_number_{token}"
        self.clause = f"_clause_{token}"
        self.insert_clause = f"_insert_clause_{token}"
        self.matched_row_id = f"_matched_row_id_{token}"
        self.matched_path = f"_matched_path_{token}"
        self.matched_row_index = f"_matched_row_index_{token}"
        self.statistic = f"_statistic_{token}"
        self.expected = f"_expected_{token}_"


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


@dataclass(frozen=True)
class MergeContext(StartedMerge):
    """One merge after its source was materialized.

    :param source: the source's rows.
    :param candidates: the files that may hold a row that the merge must read.
    :param row_predicates: predicates over the target that are true for every row that can match. They raise no error
        that the condition itself would not raise.
    """

    source: MaterializedSource
    candidates: FileSet
    row_predicates: Sequence[Column]

    @cached_property
    def copies_files(self) -> bool:
        """Whether touched files may be copied natively. The search must then find the rows' positions.

        A merge that only inserts touches none, and need not look at the table for that.
        """
        is_much = self.candidates.num_bytes >= self.settings.copy_files_from_bytes
        return is_much and bool(self.target_clauses) and self.transaction.may_copy_files

    def source_without(self, matched_ids: DataFrame) -> DataFrame:
        """The source rows that are not among the matched ones.

        :param matched_ids: one column, ``names.matched_row_id``; a number may appear more than once.
        """
        ids = F.broadcast(matched_ids) if self.source.is_small else matched_ids
        same = F.col(self.names.source_row_id) == F.col(self.names.matched_row_id)
        return self.source.frame.join(ids, same, "left_anti")
