"""Delta's usage events, which open-source Delta records only while something tracks them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def usage_events(spark: SparkSession, run: Callable[[], Any]) -> list[tuple[str, Any]]:
    """Names and data of the events that are recorded while something runs, in their order; operations have no data."""
    logger = getattr(spark._jvm.com.databricks.spark.util, "Log4jUsageLogger$").__getattr__("MODULE$")
    records = spark._jvm.scala.collection.mutable.ArrayBuffer()
    getattr(logger, "usageTracker_$eq")(records)
    try:
        run()
    finally:
        getattr(logger, "usageTracker_$eq")(None)
    return [_event(records.apply(position)) for position in range(records.size())]


def _event(record: Any) -> tuple[str, Any]:
    if record.opType().isDefined():
        return str(record.opType().get().typeName()), None
    blob = record.blob()
    return str(record.tags().getOrElse("opType", None)), json.loads(blob) if blob else None
