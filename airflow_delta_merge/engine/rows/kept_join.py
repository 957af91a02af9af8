"""Small merges: one task joins source and target once, and both phases use the result.

A small merge spends its time on planning, compiling and starting jobs, not on rows. So the join that finds the matches
keeps all columns and the rows without a match, if they are needed again; the write selects from what is kept. Larger
merges read narrow columns first, and wide ones only from the touched files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.rows.matches import MatchCounts, match_counts, positions_in
from airflow_delta_merge.engine.rows.output import numbered_by_clause
from airflow_delta_merge.engine.source.materialized import BROADCAST, MaterializedSource

if TYPE_CHECKING:
    from airflow_delta_merge.engine.column_names import ColumnNames
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.target_scan import TrackingColumn
    from airflow_delta_merge.engine.merge_context import MergeContext


@dataclass(frozen=True)
class KeptJoin:
    """The join of the source with the candidate files, computed once.

    :param frame: the target's columns, its row tracking columns, the row's path, index in the file and number (NULL in
        source rows that match nothing), the source's columns and its row number (NULL in target rows that match
        nothing), and the number of the clause that takes the target row. Rows that no later step needs are left out.
    :param tracking: the row tracking columns.
    :param totals: what was found in all files together.
    :param paths: the paths of the files with a row that a clause takes, as Spark encodes them.
    :param names: the engine's own column names.
    :param rdd: the JVM object that holds the rows.
    """

    frame: DataFrame
    tracking: list[TrackingColumn]
    totals: MatchCounts
    paths: list[str]
    names: ColumnNames
    rdd: JavaObject

    def matching_rows(self) -> DataFrame:
        """Target rows that match a source row or that a clause takes, joined with the source row."""
        has_match = F.col(self.names.source_row_id).isNotNull()
        return self.target_rows().filter(has_match | (F.col(self.names.clause) > 0))

    def target_rows(self, paths: Sequence[str] | None = None) -> DataFrame:
        """The target's rows from these files, or from all; a row appears once for each source row that it matches."""
        path = F.col(self.names.file_path)
        return self.frame.filter(path.isNotNull() if paths is None else path.isin(*paths))

    def unmatched_source_rows(self) -> DataFrame:
        """The source rows that match nothing."""
        return self.frame.filter(F.col(self.names.file_path).isNull()).drop(self.names.clause)

    def release(self) -> None:
        """Free the memory and disk that the rows take."""
        self.rdd.unpersist(False)


def join_in_one_task(
    target: DataFrame, source: MaterializedSource, condition: Column, how: Literal["inner", "left", "right", "full"]
) -> DataFrame:
    """Join both sides without a shuffle or a broadcast, in the target's order.

    A join hint in the source's query overrides this.
    """
    rows, strategy = source.frame.coalesce(1), source.join_strategy
    if strategy is None or (strategy == BROADCAST and how in ("right", "full")):  # these can't broadcast the source
        rows = rows.hint("shuffle_hash")
    return target.coalesce(1).join(rows, condition, how)


def join_and_keep(merge: MergeContext) -> KeptJoin:
    """Join the source with the candidate files and keep the rows that later steps need."""
    names, transaction = merge.names, merge.transaction
    target, tracking = transaction.target.with_row_tracking(positions_in(merge, merge.candidates))
    joined = join_in_one_task(target, merge.source, merge.statement.condition, _join_type(merge))
    is_target_row = F.col(names.file_path).isNotNull()
    has_match = F.col(names.source_row_id).isNotNull()
    clause = F.when(is_target_row, numbered_by_clause(merge, has_match)).otherwise(F.lit(0))
    path_if_touched = F.when(F.col(names.clause) > 0, F.col(names.file_path))
    frame, totals = merge.gateway.checkpoint(
        joined.select("*", clause.alias(names.clause)),
        merge.source.storage_level,
        [
            *match_counts(merge, is_target_row & has_match, F.col(names.row_number), F.col(names.clause)),
            F.array_join(F.collect_set(path_if_touched), "\n").alias("paths"),  # encoded paths have no line breaks
        ],
    )
    return KeptJoin(
        frame=frame,
        tracking=tracking,
        totals=MatchCounts.of(merge, totals),
        paths=sorted(filter(None, totals["paths"].split("\n"))),
        names=names,
        rdd=merge.gateway.checkpoint_rdd(frame),
    )


def _join_type(merge: MergeContext) -> Literal["inner", "left", "right", "full"]:
    keeps_target = not merge.transaction.writes_deletion_vectors or bool(merge.clauses_of("not matched by source"))
    if merge.insert_clauses:
        return "full" if keeps_target else "right"
    return "left" if keeps_target else "inner"
