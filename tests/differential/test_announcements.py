"""What Spark's listeners and Delta's event log hear of a merge."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.exceptions import MergeExecutionError

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


def recorded(spark: SparkSession, run: Any) -> dict[str, Any]:
    """The event ``delta.dml.merge.stats`` that is recorded meanwhile."""
    logger = getattr(spark._jvm.com.databricks.spark.util, "Log4jUsageLogger$").__getattr__("MODULE$")
    records = spark._jvm.scala.collection.mutable.ArrayBuffer()
    getattr(logger, "usageTracker_$eq")(records)
    try:
        run()
    finally:
        getattr(logger, "usageTracker_$eq")(None)
    events = [records.apply(i) for i in range(records.size())]
    found = [e for e in events if "delta.dml.merge.stats" in e.tags().values().toString()]
    assert len(found) == 1
    return json.loads(found[0].blob())


def without_ids(value: Any) -> Any:
    """Spark numbers columns anew in each statement: ``id#12``."""
    return json.loads(re.sub(r"#\d+L?", "", json.dumps(value)))
