"""What Spark's listeners and Delta's event log hear of a merge."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import MergeConfig, MergeEngine, MergeGuards, when_matched_update_all
from airflow_delta_merge.engine import merge, merge_sql, plan
from airflow_delta_merge.exceptions import MergeExecutionError, MergeGuardError
from tests.differential.heard_executions import LISTENER, Heard, heard_executions
from tests.differential.session_settings import session_settings
from tests.differential.usage_events import usage_events
from tests.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGE = (
    "MERGE INTO {t} t USING (SELECT id + 2 AS id FROM range(4)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
AMBIGUOUS = "MERGE INTO {t} t USING (SELECT 1 AS id FROM range(2)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"


def make_table(spark: SparkSession, path: Path) -> str:
    spark.range(4).write.format("delta").save(str(path))
    return f"delta.`{path}`"


def executions(spark: SparkSession, *, after: int = -1) -> list[Any]:
    """The ended executions with a number above ``after``; Spark forgets old ones.

    Spark adds up an execution's metrics in a thread of its own and only then stores its end,
    at some time after the bus is empty.
    """
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    deadline = time.monotonic() + 60
    while True:
        listed = spark._jsparkSession.sharedState().statusStore().executionsList()
        found = [listed.apply(i) for i in range(listed.size())]
        found = [execution for execution in found if execution.executionId() > after]
        if all(e.completionTime().isDefined() and e.metricValues() is not None for e in found):
            return found
        assert time.monotonic() < deadline, "Spark did not store the end of an execution"
        time.sleep(0.1)


def latest(spark: SparkSession) -> int:
    return max(execution.executionId() for execution in executions(spark))


def shown_metrics(spark: SparkSession, execution: Any) -> dict[str, str]:
    """The metrics of an execution by their names in the UI."""
    values = spark._jsparkSession.sharedState().statusStore().executionMetrics(execution.executionId())
    found = {}
    for position in range(execution.metrics().size()):
        metric = execution.metrics().apply(position)
        value = values.get(metric.accumulatorId())
        if value.isDefined() and not metric.name().startswith("time"):
            found[metric.name()] = value.get()
    return found


@pytest.mark.slow
def test_the_spark_ui_shows_the_metrics_that_it_shows_for_the_built_in(spark: SparkSession, tmp_path: Path) -> None:
    builtin, ours = make_table(spark, tmp_path / "builtin"), make_table(spark, tmp_path / "ours")
    seen = latest(spark)
    spark.sql(MERGE.format(t=builtin)).collect()
    of_builtin = executions(spark, after=seen)
    seen = latest(spark)
    merge_sql(spark, MERGE.format(t=ours))
    of_ours = executions(spark, after=seen)

    merges = [execution for execution in of_ours if execution.description().startswith("MERGE INTO")]
    assert len(merges) == 1
    assert merges[0].completionTime().isDefined()
    assert merges[0].errorMessage().get() == ""
    shown = shown_metrics(spark, merges[0])
    by_builtin = next(m for m in (shown_metrics(spark, e) for e in of_builtin) if "number of updated rows" in m)
    assert shown.keys() == by_builtin.keys()
    for name in (
        "number of updated rows",
        "number of inserted rows",
        "number of deleted rows",
        "number of source rows",
    ):
        assert shown[name] == by_builtin[name], name
    assert shown["number of updated rows"] == "2"
    assert {e.rootExecutionId() for e in of_ours} == {merges[0].executionId()}, "its queries stand beneath it"


def test_the_spark_ui_shows_that_a_merge_failed(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "t")
    seen = latest(spark)
    with pytest.raises(MergeExecutionError):
        merge_sql(spark, AMBIGUOUS.format(t=table))
    merge = next(e for e in executions(spark, after=seen) if e.description().startswith("MERGE INTO"))
    assert merge.completionTime().isDefined()
    assert "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE" in merge.errorMessage().get()


def test_delta_records_the_same_merge_statistics(spark: SparkSession, tmp_path: Path) -> None:
    builtin, ours = make_table(spark, tmp_path / "builtin"), make_table(spark, tmp_path / "ours")
    of_builtin = recorded(spark, lambda: spark.sql(MERGE.format(t=builtin)).collect())
    of_ours = recorded(spark, lambda: merge_sql(spark, MERGE.format(t=ours)))
    assert of_ours.keys() == of_builtin.keys()
    same = "conditionExpr matchedStats notMatchedStats source targetRowsUpdated targetRowsInserted commitVersion"
    for name in (*same.split(), "materializeSourceReason", "materializeSourceAttempts"):
        assert without_ids(of_ours[name]) == without_ids(of_builtin[name]), name


def recorded(spark: SparkSession, run: Callable[[], Any]) -> dict[str, Any]:
    """The event ``delta.dml.merge.stats`` that is recorded meanwhile."""
    found = [blob for name, blob in usage_events(spark, run) if name == "delta.dml.merge.stats"]
    assert len(found) == 1
    return found[0]


def without_ids(value: Any) -> Any:
    """Spark numbers columns anew in each statement: ``id#12``."""
    return json.loads(re.sub(r"#\d+L?", "", json.dumps(value)))


