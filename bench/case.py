"""What a case is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from airflow_delta_merge.config import (
    MergeClause,
    MergeConfig,
    MergeSource,
    MergeTarget,
    when_matched_delete,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from bench.data import Table

UPSERT: tuple[MergeClause, ...] = (when_matched_update_all(), when_not_matched_insert_all())
INSERT: tuple[MergeClause, ...] = (when_not_matched_insert_all(),)
DELETE: tuple[MergeClause, ...] = (when_matched_delete(),)


class Regime(StrEnum):
    """What a merge's time goes into."""

    LITTLE_IN_MUCH = "little in much"
    FIXED_COSTS = "fixed costs"
    MUCH_TO_CHANGE = "much to change"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One merge, on one table, with one source.

    :param name: what the case is, in field words; ``--only`` takes it.
    :param regime: what its time goes into.
    :param table: the target.
    :param source: a SELECT over the target's template, see :meth:`bench.data.Templates.source`.
    :param on: key columns, or a condition over ``target`` and ``source``.
    :param clauses: the WHEN clauses.
    :param source_query: a query instead of the plain source; ``{source}`` and ``{target}`` are replaced.
    :param keys: the target's columns that the condition needs, where ``on`` is a condition.
    :param group: cases that ``--only`` takes together.
    :param in_default: whether it runs without being named.
    :param not_in_delta_rs: why delta-rs can't do it; empty when it can.
    """

    name: str
    regime: Regime
    table: Table
    source: str
    on: str | tuple[str, ...]
    clauses: tuple[MergeClause, ...]
    source_query: str = ""
    keys: tuple[str, ...] = ()
    group: str = "own"
    in_default: bool = True
    not_in_delta_rs: str = ""

    def config(self, target: Path | str, source: Path) -> MergeConfig:
        """The merge on a copy of the table.

        :param target: its path, or the name of a table.
        """
        merge_target = MergeTarget(table=target) if isinstance(target, str) else MergeTarget(path=str(target))
        if self.source_query:
            query = self.source_query.format(source=f"parquet.`{source}`", target=merge_target.to_sql())
            merge_source = MergeSource(query=query)
        else:
            merge_source = MergeSource.of_path(str(source), format="parquet")
        return MergeConfig(target=merge_target, source=merge_source, on=self.on, clauses=self.clauses)

    def statement(self, target: Path | str, source: Path) -> str:
        """The MERGE statement on a copy of the table, as :meth:`config`."""
        return self.config(target, source).to_sql()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The target's columns that the condition needs."""
        return self.keys if isinstance(self.on, str) else self.on

    @property
    def has_deletion_vectors(self) -> bool:
        return ("delta.enableDeletionVectors", "true") in self.table.properties
