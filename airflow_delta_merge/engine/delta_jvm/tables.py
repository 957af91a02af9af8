"""Tables outside a transaction: whether one exists, and who committed to it; and the columns of a frame."""

from __future__ import annotations

from pyspark.sql import DataFrame

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, jdf, scala_option


def is_delta_path(gateway: Gateway, path: str) -> bool:
    """Whether a folder holds a Delta table."""
    return bool(gateway.java_class("io.delta.tables.DeltaTable").isDeltaTable(gateway.session, path))


def generation_in(gateway: Gateway, path: str, application_id: str) -> int | None:
    """The version that an application last committed to the table in a folder; None without a table or a commit."""
    if not is_delta_path(gateway, path):
        return None
    snapshot = gateway.delta("DeltaLog").forTableWithSnapshot(gateway.session, path)._2()
    found = scala_option(snapshot.transactions().get(application_id))
    return None if found is None else int(found)


def columns_of(frame: DataFrame) -> str:
    """A frame's columns as SQL, all nullable."""
    return str(jdf(frame).schema().asNullable().toDDL())