UPDATE, DELETE, INSERT = "WHEN MATCHED THEN UPDATE SET *", "WHEN MATCHED THEN DELETE", "WHEN NOT MATCHED THEN INSERT *"
MATCHES, STRANGERS = "SELECT id + 2 AS id FROM range(4)", "SELECT id + 20 AS id FROM range(4)"
# By name: the source, the clauses, whether rows are marked by deletion vectors, and how the merge ends.
MERGES = {
    "upsert": (MATCHES, f"{UPDATE} {INSERT}", False, None),
    "matched only": (MATCHES, DELETE, False, None),
    "deletion vectors": (MATCHES, f"{UPDATE} {INSERT}", True, None),
    "not matched by source": (MATCHES, "WHEN NOT MATCHED BY SOURCE THEN DELETE", False, None),
    "insert only": (MATCHES, INSERT, False, None),
    "inserts without a match": (STRANGERS, f"{UPDATE} {INSERT}", False, None),
    "nothing to do": (STRANGERS, DELETE, False, None),
    "ambiguous": ("SELECT 1 AS id FROM range(2)", UPDATE, False, "DeltaUnsupportedOperationException"),
    "a value that cannot be computed": (
        "SELECT 1 AS id", "WHEN MATCHED THEN UPDATE SET id = 1 / (s.id - 1)", False, "SparkException"),
}  # fmt: skip
ENGINES: dict[str, Callable[[SparkSession, str], Any]] = {
    "builtin": lambda spark, statement: spark.sql(statement),
    "ours": merge_sql,
}


@pytest.fixture(scope="module")
def listener(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with java_classes(spark, LISTENER, jar=tmp_path_factory.mktemp("listener") / "listener.jar"):
        yield


def make_merge(spark: SparkSession, path: Path, source: str, clauses: str, *, vectors: bool = False) -> str:
    rows = spark.range(0, 4, 1, 2).write.format("delta")
    rows.option("delta.enableDeletionVectors", str(vectors).lower()).save(str(path))
    return f"MERGE INTO delta.`{path}` t USING ({source}) s ON t.id = s.id {clauses}"


def run_by(engine: str, spark: SparkSession, statement: str, *, fails: bool) -> None:
    if not fails:
        ENGINES[engine](spark, statement)
        return
    with pytest.raises(Exception, match=r"TASK_WRITE_FAILED|DELTA_MULTIPLE_SOURCE_ROW"):
        ENGINES[engine](spark, statement)


def commands(heard: list[Heard]) -> list[Heard]:
    return [each for each in heard if each.name == "command"]


def as_announced(heard: Heard) -> dict[str, Any]:
    """What a listener can learn of a merge, so far as merges into two tables have it in common."""
    analysed, physical = heard.execution.analyzed(), heard.execution.executedPlan()
    clauses = analysed.matchedClauses(), analysed.notMatchedClauses(), analysed.notMatchedBySourceClauses()
    metrics = physical.metrics()
    return {
        "analysed": analysed.getClass().getName(),
        "physical": physical.nodeName(),
        "condition": analysed.condition().sql(),
        "clauses": [each.size() for each in clauses],
        "source and target": [str(each.schema().simpleString()) for each in (analysed.source(), analysed.target())],
        "rows": {name: metrics.apply(f"numTargetRows{name}").value() for name in ("Updated", "Deleted", "Inserted")},
        "has a duration": heard.nanoseconds is not None and heard.nanoseconds > 0,
        "error": heard.error and heard.error.getClass().getSimpleName(),
        "its condition": heard.error and heard.error.getMessage().split("]")[0],
    }


@dataclass(frozen=True)
class Announced:
    """What was heard of one merge: the executions named ``command``, and Delta's usage events of merges."""

    commands: list[dict[str, Any]]
    events: list[str]


@pytest.fixture(scope="module")
def announced(
    spark: SparkSession, listener: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Announced]]:
    """Runs a merge of :data:`MERGES` by both engines, once for all tests; what was heard by the engines' names."""

    @cache
    def run(name: str) -> dict[str, Announced]:
        source, clauses, vectors, error = MERGES[name]
        found = {}
        for engine in ENGINES:
            statement = make_merge(spark, tmp_path_factory.mktemp("t") / "t", source, clauses, vectors=vectors)
            with heard_executions(spark) as heard:
                events = usage_events(spark, lambda: run_by(engine, spark, statement, fails=error is not None))  # noqa: B023
            found[engine] = Announced([as_announced(each) for each in commands(heard)], merge_events(events))
        return found

    return run


