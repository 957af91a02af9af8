"""Runs contestants in turn, round by round, and lets a time count only after the rows were compared."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.case import Case
from bench.contestants import Contestant, Facts, Run
from bench.data import Templates, copy_table
from bench.session import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Whose rows are right.
REFERENCE = "built-in"
_LONGEST_ERROR = 300

RowsHash = tuple[int, int]


@dataclass
class Outcome:
    """What one contestant did in one case.

    :param seconds: a time for each round, without the warm-up.
    :param spans: when each of these runs began and ended, in milliseconds since 1970.
    :param durations_ms: the time of each of these runs by phase, as it reported it.
    :param facts: what it reported about its last run.
    :param refused: why it did not run; empty when it did.
    :param error: what it failed with; empty when it did not.
    :param other_rows: whether it left other rows than the built-in MERGE: its times don't count.
    """

    seconds: list[float] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    durations_ms: list[dict[str, int]] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    refused: str = ""
    error: str = ""
    other_rows: bool = False

    @property
    def counts(self) -> bool:
        """Whether its times are shown."""
        return bool(self.seconds) and not (self.error or self.other_rows)

    @property
    def median(self) -> float | None:
        """Seconds; None when there is no time that counts."""
        return statistics.median(self.seconds) if self.counts else None

    @property
    def spread(self) -> float | None:
        """Slowest minus fastest round, as a fraction of the median."""
        return (max(self.seconds) - min(self.seconds)) / statistics.median(self.seconds) if self.counts else None


@dataclass
class CaseResult:
    """All outcomes of one case, by contestant."""

    case: Case
    statement: str
    source_rows: int
    outcomes: dict[str, Outcome]

    @property
    def failures(self) -> list[str]:
        """A sentence for each failure: an empty source, other rows of anybody, an error of all but delta-rs."""
        sentences = []
        if not self.source_rows:
            sentences.append(f"{self.case.name}: its source has no rows at this scale; take a larger one")
        for name, outcome in self.outcomes.items():
            if outcome.other_rows:
                sentences.append(f"{self.case.name}: {name} left other rows than the built-in MERGE")
            elif outcome.error and name != "delta-rs":
                sentences.append(f"{self.case.name}: {name} failed: {outcome.error}")
        return sentences


class Runner:
    """Runs cases.

    :param spark: the session of all contestants that use Spark.
    :param templates: the tables.
    :param contestants: who merges; one of them is the reference.
    :param work: a folder for the copies, on the file system of the templates (they are hard links).
    :param rounds: rounds that count; one more comes before, to warm up.
    :param say: gets a line of progress.
    """

    def __init__(
        self,
        spark: SparkSession,
        templates: Templates,
        contestants: Sequence[Contestant],
        *,
        work: Path,
        rounds: int,
        say: Callable[[str], None] = print,
    ) -> None:
        self._spark = spark
        self._templates = templates
        self._contestants = list(contestants)
        self._work = work
        self._rounds = rounds
        self._say = say

    def warm_up(self, case: Case, seconds: float) -> None:
        """Let everybody who merges do so for a while: Java compiles what all merges have in common."""
        template, source = self._templates.target(case.table), self._templates.source(case.table, case.source)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for contestant in self._contestants:
                if contestant.merges and not contestant.refuses(case):
                    self._run_once(case, contestant, Outcome(), template, source, 0, compared=False)

    def run(self, case: Case) -> CaseResult:
        """Run one case: a warm-up and all rounds, in an order that turns with each round."""
        template = self._templates.target(case.table)
        source = self._templates.source(case.table, case.source)
        outcomes = {each.name: Outcome(refused=each.refuses(case)) for each in self._contestants}
        for number in range(self._rounds + 1):
            hashes: dict[str, RowsHash] = {}
            for contestant in self._in_turn(number):
                outcome = outcomes[contestant.name]
                if outcome.refused or outcome.error:
                    continue
                try:
                    rows = self._run_once(case, contestant, outcome, template, source, number)
                except Exception as error:  # a contestant may fail in any way; the others go on
                    outcome.error = _first_line(error)
                    self._say(f"{case.name}: {contestant.name} failed: {outcome.error}")
                else:
                    if rows is not None:
                        hashes[contestant.name] = rows
            _compare(hashes, outcomes)
        return CaseResult(
            case=case,
            statement=case.statement(Path("TARGET"), Path("SOURCE")),
            source_rows=self._spark.read.parquet(str(source)).count(),
            outcomes=outcomes,
        )

    def _in_turn(self, number: int) -> list[Contestant]:
        """Another one begins each round, and every second round runs backwards: nobody always follows the same."""
        start = number % len(self._contestants)
        order = [*self._contestants[start:], *self._contestants[:start]]
        return order[::-1] if number % 2 else order

    def _run_once(
        self,
        case: Case,
        contestant: Contestant,
        outcome: Outcome,
        template: Path,
        source: Path,
        number: int,
        *,
        compared: bool = True,
    ) -> RowsHash | None:
        with self._folder() as folder:
            run = Run(self._spark, case, template, target=folder / "target", source=source, scratch=folder)
            copy_table(template, run.target)
            self._forget()
            contestant.prepare(run)
            # What the event log of --profile is sorted by.
            self._spark.sparkContext.setLocalProperty("spark.jobGroup.id", f"{case.name}|{contestant.name}|{number}")
            jvm(self._spark).System.gc()
            started, start = time.time(), time.perf_counter()
            try:
                facts = contestant.merge(run)
            finally:
                seconds = time.perf_counter() - start
                self._spark.sparkContext._jsc.setLocalProperty("spark.jobGroup.id", None)
            if number:
                outcome.seconds.append(seconds)
                outcome.spans.append((round(started * 1000), round((started + seconds) * 1000)))
                outcome.durations_ms.append(facts.durations_ms)
                outcome.facts = facts
            for other in self._contestants:
                if other is not contestant:
                    other.watch(contestant.name, run)
            return hash_of_rows(contestant.rows(run)) if contestant.merges and compared else None

    def _forget(self) -> None:
        """Every run finds Delta's cache of logs and Spark's cache of plans empty, before its own log is read."""
        self._spark.catalog.clearCache()
        jvm(self._spark).org.apache.spark.sql.delta.DeltaLog.clearCache()

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = self._work / uuid.uuid4().hex
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def hash_of_rows(rows: DataFrame) -> RowsHash:
    """Number of rows and sum of their hashes, over all columns, whatever the rows' order."""
    hashes = rows.selectExpr("count(*) AS n", "coalesce(sum(cast(xxhash64(*) AS decimal(38, 0))), 0) AS h")
    (row,) = hashes.collect()
    return int(row["n"]), int(row["h"])


def _compare(hashes: dict[str, RowsHash], outcomes: dict[str, Outcome]) -> None:
    """Mark who left other rows than the reference in this round."""
    if REFERENCE not in hashes:
        return
    for name, rows in hashes.items():
        if rows != hashes[REFERENCE]:
            outcomes[name].other_rows = True


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:_LONGEST_ERROR]
