"""The contestants: each merges a source into a copy of a case's table in its own way."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.config import ClauseAction, ClauseKind, MergeClause
from bench.case import Case
from bench.session import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Run:
    """One run of one contestant.

    :param spark: the session.
    :param case: what is merged.
    :param template: the table that nobody may write into.
    :param target: the contestant's own copy of it.
    :param source: the source's Parquet folder.
    :param scratch: a folder for whatever else it writes, emptied afterwards.
    """

    spark: SparkSession
    case: Case
    template: Path
    target: Path
    source: Path
    scratch: Path


@dataclass(frozen=True)
class Facts:
    """What a contestant reports about its merge besides the time; empty if it reports nothing."""

    values: dict[str, int] = field(default_factory=dict)
    durations_ms: dict[str, int] = field(default_factory=dict)
    how: str = ""


class Contestant(ABC):
    """Somebody who merges."""

    name: str
    #: Whether the table has the merged rows afterwards; the floor only moves bytes.
    merges: bool = True

    def refuses(self, case: Case) -> str:
        """Why this contestant does not run the case; empty when it does."""
        return ""

    def prepare(self, run: Run) -> None:
        """What must be there before the clock runs: Delta knows the table, as after an earlier merge in the session."""
        log = jvm(run.spark).org.apache.spark.sql.delta.DeltaLog.forTable(run.spark._jsparkSession, str(run.target))
        snapshot = log.unsafeVolatileSnapshot()
        snapshot.allFiles().count()
        snapshot.computedState()

    def watch(self, name: str, run: Run) -> None:
        """See what another contestant left behind, before its copy of the table goes away."""
        return

    @abstractmethod
    def merge(self, run: Run) -> Facts:
        """Merge; this is what is timed."""

    def rows(self, run: Run) -> DataFrame:
        """The table's rows after the merge."""
        return run.spark.read.format("delta").load(str(run.target))


class Ours(Contestant):
    name = "ours"

    def merge(self, run: Run) -> Facts:
        from airflow_delta_merge.engine import merge_sql

        result = merge_sql(run.spark, run.case.statement(run.target, run.source))
        counts = ("files_before_skipping", "candidate_files", "touched_files", "added_files", "affected_rows")
        values = {name: getattr(result, f"num_{name}") for name in counts}
        return Facts(values, result.durations_ms, f"{result.executor}: {result.executor_reason}")


class OursWith(Ours):
    """Merges as :class:`Ours` does, with one of the session's settings changed: what a shortcut gains or costs.

    :param setting: its name.
    :param value: what it is set to for each merge.
    """

    def __init__(self, setting: str, value: str) -> None:
        self.name = f"{setting}={value}"
        self._setting, self._value = setting, value

    def merge(self, run: Run) -> Facts:
        conf = run.spark.conf
        before = conf.get(self._setting, None)
        conf.set(self._setting, self._value)
        try:
            return super().merge(run)
        finally:
            conf.unset(self._setting) if before is None else conf.set(self._setting, before)


class BuiltIn(Contestant):
    name = "built-in"

    def merge(self, run: Run) -> Facts:
        row = run.spark.sql(run.case.statement(run.target, run.source)).collect()[0]
        return Facts({"affected_rows": row["num_affected_rows"]})


class DeltaRs(Contestant):
    """delta-rs through its Python package `deltalake`; no Spark, the same clauses."""

    name = "delta-rs"

    def refuses(self, case: Case) -> str:
        if importlib.util.find_spec("deltalake") is None:
            return "deltalake is not installed (make bench installs it)"
        return case.not_in_delta_rs

    def prepare(self, run: Run) -> None:
        pass

    def merge(self, run: Run) -> Facts:
        metrics = merge_by_delta_rs(run.case, run.target, run.source)
        affected = sum(metrics[f"num_target_rows_{what}"] for what in ("inserted", "updated", "deleted"))
        return Facts({"affected_rows": affected})


def merge_by_delta_rs(case: Case, target: Path, source: Path) -> dict[str, int]:
    """Merge with `deltalake`, and return its metrics."""
    import pyarrow.dataset
    from deltalake import DeltaTable

    rows = pyarrow.dataset.dataset(source, format="parquet").scanner().to_reader()
    on = case.on
    predicate = on if isinstance(on, str) else " AND ".join(f"target.{key} = source.{key}" for key in on)
    builder: Any = DeltaTable(str(target)).merge(
        rows, predicate=predicate, source_alias="source", target_alias="target"
    )
    for clause in case.clauses:
        builder = _with_clause(builder, clause)
    return dict(builder.execute())


def _with_clause(builder: Any, clause: MergeClause) -> Any:
    when = {
        ClauseKind.MATCHED: "when_matched",
        ClauseKind.NOT_MATCHED: "when_not_matched",
        ClauseKind.NOT_MATCHED_BY_SOURCE: "when_not_matched_by_source",
    }[clause.kind]
    method = getattr(builder, f"{when}_{clause.action}")
    if clause.action in (ClauseAction.UPDATE, ClauseAction.INSERT):
        return method(dict(clause.values), predicate=clause.condition)
    return method(predicate=clause.condition)
