"""Tables outside a transaction: whether one exists, who committed to it, and columns as SQL writes them."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from airflow_delta_merge.engine.delta_jvm.errors import first_line
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, jdf
from airflow_delta_merge.exceptions import MergeConfigError


def is_delta_path(gateway: Gateway, path: str) -> bool:
    """Whether a folder holds a Delta table."""
    return bool(gateway.java_class("io.delta.tables.DeltaTable").isDeltaTable(gateway.session, path))


def generation_in(gateway: Gateway, path: str, application_id: str) -> int | None:
    """The version that an application last committed to the table in a folder; None without a table or a commit."""
    if not is_delta_path(gateway, path):
        return None
    snapshot = gateway.delta("DeltaLog").forTableWithSnapshot(gateway.session, path)._2()
    found = snapshot.transactions().get(application_id)
    return int(found.get()) if found.isDefined() else None


def analysed_plan(frame: DataFrame) -> JavaObject:
    """A frame's analysed plan."""
    return jdf(frame).queryExecution().analyzed()


def columns_of(frame: DataFrame) -> str:
    """A frame's columns as SQL, all nullable."""
    return str(jdf(frame).schema().asNullable().toDDL())


def columns_from(gateway: Gateway, text: str) -> str:
    """Columns given as SQL, parsed and written again, so that they can't contain anything else.

    :raises MergeConfigError: when they can't be parsed as columns.
    """
    try:
        return str(gateway.module("org.apache.spark.sql.types.StructType").fromDDL(text).toDDL())
    except PySparkException as error:
        raise MergeConfigError(
            f"The columns {text!r} in create_table are not valid: {first_line(error)} Write them as in CREATE TABLE, "
            "e.g. 'id BIGINT, name STRING'."
        ) from error


def is_of_type(gateway: Gateway, frame: DataFrame, text: str) -> bool:
    """Whether a frame's only column has a type given as SQL, ignoring the case of field names and nullability.

    :raises MergeConfigError: when the text is not a type.
    """
    try:
        wanted = gateway.session.sessionState().sqlParser().parseDataType(text)
    except PySparkException as error:
        raise MergeConfigError(f"The type {text!r} in expect_source is not valid: {first_line(error)}") from error
    types = gateway.module("org.apache.spark.sql.types.DataType")
    return bool(types.equalsIgnoreCaseAndNullability(jdf(frame).schema().head().dataType(), wanted))
