"""The merge as one execution in the Spark UI and in event logs, with Delta's metrics and its queries beneath it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_delta_merge.engine.delta_jvm import versions
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge

_EVENTS = "org.apache.spark.sql.execution.ui"
_EXECUTION = "org.apache.spark.sql.execution.SQLExecution"


@contextmanager
def shown_in_spark_ui(gateway: Gateway, statement: ResolvedMerge) -> Iterator[None]:
    """Announce what runs inside to Spark's listeners, as Spark itself does for a command that it executes.

    Spark's own way takes a Scala closure, which cannot be had from Python; so the events are posted from here. At the
    end, also after a failure, the merge's SQL metrics are announced as they are then.
    """
    context = gateway.spark.sparkContext._jsc
    number = _next_execution_id(gateway)
    _post(gateway, _started(gateway, statement, number))
    root = gateway.module(_EXECUTION).EXECUTION_ROOT_ID_KEY()
    before = context.getLocalProperty(root)
    context.setLocalProperty(root, str(number))
    failure = ""
    try:
        yield
    except BaseException as error:
        failure = str(error) or type(error).__name__
        raise
    finally:
        context.setLocalProperty(root, before)
        metrics = gateway.module("org.apache.spark.sql.execution.metric.SQLMetrics")
        values = statement.command.metrics().values().toSeq()
        metrics.postDriverMetricUpdates(context.sc(), str(number), values)
        ended = gateway.java_class(f"{_EVENTS}.SparkListenerSQLExecutionEnd")
        _post(gateway, ended(*versions.of_execution(gateway, [number, _now(), gateway.some(failure)], begins=False)))


def _started(gateway: Gateway, statement: ResolvedMerge, number: int) -> JavaObject:
    plan = statement.executed_plan()
    text = f"MERGE INTO {statement.table_name()}"
    empty = gateway.module("scala.collection.immutable.Map").empty()
    no_tags = gateway.module("scala.Predef").Set().empty()
    information = gateway.module("org.apache.spark.sql.execution.SparkPlanInfo").fromSparkPlan(plan)
    arguments = [
        number,
        gateway.none,
        text,
        text,
        plan.toString(),
        information,
        _now(),
        empty,
        no_tags,
    ]
    started = gateway.java_class(f"{_EVENTS}.SparkListenerSQLExecutionStart")
    return started(*versions.of_execution(gateway, arguments, begins=True))


def _next_execution_id(gateway: Gateway) -> int:
    executions = gateway.module(_EXECUTION)
    method = executions.getClass().getDeclaredMethod("nextExecutionId", None)
    method.setAccessible(True)  # it is private, but a number of our own would clash with Spark's
    return int(method.invoke(executions, None))


def _post(gateway: Gateway, event: JavaObject) -> None:
    gateway.spark.sparkContext._jsc.sc().listenerBus().post(event)


def _now() -> int:
    return int(time.time() * 1000)
