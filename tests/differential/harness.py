"""Runs a case by both engines and compares all that a merge leaves behind."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.differential.cases import ANYTHING, Case, Table
from tests.differential.delta_log import DeltaTableLog, edit_log
from tests.differential.error_conditions import (
    error_condition,
    error_differences,
    is_ambiguous,
    short,
    trips_over_null_keys,
)
from tests.differential.log_differences import (
    commit_differences,
    comparable_schema,
    result_differences,
    state_differences,
    statistics_differences,
)
from tests.differential.meanwhile import Meanwhile
from tests.differential.outcome import Outcome
from tests.differential.plain_rows import can_read_plainly, read_changes_plainly, read_plainly
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Makes the built-in rewrite files, also on tables with deletion vectors.
WRITE_NO_DELETION_VECTORS = {"spark.databricks.delta.merge.deletionVectors.persistent": "false"}
#: All ways that ours goes about a merge. The tables of cases are small: it is told to take them for larger ones.
WAYS = {
    "ours": {
        "spark.deltaMerge.useChecksum.enabled": "false",
        "spark.deltaMerge.listFilesUpTo": "0",
        "spark.deltaMerge.pruneFromBytes": "0",
        "spark.deltaMerge.joinOnceBytes": "0",
    },
    "ours_as_small": {},
    "ours_as_small_in_two_phases": {
        "spark.deltaMerge.onePass.enabled": "false",
        "spark.deltaMerge.firstLoad.enabled": "false",
        "spark.deltaMerge.readOnce.enabled": "false",
        "spark.deltaMerge.planOnce.enabled": "false",
    },
    "ours_as_large": {
        "spark.deltaMerge.useChecksum.enabled": "false",
        "spark.deltaMerge.pruneFromBytes": "0",
        "spark.deltaMerge.joinOnceBytes": "0",
        "spark.deltaMerge.broadcastBytes": "0",
        "spark.deltaMerge.onePassFromRows": "1",
        "spark.deltaMerge.keyFilterFromRows": "0",
        "spark.deltaMerge.narrowSourceFromRows": "0",
        "spark.deltaMerge.footerStatisticsFromBytes": "0",
    },
}
CONDITION = re.compile(r"WHEN MATCHED AND (.*?) THEN", re.DOTALL)
NUM_ROWS = ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")


@dataclass
class Harness:
    """Builds tables, copies them, runs the engines, compares.

    :param spark: the session of both engines.
    :param home: a folder for the tables.
    :param oracle_only: run the built-in alone and check that the case does what it says.
    """

    spark: SparkSession
    home: Path
    oracle_only: bool = False
    _templates: dict[Table, Path] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # --- one case -------------------------------------------------------------------------------------------------

    def check(self, case: Case, *, oracle_only: bool = False) -> None:
        """Run the case; raise AssertionError with a reproduction when the engines differ.

        :param oracle_only: whether to leave ours out, as the oracle is wrong.
        """
        folder = self.home / f"case_{next(self._numbers)}"
        builtin = self._run(case, folder / "builtin", self._merge_builtin)
        self._check_case_itself(case, builtin)
        if not (oracle_only or self.oracle_only):
            for ours in self._ours(case, folder):
                if isinstance(ours.error, NotImplementedError):
                    assert not ours.committed, "raised NotImplementedError after it had committed"
                    pytest.xfail(f"not there yet: {ours.error}")
                self._fail_on_differences(case, builtin, ours)
        shutil.rmtree(folder, ignore_errors=True)

    def check_anything(self, case: Case) -> str:
        """Run a made-up case, of which only the oracle knows what it does; tell what that was, in a word or two."""
        folder = self.home / f"case_{next(self._numbers)}"
        builtin = self._run(case, folder / "builtin", self._merge_builtin)
        if trips_over_null_keys(builtin.error):
            self.check_like(case, like=replace(case, confs={**case.confs, **WRITE_NO_DELETION_VECTORS}))
            return "the built-in trips"
        told = error_condition(builtin.error) if builtin.error else "changed" if builtin.committed else "nothing to do"
        if not self.oracle_only:
            ours = self._run(case, folder / "ours", self._merge_ours)
            if isinstance(ours.error, NotImplementedError):
                assert not ours.committed, "raised NotImplementedError after it had committed"
                told = "not there yet"
            elif is_ambiguous(ours.error) and not is_ambiguous(builtin.error):
                self._check_without_nulls(case, folder, ours)
                told = "the built-in passes over an ambiguous match"
            else:
                self._fail_on_differences(case, builtin, ours)
        shutil.rmtree(folder, ignore_errors=True)
        return told or "failed"

    def _check_without_nulls(self, case: Case, folder: Path, ours: Outcome) -> None:
        """What ours raised for ``case`` the built-in must raise, too, when no clause's condition is NULL.

        With nothing but matched clauses Delta 4.4 adds up, over the source rows that match a target row, a number that
        is NULL where all their conditions are. It takes such rows for none, and writes the target row once for each.
        """
        like = replace(case, clauses=CONDITION.sub(r"WHEN MATCHED AND COALESCE(\1, false) THEN", case.clauses))
        self._fail_on_differences(like, self._run(like, folder / "without_nulls", self._merge_builtin), ours)

    def forget(self, table: Table) -> None:
        """Remove the template of a table that no further case will use."""
        shutil.rmtree(self._templates.pop(table), ignore_errors=True)

    def _fail_on_differences(self, case: Case, builtin: Outcome, ours: Outcome) -> None:
        if differences := list(self._differences(case, builtin, ours)):
            pytest.fail(self._report(case, differences, builtin, ours), pytrace=False)

    def check_like(self, case: Case, *, like: Case) -> None:
        """Run ``case`` by ours and ``like`` by the built-in, which can't run ``case``; compare rows and counts."""
        folder = self.home / f"case_{next(self._numbers)}"
        builtin = self._run(like, folder / "builtin", self._merge_builtin)
        if like.does != ANYTHING:
            self._check_case_itself(like, builtin)
        if self.oracle_only:
            return
        for ours in self._ours(case, folder):
            if ours.error:
                raise AssertionError(f"{case}, {ours.path.name}: it fails: {ours.error}") from ours.error
            assert ours.num_rows == builtin.num_rows
            names = self._read(builtin.path).columns
            bags = self._bags(self._read(builtin.path), self._read(ours.path).toDF(*names))
            assert bags[0] == bags[1]

    def _ours(self, case: Case, folder: Path) -> Iterator[Outcome]:
        for way, confs in WAYS.items():
            yield self._run(replace(case, confs={**confs, **case.confs}), folder / way, self._merge_ours)

    def _run(self, case: Case, path: Path, engine: Callable[[str, Outcome], None]) -> Outcome:
        shutil.copytree(self._template(case.table), path)
        table = f"delta.`{path}`"
        if case.by_name:
            table = f"default.{path.parent.name}_{path.name}"
            self.spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{path}'")
        source_table = f"delta.`{self._template(case.source_table)}`" if case.source_table else None
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

    def _merge_builtin(self, statement: str, outcome: Outcome) -> None:
        rows = self.spark.sql(statement).collect()
        # A transaction that was executed before reports no row.
        outcome.num_rows = tuple(rows[0][name] for name in NUM_ROWS) if rows else (0, 0, 0, 0)

    def _merge_ours(self, statement: str, outcome: Outcome) -> None:
        from airflow_delta_merge.engine import merge_sql

        # One attempt, as the built-in makes: another writer's commit shall fail both in the same way.
        outcome.result = merge_sql(self.spark, statement, max_commit_attempts=1)
        outcome.num_rows = tuple(getattr(outcome.result, name) for name in NUM_ROWS)
        self._forget(outcome.path)

    def _forget(self, path: Path) -> None:
        """Drop the cached DeltaLog, so that the next reader takes the table from its files."""
        jvm = self.spark._jvm
        hadoop_path = jvm.org.apache.hadoop.fs.Path(str(path))
        jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(self.spark._jsparkSession, hadoop_path)

    def _template(self, table: Table) -> Path:
        """The folder of the table, built when it is asked for the first time."""
        if table not in self._templates:
            path = self.home / "templates" / str(next(self._numbers))
            with session_settings(self.spark, dict(table.confs)):
                for statement in table.statements:
                    self.spark.sql(statement.replace("{t}", f"delta.`{path}`")).collect()
            if table.edits:
                edit_log(path, table.edits)
            self._templates[table] = path
        return self._templates[table]

    # --- the case itself ------------------------------------------------------------------------------------------

    def _check_case_itself(self, case: Case, builtin: Outcome) -> None:
        """Whether the built-in does what the case says it shows."""
        if case.fails:
            assert builtin.failed, f"{case}: the case says it fails with {case.fails}, but the built-in succeeds"
            condition = error_condition(builtin.error)
            assert condition == case.fails, f"{case}: the built-in raises {condition}: {short(builtin.error)}"
            return
        if builtin.error:
            raise AssertionError(f"{case}: the built-in fails: {short(builtin.error)}") from builtin.error
        assert builtin.num_rows is not None
        _, updated, deleted, inserted = builtin.num_rows
        does = {kind for kind, n in (("update", updated), ("delete", deleted), ("insert", inserted)) if n}
        assert does == set(case.kinds), f"{case}: the case says it does {case.does!r}, the built-in does {does}"

    # --- comparison -----------------------------------------------------------------------------------------------

    def _differences(self, case: Case, builtin: Outcome, ours: Outcome) -> Iterator[str]:
        if builtin.failed or ours.failed:
            yield from error_differences(builtin, ours)
            return
        if case.executor and ours.result and ours.result.executor != case.executor:
            yield f"executor: {ours.result.executor} ({ours.result.executor_reason}) instead of {case.executor}"
        if builtin.num_rows != ours.num_rows:
            yield f"{NUM_ROWS}: built-in {builtin.num_rows}, ours {ours.num_rows}"
        yield from state_differences(builtin, ours)
        if builtin.after.version != ours.after.version:
            # Where no clause takes a row, the built-in may still rewrite files to copies of themselves; ours never.
            if ours.committed or builtin.num_rows != (0, 0, 0, 0):
                yield f"version: built-in {builtin.after.version}, ours {ours.after.version}"
        elif builtin.committed:
            yield from commit_differences(builtin, ours)
            if not case.without:
                yield from statistics_differences(builtin, ours)
            yield from result_differences(ours)
        if comparable_schema(builtin.after) == comparable_schema(ours.after):
            yield from self._row_differences(case, builtin, ours)
            if builtin.committed and ours.committed and builtin.after.enabled("delta.enableChangeDataFeed"):
                yield from self._change_differences(case, builtin, ours)

    def _read(self, path: Path) -> DataFrame:
        return self.spark.read.format("delta").load(str(path))

    def _row_differences(self, case: Case, builtin: Outcome, ours: Outcome) -> Iterator[str]:
        if can_read_plainly(builtin.after) and can_read_plainly(ours.after):
            # Files that neither engine touched are the same.
            common = builtin.after.files.keys() & ours.after.files.keys()
            bags = tuple(read_plainly(o.path, o.after, skip=common, without=case.without) for o in (builtin, ours))
            untouched = ours.after.row_count_of(common) or 0
        else:
            bags = self._bags(*(self._read_with_row_ids(case, outcome) for outcome in (builtin, ours)))
            untouched = 0
        yield from _bag_differences("rows", *bags)
        count = ours.after.row_count
        if count is not None and count != (held := bags[1].total() + untouched):
            yield f"statistics: the files of ours say they hold {count} rows, but hold {held}"

    def _read_with_row_ids(self, case: Case, outcome: Outcome) -> DataFrame:
        rows = self._read(outcome.path).drop(*case.without)
        if outcome.after.enabled("delta.enableRowTracking"):
            rows = _with_row_ids(rows, outcome.before)
        return rows

    def _change_differences(self, case: Case, builtin: Outcome, ours: Outcome) -> Iterator[str]:
        if can_read_plainly(builtin.after) and can_read_plainly(ours.after):
            plain = [
                read_changes_plainly(o.path, o.after, since=o.before.version, without=case.without)
                for o in (builtin, ours)
            ]
            if plain[0] is not None and plain[1] is not None:
                yield from _bag_differences("change data", plain[0], plain[1])
                return

        def read(outcome: Outcome) -> DataFrame:
            changes = self.spark.read.format("delta").option("readChangeFeed", "true")
            changes = changes.option("startingVersion", outcome.before.version + 1)
            return changes.load(str(outcome.path)).drop("_commit_timestamp", *case.without)

        yield from _bag_differences("change data", *self._bags(read(builtin), read(ours)))

    def _bags(self, builtin: DataFrame, ours: DataFrame) -> tuple[Counter[str], Counter[str]]:
        """The rows of both as bags, in one job."""
        from pyspark.sql import functions as F

        both = (df.select(F.lit(side), F.struct("*")) for side, df in (("builtin", builtin), ("ours", ours)))
        bags: dict[str, Counter[str]] = {"builtin": Counter(), "ours": Counter()}
        for side, row in next(both).union(next(both)).collect():
            bags[side][repr(_plain(row))] += 1
        return bags["builtin"], bags["ours"]

    def _report(self, case: Case, differences: list[str], builtin: Outcome, ours: Outcome) -> str:
        lines = [f"{case.name}: {len(differences)} differences", *(f"  - {d}" for d in differences), "reproduce:"]
        lines += [f"  {statement};" for statement in case.table.statements]
        lines += [f"  source: {s};" for s in (case.source_table.statements if case.source_table else [])]
        lines += [f"  SET {name} = {value};" for name, value in case.confs.items()]
        lines += [f"  in the log: {old} -> {new}" for old, new in case.table.edits]
        lines += [f"  {statement};" for statement in case.before]
        lines += [f"  meanwhile: {statement};" for statement in case.meanwhile]
        relation = case.source_relation("{s}" if case.source_table else None)
        lines += [f"  {case.statement.replace('{s}', relation)}"]
        if ours.result is not None:
            lines += [f"executor: {ours.result.executor} ({ours.result.executor_reason})"]
        return "\n".join([*lines, f"tables: {builtin.path} {ours.path}"])


# --- rows -------------------------------------------------------------------------------------------------------------


def _with_row_ids(rows: DataFrame, before: DeltaTableLog) -> DataFrame:
    """Add stable row ids and commit versions; ids given by the merge itself depend on the files it wrote."""
    from pyspark.sql import functions as F

    domain = before.domains.get("delta.rowTracking")
    highest = json.loads(domain)["rowIdHighWaterMark"] if domain else -1
    row_id = F.col("_metadata.row_id")
    known = F.when(row_id <= highest, row_id).otherwise(F.lit(-1))
    return rows.select("*", known.alias("row id"), F.col("_metadata.row_commit_version").alias("row version"))


def _bag_differences(what: str, builtin: Counter[str], ours: Counter[str]) -> Iterator[str]:
    for who, more in (("built-in", builtin - ours), ("ours", ours - builtin)):
        if more:
            yield f"{what} only in {who}: {', '.join(f'{n} x {row}' for row, n in list(more.items())[:5])}"


def _plain(value: Any) -> Any:
    """A value whose repr tells all of it and is the same for the same value."""
    if isinstance(value, dict):
        return sorted((repr(_plain(k)), _plain(v)) for k, v in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(_plain(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return str(value) if type(value).__name__ == "VariantVal" else value
