"""Lists the table's files from the state of its log on the driver, with one small Spark job.

Delta's ``filterFiles`` plans and compiles a query that parses all statistics of all columns, and returns files without
statistics. For a table of a few thousand files, fetching each file's log entry and choosing here is faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject


def list_state(gateway: Gateway, snapshot: JavaObject) -> list[str]:
    """Each file's ``add`` action in the log, as JSON, in no particular order.

    :param snapshot: the table's JVM ``Snapshot``.
    """
    adds = gateway.wrap(snapshot.stateDF()).filter("add IS NOT NULL")
    # Delta keeps the state in 50 partitions of a few dozen files each: starting a task for each would dominate.
    few_parts = adds.coalesce(gateway.default_parallelism)
    return [row[0] for row in few_parts.select(F.to_json("add")).collect()]


def files_of(gateway: Gateway, adds: Iterable[str]) -> JavaObject:
    """JVM sequence of ``AddFile`` from the results of :func:`list_state`, including their statistics."""
    return gateway.seq_from_json(adds, "org.apache.spark.sql.delta.actions.AddFile")
