"""Runs a case by both engines and compares all that a merge leaves behind."""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.cases import ANYTHING, Case
from tests.differential.error_conditions import (
    error_condition,
    error_differences,
    is_ambiguous,
    trips_over_null_keys,
)
from tests.differential.log_differences import (
    commit_differences,
    comparable_schema,
    result_differences,
    state_differences,
    statistics_differences,
)
from tests.differential.outcome import Outcome
from tests.differential.plain_rows import read_plainly
from tests.differential.recording import (
    Recording,
    as_outcome,
    bag_of,
    changes_by_spark,
    changes_plainly,
    key_of,
    record,
    rows_by_spark,
    rows_plainly,
)
from tests.differential.recordings import NoRecordingError, Recordings
from tests.differential.running import NUM_ROWS, Runner
from tests.differential.tables import Tables
from tests.session import SESSION_SETTINGS
from tests.turns import one_in_turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Makes the built-in rewrite files, also on tables with deletion vectors.
WRITE_NO_DELETION_VECTORS = {"spark.databricks.delta.merge.deletionVectors.persistent": "false"}
WITHOUT_CHANGE_DATA = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')"
#: All ways that ours goes about a merge. The tables of cases are small: settings make it treat them as larger ones.
WAYS = {
    "ours": {
        "spark.deltaMerge.useChecksum.enabled": "false",
        "spark.deltaMerge.shortcuts.enabled": "false",
        "spark.deltaMerge.smallMergeBytes": "0",
        "spark.deltaMerge.copyFilesFromBytes": "0",
    },
    "ours_as_small": {},
    "ours_as_large": {
        "spark.deltaMerge.useChecksum.enabled": "false",
        "spark.deltaMerge.smallMergeBytes": "0",
        "spark.deltaMerge.broadcastBytes": "0",
        "spark.deltaMerge.onePassFromRows": "1",
        "spark.deltaMerge.keyFilterFromRows": "0",
    },
}
CONDITION = re.compile(r"WHEN MATCHED AND (.*?) THEN", re.DOTALL)


