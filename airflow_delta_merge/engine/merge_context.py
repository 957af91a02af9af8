"""What the phases of one merge share once its source is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.started_merge import StartedMerge

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.source.materialized import MaterializedSource


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
