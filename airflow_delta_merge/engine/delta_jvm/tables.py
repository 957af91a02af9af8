"""Tables outside a transaction: whether one exists, and who committed to it; and the columns of a frame."""

from __future__ import annotations

from pyspark.sql import DataFrame

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, jdf, scala_option


def is_delta_path(gateway: Gateway, path: str) -> bool:
    """Whether a folder is a Delta table with a commit, or in one."""
    return _snapshot_of(gateway, path) is not None


def generation_in(gateway: Gateway, path: str, application_id: str) -> int | None:
    """The version that an application last committed to the table in a folder; None without a table or a commit."""
    snapshot = _snapshot_of(gateway, path)
    found = None if snapshot is None else scala_option(snapshot.transactions().get(application_id))
    return None if found is None else int(found)


def _snapshot_of(gateway: Gateway, path: str) -> JavaObject | None:
    """The newest JVM ``Snapshot`` of the table that a folder is in.

    Delta itself takes a folder for a table as soon as its log's folder is there. Who creates a table makes that before
    the first commit, and leaves it behind when it dies.
    """
    folder = gateway.java_class("org.apache.hadoop.fs.Path")(path)
    no_options = gateway.module("scala.collection.immutable.Map").empty()
    root = scala_option(gateway.delta("DeltaTableUtils").findDeltaTableRoot(gateway.session, folder, no_options))
    if root is None:
        return None
    snapshot = gateway.delta("DeltaLog").forTableWithSnapshot(gateway.session, root)._2()
    return snapshot if int(snapshot.version()) >= 0 else None


def column_names(gateway: Gateway, frame: DataFrame) -> list[str]:
    """A frame's columns. PySpark's ``columns`` fails on user-defined types whose Python class can't be imported."""
    return list(gateway.as_json(jdf(frame).schema().fieldNames()))


def type_of(frame: DataFrame) -> str:
    """The type of a frame's only column, as Spark SQL writes it."""
    return str(jdf(frame).schema().head().dataType().catalogString())


def columns_of(frame: DataFrame) -> str:
    """A frame's columns as SQL, all nullable."""
    return str(jdf(frame).schema().asNullable().toDDL())