@dataclass
class Harness:
    """Runs cases by our engine and compares them with what the built-in does, or did when it was recorded.

    :param spark: the session of both engines.
    :param home: a folder for the tables.
    :param ways: the names of the ways by which each case runs; None for one, another one at the next commit.
    :param turn: a number that changes from commit to commit.
    :param fresh: run the built-in, too, in place of reading what was recorded.
    :param recording: run the built-in alone, where no recording of the case holds, and keep what it does.
    """

    spark: SparkSession
    home: Path
    ways: Collection[str] | None = None
    turn: int = 0
    fresh: bool = False
    recording: bool = False
    module: str = ""
    recordings: Recordings = field(default_factory=Recordings)
    ways_run: Counter[str] = field(default_factory=Counter)
    _spellings: dict[tuple[object, str], str | None] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.tables = Tables(self.spark, self.home, keep=self.recording)
        self.runner = Runner(self.spark, self.tables)

    # --- one case -------------------------------------------------------------------------------------------------

    def check(self, case: Case, *, oracle_only: bool = False) -> None:
        """Run the case; raise AssertionError with a reproduction when the engines differ.

        :param oracle_only: whether to leave ours out, as the oracle is wrong.
        """
        folder = self.home / f"case_{next(self._numbers)}"
        oracle = self._oracle(case, folder)
        self._check_case_itself(case, oracle)
        if not (oracle_only or self.recording):
            for ours in self._ours(case, folder, once=oracle.refused):
                if isinstance(ours.error, NotImplementedError):
                    assert not ours.committed, "raised NotImplementedError after it had committed"
                    pytest.xfail(f"not there yet: {ours.error}")
                self._fail_on_differences(case, oracle, ours)
        shutil.rmtree(folder, ignore_errors=True)

    def _oracle(self, case: Case, folder: Path) -> Recording:
        """What the built-in does. Where others write meanwhile it is run, as two runs never fall out alike."""
        if self.recording:
            self.tables.prepare(case)  # the recording's key tells which files they have
        if case.meanwhile:
            return self._live(case, folder)
        key = key_of(case, SESSION_SETTINGS)
        if self.fresh and not self.recording:
            return self._live(case, folder)
        try:
            if self.fresh:
                raise NoRecordingError
            found = self.recordings.find(self.module, case, key)
        except NoRecordingError:
            if not self.recording:
                raise
            made = self._live(case, folder)
            self.recordings.add(self.module, case, key, made)
            return made
        if self.recording:
            self.recordings.add(self.module, case, key, None)
        return found

    def _live(self, case: Case, folder: Path) -> Recording:
        return record(case, self.runner.run(case, folder / "builtin", self.runner.merge_builtin), self.spark)

    def check_anything(self, case: Case) -> str:
        """Run a made-up case, of which only the oracle knows what it does; tell what that was, in a word or two."""
        folder = self.home / f"case_{next(self._numbers)}"
        builtin = self.runner.run(case, folder / "builtin", self.runner.merge_builtin)
        if trips_over_null_keys(builtin.error) and error_condition(builtin.error) == "USER_RAISED_EXCEPTION":
            self.check_like(case, like=replace(case, confs={**case.confs, **WRITE_NO_DELETION_VECTORS}))
            return "the built-in trips"
        if loses_rows(builtin):
            self.check_like(case, like=replace(case, before=(*case.before, WITHOUT_CHANGE_DATA)))
            return "the built-in loses rows"
        what = error_condition(builtin.error) if builtin.error else "changed" if builtin.committed else "nothing to do"
        self._spell_partition_values_as_spark(builtin)
        oracle = record(case, builtin, self.spark)
        for ours in self._ours(case, folder, once=oracle.refused):
            self._spell_partition_values_as_spark(ours)
            if isinstance(ours.error, NotImplementedError):
                assert not ours.committed, "raised NotImplementedError after it had committed"
                what = "not there yet"
            elif is_ambiguous(ours.error) and not is_ambiguous(builtin.error):
                self._check_without_nulls(case, folder / ours.path.name, ours)
                what = "the built-in passes over an ambiguous match"
            elif cannot_name_folders(builtin) and not ours.failed:
                what = "the built-in rewrites a file whose folder it can't name"
            else:
                self._fail_on_differences(case, oracle, ours)
        shutil.rmtree(folder, ignore_errors=True)
        return what or "failed"

    def _spell_partition_values_as_spark(self, outcome: Outcome) -> None:
        """Spell partition values as Spark does where it writes a row anew, which the built-in does to more rows.

        Other writers spell them in other ways: ``1.50`` for ``1.5``, and an empty text, which Spark makes NULL.
        """
        types = {column["name"]: column["type"] for column in outcome.after.schema["fields"]}
        for add in [*outcome.before.files.values(), *outcome.after.files.values()]:
            values = add["partitionValues"].items()
            add["partitionValues"] = {name: self._spelling(types.get(name), value) for name, value in values}

    def _spelling(self, type_: object, value: str | None) -> str | None:
        if not value or type_ in (None, "string"):
            return value or None
        if (type_, value) not in self._spellings:
            (row,) = self.spark.sql(f"SELECT CAST(TRY_CAST('{value}' AS {type_}) AS STRING)").collect()
            self._spellings[type_, value] = row[0]
        return self._spellings[type_, value]

    def _check_without_nulls(self, case: Case, folder: Path, ours: Outcome) -> None:
        """What ours raised for ``case`` the built-in must raise, too, when no clause's condition is NULL.

        With nothing but matched clauses Delta 4.4 adds up, over the source rows that match a target row, a number that
        is NULL where all their conditions are. It takes such rows for none, and writes the target row once for each.
        """
        like = replace(case, clauses=CONDITION.sub(r"WHEN MATCHED AND COALESCE(\1, false) THEN", case.clauses))
        self._fail_on_differences(like, self._live(like, folder / "without_nulls"), ours)

    def _fail_on_differences(self, case: Case, oracle: Recording, ours: Outcome) -> None:
        if differences := list(self._differences(case, oracle, ours)):
            pytest.fail(self._report(case, differences, ours), pytrace=False)

    def check_like(self, case: Case, *, like: Case) -> None:
        """Run ``case`` by ours and ``like`` by the built-in, which can't run ``case``; compare rows and counts."""
        folder = self.home / f"case_{next(self._numbers)}"
        builtin = self.runner.run(like, folder / "builtin", self.runner.merge_builtin)
        if like.does != ANYTHING:
            self._check_case_itself(like, record(like, builtin, self.spark))
        if self.recording:
            return
        for ours in self._ours(case, folder):
            if ours.error:
                raise AssertionError(f"{case}, {ours.path.name}: it fails: {ours.error}") from ours.error
            assert ours.num_rows == builtin.num_rows
            names = self._read(builtin.path).columns
            rows = self._read(ours.path).toDF(*names)
            assert bag_of(self._read(builtin.path)) == bag_of(rows)

    def _ours(self, case: Case, folder: Path, *, once: bool = False) -> Iterator[Outcome]:
        """The case by our engine, in each of the ways that are asked for.

        :param once: whether one way is enough, as the statement is refused before any way is chosen.
        """
        ways = self.ways if self.ways is not None and not once else [self._way_in_turn(case)]
        for way in ways:
            self.ways_run[way] += 1
            forced = replace(case, confs={**WAYS[way], **case.confs})
            yield self.runner.run(forced, folder / way, self.merge_ours)

    def _way_in_turn(self, case: Case) -> str:
        return one_in_turn([*(self.ways or WAYS)], f"{case.name} {case.statement}", self.turn)

    def merge_ours(self, statement: str, outcome: Outcome) -> None:
        """Run the statement by our engine."""
        from airflow_delta_merge.engine import merge_sql

        # One attempt, as the built-in makes: another writer's commit shall fail both in the same way.
        outcome.result = merge_sql(self.spark, statement, max_commit_attempts=1)
        outcome.num_rows = tuple(getattr(outcome.result, name) for name in NUM_ROWS)
        self._forget(outcome.path)

    def _forget(self, path: Path) -> None:
        """Drop the cached DeltaLog, so that the next reader takes the table from its files."""
        from airflow_delta_merge.engine.delta_jvm.gateway import Gateway

        gateway = Gateway(self.spark)
        hadoop_path = gateway.java_class("org.apache.hadoop.fs.Path")(str(path))
        gateway.delta("DeltaLog").invalidateCache(gateway.session, hadoop_path)

    # --- the case itself ------------------------------------------------------------------------------------------

    def _check_case_itself(self, case: Case, oracle: Recording) -> None:
        """Whether the built-in does what the case says it shows."""
        if case.fails:
            assert oracle.error, f"{case}: the case says it fails with {case.fails}, but the built-in succeeds"
            assert oracle.error == case.fails, f"{case}: the built-in raises {oracle.error}"
            return
        assert not oracle.error, f"{case}: the built-in fails with {oracle.error}"
        assert oracle.num_rows is not None
        _, updated, deleted, inserted = oracle.num_rows
        does = {kind for kind, n in (("update", updated), ("delete", deleted), ("insert", inserted)) if n}
        assert does == set(case.kinds), f"{case}: the case says it does {case.does!r}, the built-in does {does}"

    # --- comparison -----------------------------------------------------------------------------------------------

    def _differences(self, case: Case, oracle: Recording, ours: Outcome) -> Iterator[str]:
        builtin = as_outcome(oracle, ours)
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
            yield from self._row_differences(case, oracle, builtin, ours)
            if builtin.committed and ours.committed and builtin.after.enabled("delta.enableChangeDataFeed"):
                yield from self._change_differences(case, oracle, ours)

    def _row_differences(self, case: Case, oracle: Recording, builtin: Outcome, ours: Outcome) -> Iterator[str]:
        if oracle.rows is not None:
            # Files that neither engine touched are the same.
            common = builtin.after.files.keys() & ours.after.files.keys()
            bag = read_plainly(ours.path, ours.after, skip=common, without=case.without)
            yield from _bag_differences("rows", rows_plainly(oracle, builtin, case, skip=common), bag)
            untouched = ours.after.row_count_of(common) or 0
        else:
            bag = rows_by_spark(self.spark, case, ours)
            expected = Counter(oracle.all_rows)
            if case.table.archive and "string" in _partition_types(ours):
                # Some writers keep an empty text as a partition's value. The built-in makes NULL of it, also in files
                # of which no clause takes a row, which ours leaves alone.
                expected, bag = _replaced(expected, "''", "None"), _replaced(bag, "''", "None")
            yield from _bag_differences("rows", expected, bag)
            untouched = 0
        count = ours.after.row_count
        if count is not None and count != (held := bag.total() + untouched):
            yield f"statistics: the files of ours say they hold {count} rows, but hold {held}"

    def _change_differences(self, case: Case, oracle: Recording, ours: Outcome) -> Iterator[str]:
        if oracle.changes is None:
            changes = changes_by_spark(self.spark, case, ours)
            yield from _bag_differences("change data", Counter(oracle.all_changes), changes)
        elif (plain := changes_plainly(case, ours)) is not None:
            yield from _bag_differences("change data", Counter(oracle.changes), plain)
        else:
            yield "change data: the built-in wrote or needs no change files, ours removes files and wrote none"

    def _read(self, path: Path) -> DataFrame:
        return self.spark.read.format("delta").load(str(path))

    def _report(self, case: Case, differences: list[str], ours: Outcome) -> str:
        lines = [f"{case.name}: {len(differences)} differences", *(f"  - {d}" for d in differences), "reproduce:"]
        lines += [f"  {statement};" for statement in case.table.statements]
        if case.table.archive:
            lines.append(f"  table: {case.table.archive} of the corpus, {', '.join(case.table.damage) or 'unharmed'}")
        lines += [f"  source: {s};" for s in (case.source_table.statements if case.source_table else [])]
        lines += [f"  SET {name} = {value};" for name, value in case.confs.items()]
        lines += [f"  in the log: {old} -> {new}" for old, new in case.table.edits]
        lines += [f"  {statement};" for statement in case.before]
        lines += [f"  meanwhile: {statement};" for statement in case.meanwhile]
        relation = case.source_relation("{s}" if case.source_table else None)
        lines += [f"  {case.statement.replace('{s}', relation)}"]
        if ours.result is not None:
            lines += [f"executor: {ours.result.executor} ({ours.result.executor_reason})"]
        return "\n".join([*lines, f"way: {ours.path.name}, table: {ours.path}"])


