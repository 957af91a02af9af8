"""Slowly changing dimension, type 2: a row for each version of an entity, with its period of validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_delta_merge.config import (
    CreateTable,
    MergeConfig,
    MergeGuards,
    MergeSource,
    MergeTarget,
    MergeWindow,
    when_matched_delete,
    when_matched_update,
    when_not_matched_insert,
)
from airflow_delta_merge.config.checks import column_names, require_bool
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import quote_text
from airflow_delta_merge.patterns.pattern import ChangePattern, column, column_list


@dataclass(frozen=True, kw_only=True)
class Scd2(ChangePattern):
    """Keep the history of each key: a version is true from ``valid_from`` up to, but not including, ``valid_to``.

    A late change splits the version that it falls into, and absorbs the next version if their values are equal. So
    changes may arrive in any order, with two exceptions: a change that changes nothing on arrival leaves no trace,
    unless ``keep_unchanged`` records it as a version, and a delete that ends nothing leaves none either.

    The column of a ``window`` must be a key, and ``expect_source`` is not available.

    :param keys: the key columns; two NULLs are equal.
    :param columns: the columns whose values make a version: all columns of the target but keys and times.
    :param effective_at: the source's column with the time from which a row is true; never NULL. Two different rows of
        one key with the same time make the merge fail. A row with the time of a version in the target replaces it.
    :param valid_from: the target's column with the begin of a version.
    :param valid_to: the target's column with its end; NULL for the current version.
    :param is_current: the target's BOOLEAN column that marks versions without an end; None if there is no such column.
    :param operation_column: the source's column that marks deletes, which end a key's history; without it no change is
        a delete.
    :param delete_operations: the values of ``operation_column`` that mean a delete, in any case.
    :param keep_unchanged: whether to record a row that equals the version before it.
    :raises MergeConfigError: when a column is used twice or a value is invalid.
    """

    NAME: ClassVar[str] = "scd2"
    columns: tuple[str, ...]
    effective_at: str
    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    is_current: str | None = "is_current"
    keep_unchanged: bool = False

    _OBSOLETE: ClassVar[str] = "_scd2_obsolete_"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bool(self.keep_unchanged, "keep_unchanged")
        object.__setattr__(self, "columns", column_names(self.columns, "columns"))
        if not self.columns:
            raise MergeConfigError("columns is empty. Name the columns whose values make a version.")
        for name in (self.effective_at, self.valid_from, self.valid_to, *filter(None, [self.is_current])):
            column(name)
        held = [*self.keys, *self.columns, self.valid_from, self.valid_to, *filter(None, [self.is_current])]
        if twice := sorted({name for name in held if [each.lower() for each in held].count(name.lower()) > 1}):
            raise MergeConfigError(
                f"Scd2 uses {', '.join(twice)} of the target more than once. Name each column in only one parameter."
            )

    def to_config(
        self,
        *,
        target: MergeTarget | str | Mapping[str, Any],
        source: MergeSource | str | Sequence[str] | Mapping[str, Any],
        **options: Any,
    ) -> MergeConfig:
        create_table = CreateTable.of(options.get("create_table") or False)
        if create_table is not None and create_table.columns is None:
            raise MergeConfigError(
                "Scd2 reads its target, so it can't create one with the source's columns. Set columns in create_table."
            )
        if MergeGuards.of(options.get("guards") or {}).expect_source is not None:
            raise MergeConfigError(
                "expect_source is not available with Scd2, which merges a history that it makes from the source. Check "
                "the source in an earlier task."
            )
        if options.get("window") is not None:
            self._check_window(MergeWindow.of(options["window"]))
        return super().to_config(target=target, source=source, **options)

    def _check_window(self, window: MergeWindow) -> None:
        if column(window.column).lower() not in [column(key).lower() for key in self.keys]:
            raise MergeConfigError(
                f"A window of {window.column} is not available with Scd2, which also ends versions that began before. "
                "Restrict the source by a query, or take a key as the window's column."
            )

    def _parts(self, target: MergeTarget, source: MergeSource) -> dict[str, Any]:
        if target.table is not None and target.table.strip("` ").lower() == "source":
            raise MergeConfigError(
                f"The target is {target.table!r}, but Scd2's query uses this name for the source. Name the target "
                "with its schema."
            )
        held = [*self.columns, self.valid_to]
        new, old = column_list(held, of="source"), column_list(held, of="target")
        written = [*held, *filter(None, [self.is_current])]
        inserted = [*self.keys, self.valid_from, *written]
        obsolete = f"source.{column(self._OBSOLETE)}"
        return {
            "source": source.selecting(self._history_sql(target.to_sql())),
            "on": (*self.keys, self.valid_from),
            "null_safe": True,
            "clauses": [
                when_matched_delete(condition=obsolete),
                when_matched_update(
                    set={name: f"source.{column(name)}" for name in written},
                    condition=f"NOT (struct({new}) <=> struct({old}))",
                ),
                when_not_matched_insert(values={name: f"source.{column(name)}" for name in inserted}),
            ],
        }

    def _history_sql(self, target: str) -> str:
        """A query over the changes and the target for the new history of all keys that change.

        It puts changes and known versions on one timeline per key. Each is a point in time from which something is
        valid; where a version ends and no other begins, nothing is. At the same time, a change wins over a version that
        begins, and that wins over one that ends. It reads only the versions of a key that its earliest change can
        alter, including the one before it. Versions of the target that leave the history are marked.
        """
        keys, columns = column_list(self.keys), column_list(self.columns)
        at, until = column(self.valid_from), column(self.valid_to)
        same_key = " AND ".join(f"t.{column(key)} <=> f.{column(key)}" for key in self.keys)
        changed = "true" if self.keep_unchanged else f"NOT (`_before_` <=> struct({columns}))"
        current = "" if self.is_current is None else f", `_next_` IS NULL AS {column(self.is_current)}"
        same_moment = f"{self.valid_from} of the same {', '.join(self.keys)}"
        message = quote_text(f"Scd2: a row has no {self.effective_at}, or several rows have the same {same_moment}")
        return f"""WITH `_changes_` AS (
  SELECT DISTINCT {keys}, {self._values_sql()}, {column(self.effective_at)} AS {at}, {self._is_delete()} AS `_gone_`
  FROM `source`
), `_first_changes_` AS (
  SELECT {keys}, min({at}) AS `_first_` FROM `_changes_` GROUP BY {keys}
), `_known_` AS (
  SELECT {column_list([*self.keys, *self.columns], of="t")}, inline(filter(array(
    named_struct('_at_', t.{at}, '_gone_', false, '_weight_', 1),
    named_struct('_at_', t.{until}, '_gone_', true, '_weight_', 0)
  ), moment -> moment.`_at_` IS NOT NULL))
  FROM {target} AS t JOIN `_first_changes_` AS f ON {same_key} AND (t.{until} IS NULL OR t.{until} >= f.`_first_`)
), `_weighed_` AS (
  SELECT *,
    rank() OVER (PARTITION BY {keys}, {at} ORDER BY `_weight_` DESC) AS `_rank_`,
    bool_or(`_weight_` = 1) OVER (PARTITION BY {keys}, {at}) AS `_is_known_`,
    count(*) OVER (PARTITION BY {keys}, {at}, `_weight_`) AS `_ties_`
  FROM (
    SELECT *, 2 AS `_weight_` FROM `_changes_`
    UNION ALL SELECT {keys}, {columns}, `_at_`, `_gone_`, `_weight_` FROM `_known_`
  )
), `_moments_` AS (
  SELECT *, lag(`_gone_`, 1, true) OVER `time` AS `_gone_before_`, lag(struct({columns})) OVER `time` AS `_before_`
  FROM `_weighed_` WHERE `_rank_` = 1 AND assert_true({at} IS NOT NULL AND `_ties_` = 1, {message}) IS NULL
  WINDOW `time` AS (PARTITION BY {keys} ORDER BY {at})
), `_states_` AS (
  SELECT *, CASE WHEN `_gone_` THEN NOT `_gone_before_` ELSE `_gone_before_` OR {changed} END AS `_counts_`
  FROM `_moments_`
), `_versions_` AS (
  SELECT *, min(CASE WHEN `_counts_` THEN {at} END) OVER (
    PARTITION BY {keys} ORDER BY {at} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
  ) AS `_next_`
  FROM `_states_`
)
SELECT {keys}, {columns}, {at}, `_next_` AS {until}{current}, NOT `_counts_` OR `_gone_` AS {column(self._OBSOLETE)}
FROM `_versions_` WHERE `_counts_` AND NOT `_gone_` OR `_is_known_`"""

    def _values_sql(self) -> str:
        """The columns of a change. A delete has none, so that two deletes at the same time are one."""
        if self.operation_column is None:
            return column_list(self.columns)
        gone = self._is_delete()
        return ", ".join(f"CASE WHEN NOT {gone} THEN {column(name)} END AS {column(name)}" for name in self.columns)
