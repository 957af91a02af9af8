"""The table's files by the state of its log, listed on the driver by one small Spark job.

Delta's ``filterFiles`` plans and compiles a query that parses all statistics of all columns, and gives files without
them. For a table of some thousand files it takes less time to fetch what the log says of each, and to choose here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject


def list_state(gateway: Gateway, snapshot: JavaObject) -> list[str]:
    """What the log says of each file (its ``add`` action as JSON), in no order.

    :param snapshot: the table's JVM ``Snapshot``.
    """
    adds = gateway.wrap(snapshot.stateDF()).filter("add IS NOT NULL")
    # Delta keeps the state in 50 parts, of some dozen files each: a task for each would take longer than its rows.
    few_parts = adds.coalesce(gateway.default_parallelism)
    return [row[0] for row in few_parts.select(F.to_json("add")).collect()]


def files_of(gateway: Gateway, adds: Iterable[str]) -> JavaObject:
    """JVM sequence of ``AddFile`` of what :func:`list_state` gives, their statistics included."""
    return gateway.seq_from_json(adds, "org.apache.spark.sql.delta.actions.AddFile")