def merge_events(events: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in events if name.startswith("delta.dml.merge")]


@pytest.mark.parametrize("name", MERGES)
def test_a_query_execution_listener_hears_what_it_hears_of_the_built_in(
    name: str, announced: Callable[[str], dict[str, Announced]]
) -> None:
    error = MERGES[name][-1]
    (ours,), (builtin,) = (announced(name)[engine].commands for engine in ("ours", "builtin"))
    if error is not None:  # rows counted by then follow from how an engine goes about its work
        ours, builtin = ({key: value for key, value in each.items() if key != "rows"} for each in (ours, builtin))
    assert ours == builtin
    assert ours["analysed"] == "org.apache.spark.sql.delta.commands.MergeIntoCommand"
    assert (ours["error"], ours["has a duration"]) == (error, error is None)


@pytest.mark.parametrize("name", MERGES)
def test_delta_records_the_same_usage_events(name: str, announced: Callable[[str], dict[str, Announced]]) -> None:
    ours, builtin = (announced(name)[engine].events for engine in ("ours", "builtin"))
    assert ours == builtin
    assert (ours[0], ours[-1]) == ("delta.dml.merge.materializeSource", "delta.dml.merge")


@pytest.mark.usefixtures("listener")
def test_a_query_execution_listener_hears_of_merges_by_config_but_of_no_dry_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark.range(4).write.format("delta").save(str(path))
    config = MergeConfig(target=str(path), source=MATCHES, on=["id"], clauses=[when_matched_update_all()])
    with heard_executions(spark) as by_plan:
        assert plan(spark, config).num_updated_rows == 2
    assert commands(by_plan) == []

    with heard_executions(spark) as by_builtin:
        merge(spark, replace(config, engine=MergeEngine.BUILTIN))
    (command,) = commands(by_builtin)
    assert as_announced(command)["rows"] == {"Updated": 2, "Deleted": 0, "Inserted": 0}

    with heard_executions(spark) as stopped, pytest.raises(MergeGuardError) as raised:
        merge(spark, replace(config, guards=MergeGuards(fail_if={"num_updated_rows": 1})))
    (command,) = commands(stopped)
    assert command.error.getMessage() == str(raised.value), "an error without one of the JVM's behind it"


def test_the_first_load_records_the_same_usage_events(spark: SparkSession, tmp_path: Path) -> None:
    found = {}
    for engine in ENGINES:
        table = f"delta.`{tmp_path / engine}`"
        spark.sql(f"CREATE TABLE {table} (id BIGINT) USING delta")
        statement = MERGE.format(t=table)
        events = usage_events(spark, lambda: run_by(engine, spark, statement, fails=False))  # noqa: B023
        found[engine] = merge_events(events)
    assert found["ours"] == found["builtin"]
    assert "delta.dml.merge.writeInsertsOnlyWhenNoMatches" in found["ours"]


def test_a_merge_that_begins_with_one_pass_records_each_step_once(spark: SparkSession, tmp_path: Path) -> None:
    """An update of every file is written in the pass that joins it; of two files with one match it takes two phases."""
    for name, source, passes in (("one", "SELECT id FROM range(4)", True), ("two", "SELECT 3 AS id", False)):
        statement = make_merge(spark, tmp_path / name, source, UPDATE)
        results = []
        with session_settings(spark, {"spark.deltaMerge.onePassFromRows": "0"}):
            events = usage_events(spark, lambda: results.append(merge_sql(spark, statement)))  # noqa: B023
        assert ("in the one pass" in results[0].executor_reason) is passes
        assert merge_events(events) == [
            "delta.dml.merge.materializeSource",
            "delta.dml.merge.findTouchedFiles",
            "delta.dml.merge.writeAllUpdatesAndDeletes",
            "delta.dml.merge.stats",
            "delta.dml.merge",
        ]


def test_a_dry_run_records_no_usage_events_of_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.range(4).write.format("delta").save(str(path))
    config = MergeConfig(target=str(path), source=MATCHES, on=["id"], clauses=[when_matched_update_all()])
    events = usage_events(spark, lambda: plan(spark, config))
    assert merge_events(events) == []