#: A moment of 96 bits is read without its zone, one of 64 bits with it: a file that is copied has these.
_ZONE = ", tzinfo=zoneinfo.ZoneInfo(key='UTC')"


def _replaced(rows: Counter[str], old: str, new: str) -> Counter[str]:
    replaced: Counter[str] = Counter()
    for row, count in rows.items():
        replaced[row.replace(old, new)] += count
    return replaced


def _partition_types(outcome: Outcome) -> set[object]:
    metadata, columns = outcome.before.metadata, outcome.before.schema["fields"]
    return {column["type"] for column in columns if column["name"] in metadata.get("partitionColumns", ())}


def loses_rows(builtin: Outcome) -> bool:
    """Whether a table with change data has fewer rows than the built-in says it left there: see docs/metrics.md."""
    before, after = builtin.before.row_count, builtin.after.row_count
    if not builtin.num_rows or before is None or after is None:
        return False
    _, _, deleted, inserted = builtin.num_rows
    return builtin.after.enabled("delta.enableChangeDataFeed") and after < before - deleted + inserted


def cannot_name_folders(builtin: Outcome) -> bool:
    """Whether the built-in failed to write into a partition of bytes, of which a folder's name can't be made."""
    named = builtin.error is not None and error_condition(builtin.error) == "TASK_WRITE_FAILED"
    return named and "binary" in _partition_types(builtin)


def _bag_differences(what: str, builtin: Counter[str], ours: Counter[str]) -> Iterator[str]:
    builtin, ours = _replaced(builtin, _ZONE, ""), _replaced(ours, _ZONE, "")
    for who, more in (("built-in", builtin - ours), ("ours", ours - builtin)):
        if more:
            yield f"{what} only in {who}: {', '.join(f'{n} x {row}' for row, n in list(more.items())[:5])}"
