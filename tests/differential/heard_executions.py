"""What Spark tells a ``QueryExecutionListener``, as lineage and audit tools register one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The listener, to be compiled by ``java_classes``.
LISTENER = Path(__file__).parent / "seam" / "HeardExecutions.java"


@dataclass(frozen=True)
class Heard:
    """One execution that a listener heard of.

    :param name: Spark's name for it.
    :param execution: the JVM's ``QueryExecution``.
    :param nanoseconds: how long it took; None after a failure.
    :param error: the JVM's exception; None after a success.
    """

    name: str
    execution: Any
    nanoseconds: int | None
    error: Any | None


@contextmanager
def heard_executions(spark: SparkSession) -> Iterator[list[Heard]]:
    """A list that has, afterwards, what a listener of the session heard meanwhile; the classes must be there."""
    thread = spark._jvm.java.lang.Thread.currentThread()
    listener = thread.getContextClassLoader().loadClass("HeardExecutions").newInstance()
    bus, manager = spark.sparkContext._jsc.sc().listenerBus(), spark._jsparkSession.listenerManager()
    bus.waitUntilEmpty()
    manager.register(listener)
    found: list[Heard] = []
    try:
        yield found
    finally:
        bus.waitUntilEmpty()
        manager.unregister(listener)
        heard = listener.heard()
        found += [Heard(*heard.get(position)) for position in range(heard.size())]
