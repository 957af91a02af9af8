"""Runs one case by one engine on a copy of its table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential.cases import Case
from tests.differential.delta_log import DeltaTableLog
from tests.differential.meanwhile import Meanwhile
from tests.differential.outcome import Outcome
from tests.differential.session_settings import session_settings
from tests.differential.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUM_ROWS = ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")

#: Runs a statement and fills in what it returned.
Engine = Callable[[str, Outcome], None]


@dataclass
class Runner:
    """Runs cases.

    :param spark: the session of both engines.
    :param tables: gives the cases' tables.
    """

    spark: SparkSession
    tables: Tables

    def run(self, case: Case, path: Path, engine: Engine) -> Outcome:
        """Run the case on a copy of its table in the new folder ``path``; an error is part of the outcome."""
        self.tables.copy(case.table, path)
        table = f"delta.`{path}`"
        if case.by_name:
            table = f"default.{path.parent.name}_{path.name}"
            self.spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{path}'")
        source_table = f"delta.`{self.tables.shared(case.source_table)}`" if case.source_table else None
        source = case.source_relation(source_table)

        def fill(sql: str) -> str:
            return sql.replace("{s}", source).replace("{t}", table).replace("{path}", str(path))

        with session_settings(self.spark, case.confs):
            for statement in case.before:
                self.spark.sql(fill(statement)).collect()
            before = DeltaTableLog.read(path)
            outcome = Outcome(path, table, before, before)
            other = Meanwhile(self.spark, path, [*map(fill, case.meanwhile)]) if case.meanwhile else None
            if other:
                source = other.pausing(source)
            with other or nullcontext():
                try:
                    engine(fill(case.statement), outcome)
                except Exception as error:  # compared, whatever it is
                    outcome.error = error
            if other:
                outcome.before = other.log
        outcome.after = DeltaTableLog.read(path)
        if case.by_name:
            self.spark.sql(f"DROP TABLE IF EXISTS {table}")
        return outcome

    def merge_builtin(self, statement: str, outcome: Outcome) -> None:
        """Run the statement by Delta's own MERGE."""
        rows = self.spark.sql(statement).collect()
        # A transaction that was executed before reports no row.
        outcome.num_rows = tuple(rows[0][name] for name in NUM_ROWS) if rows else (0, 0, 0, 0)
