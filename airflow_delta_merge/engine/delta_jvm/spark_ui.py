"""Shows the merge as one execution, with its queries below it, in the Spark UI, event logs and listeners."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.errors import throwable_behind
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge

_Result = TypeVar("_Result")

_EVENTS = "org.apache.spark.sql.execution.ui"
_EXECUTION = "org.apache.spark.sql.execution.SQLExecution"
#: How Spark names the execution of a command.
_COMMAND = "command"


def in_background(gateway: Gateway, function: Callable[[], _Result]) -> Callable[[], _Result]:
    """The function for another thread, whose Spark jobs belong to the merge as those of this thread do.

    They get this thread's local properties, among them the execution and the job group by which a merge is cancelled.
    """
    context: JavaObject = gateway.spark.sparkContext._jsc.sc()
    properties = context.getLocalProperties().clone()

    def run() -> _Result:
        context.setLocalProperties(properties)
        return function()

    return run


@contextmanager
def shown_in_spark_ui(gateway: Gateway, statement: ResolvedMerge, *, is_dry_run: bool) -> Iterator[None]:
    """Report the execution of the code inside to Spark's listeners, as Spark does for a command.

    Spark's own API needs a Scala closure, which Python cannot provide, so this function posts the events. At the end,
    even after a failure, it posts the merge's SQL metrics, and notifies each ``QueryExecutionListener`` of the session
    of an execution named ``command``.

    :param is_dry_run: whether nothing is written. A ``QueryExecutionListener`` is not notified then: it would mistake
        the dry run for a merge.
    """
    context = gateway.spark.sparkContext._jsc
    number = _next_execution_id(gateway)
    _post(gateway, _started(gateway, statement, number))
    root = gateway.module(_EXECUTION).EXECUTION_ROOT_ID_KEY()
    before = context.getLocalProperty(root)
    context.setLocalProperty(root, str(number))
    began = time.monotonic_ns()
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        duration = time.monotonic_ns() - began
        context.setLocalProperty(root, before)
        metrics = gateway.module("org.apache.spark.sql.execution.metric.SQLMetrics")
        values = statement.command.metrics().values().toSeq()
        metrics.postDriverMetricUpdates(context.sc(), str(number), values)
        ended = _ended(gateway, statement, number, failure)
        if not is_dry_run:
            _notify_query_listeners(gateway, ended, statement, duration, failure)
        _post(gateway, ended)


def _started(gateway: Gateway, statement: ResolvedMerge, number: int) -> JavaObject:
    plan = statement.execution.executedPlan()
    text = f"MERGE INTO {statement.table_name()}"
    empty = gateway.module("scala.collection.immutable.Map").empty()
    no_tags = gateway.module("scala.Predef").Set().empty()
    information = gateway.module("org.apache.spark.sql.execution.SparkPlanInfo").fromSparkPlan(plan)
    arguments = [number, gateway.none, text, text, plan.toString(), information, _now(), empty, no_tags]
    started = gateway.java_class(f"{_EVENTS}.SparkListenerSQLExecutionStart")
    return started(*by_version.of_execution(gateway, statement.execution, arguments, begins=True))


def _ended(gateway: Gateway, statement: ResolvedMerge, number: int, failure: BaseException | None) -> JavaObject:
    message = "" if failure is None else str(failure) or type(failure).__name__
    arguments = [number, _now(), gateway.some(message)]
    ended = gateway.java_class(f"{_EVENTS}.SparkListenerSQLExecutionEnd")
    return ended(*by_version.of_execution(gateway, statement.execution, arguments, begins=False))


def _notify_query_listeners(
    gateway: Gateway, ended: JavaObject, statement: ResolvedMerge, duration: int, failure: BaseException | None
) -> None:
    """Add the fields that Spark's bus passes to each ``QueryExecutionListener``; it skips executions without a name.

    :param duration: nanoseconds.
    """
    getattr(ended, "executionName_$eq")(gateway.some(_COMMAND))
    getattr(ended, "qe_$eq")(statement.execution)
    getattr(ended, "duration_$eq")(duration)
    getattr(ended, "executionFailure_$eq")(gateway.none if failure is None else gateway.some(_thrown(gateway, failure)))


def _thrown(gateway: Gateway, failure: BaseException) -> JavaObject:
    """The JVM's exception behind a failure, or a new one with the same message."""
    thrown = throwable_behind(failure)
    if thrown is None:
        message = str(failure) or type(failure).__name__
        return gateway.java_class("org.apache.spark.SparkException")(message)
    return thrown


def _next_execution_id(gateway: Gateway) -> int:
    executions = gateway.module(_EXECUTION)
    method = executions.getClass().getDeclaredMethod("nextExecutionId", None)
    method.setAccessible(True)  # it is private, but our own number would clash with Spark's
    return int(method.invoke(executions, None))


def _post(gateway: Gateway, event: JavaObject) -> None:
    gateway.spark.sparkContext._jsc.sc().listenerBus().post(event)


def _now() -> int:
    return int(time.time() * 1000)
