"""Checks a config's texts with Spark's parser, so that none can contain anything else than it should."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from airflow_delta_merge.engine.delta_jvm.errors import first_line
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, jdf
from airflow_delta_merge.exceptions import MergeConfigError


def require_expression(gateway: Gateway, text: str, what: str) -> None:
    """Check that ``text`` is one complete SQL expression, so that it cannot end a clause and begin another.

    :raises MergeConfigError: when it is not.
    """
    try:
        gateway.session.sessionState().sqlParser().parseExpression(text)
    except PySparkException as error:
        raise MergeConfigError(f"The {what} is not a SQL expression: {first_line(error)}") from error


def require_query(gateway: Gateway, text: str) -> None:
    """Check that ``text`` is one complete SQL statement.

    :raises MergeConfigError: when it is not.
    """
    try:
        gateway.session.sessionState().sqlParser().parsePlan(text)
    except PySparkException as error:
        raise MergeConfigError(f"The source is not a SQL query: {first_line(error)}") from error


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
