"""The rows of a database, read over JDBC as the worker's private properties say.

They may differ at each read, so a merge reads them once, as it does all sources
(:mod:`airflow_delta_merge.engine.source.materialized`). Each of several parts is a query in a transaction of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

from airflow_delta_merge.config.jdbc_access import JdbcAccess
from airflow_delta_merge.config.jdbc_source import DEFAULT_FETCH_SIZE, JdbcSource
from airflow_delta_merge.engine.delta_jvm.errors import SPARK_ERRORS, call, causes_of, throwable_behind
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, class_name_of
from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError
from airflow_delta_merge.identifiers import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.types import StructField

# What databases mean, by the SQLSTATE and by the numbers of those that give none of use (SQL Server, Oracle, MySQL).
_LOGIN_NUMBERS = (18456, 1017, 1045)
_MISSING_STATES, _MISSING_NUMBERS = ("42P01", "42S02", "S0002"), (208, 942, 1146)
_AWAY_NUMBERS = (17002, 12514, 12541)


@contextmanager
def jdbc_rows(gateway: Gateway, source: JdbcSource) -> Iterator[DataFrame]:
    """The rows of a database, of which only the columns were asked for yet.

    :raises MergeConfigError: when the driver is missing, or the source can't be divided as it says.
    :raises MergeExecutionError: when the database refuses; also for reading the rows inside.
    """
    access = _access(gateway, source.conn_id)
    try:
        yield _rows(gateway, source, access)
    except (MergeExecutionError, *SPARK_ERRORS) as error:
        if (safe_error := _error(error, source, access)) is not None:
            raise safe_error from None  # what Spark and the driver say may hold secrets
        raise


def _access(gateway: Gateway, conn_id: str) -> JdbcAccess:
    name = JdbcAccess.property_of(conn_id)
    text = gateway.conf_if_set(name)
    if text is None:
        raise MergeConfigError(f"Spark does not know the connection {conn_id!r}. Set its property {name}.")
    return JdbcAccess.from_json(text)


def _rows(gateway: Gateway, source: JdbcSource, access: JdbcAccess) -> DataFrame:
    reader = gateway.spark.read.format("jdbc").options(**dict(source.options)).options(**access.reader_options())
    reader = reader.option("fetchsize", str(source.fetch_size or DEFAULT_FETCH_SIZE))
    rows = reader.option("dbtable", source.relation).load()
    if source.partition_column is None:
        return rows
    column = _partition_column(rows, source.partition_column)
    bounds = _given_bounds(source, column) or _bounds_of_rows(gateway, reader, source, access, column)
    if bounds is None:  # no rows, or none with a value there
        return rows
    parts = {
        "partitionColumn": column.name,
        "lowerBound": bounds[0],
        "upperBound": bounds[1],
        "numPartitions": str(source.num_partitions),
    }
    return reader.option("dbtable", source.relation).options(**parts).load()


def _partition_column(rows: DataFrame, name: str) -> StructField:
    found = [field for field in rows.schema if field.name.lower() == name.lower()]
    if not found:
        raise MergeConfigError(
            f"partition_column is {name!r}, which the source does not have. Choose one of {', '.join(rows.columns)}."
        )
    kinds = (NumericType, DateType, TimestampType, TimestampNTZType)
    if not isinstance(found[0].dataType, kinds):
        raise MergeConfigError(
            f"partition_column {name!r} has the type {found[0].dataType.simpleString()}. Choose a column of numbers, "
            "dates or timestamps."
        )
    return found[0]


def _given_bounds(source: JdbcSource, column: StructField) -> tuple[str, str] | None:
    bounds = source.lower_bound, source.upper_bound
    if None in bounds:
        return None
    if isinstance(column.dataType, NumericType) != all(isinstance(bound, int) for bound in bounds):
        raise MergeConfigError(
            f"lower_bound {bounds[0]!r} and upper_bound {bounds[1]!r} don't have the type of {column.name} "
            f"({column.dataType.simpleString()}). Correct them, or remove both."
        )
    return str(bounds[0]), str(bounds[1])


def _bounds_of_rows(
    gateway: Gateway, reader: DataFrameReader, source: JdbcSource, access: JdbcAccess, column: StructField
) -> tuple[str, str] | None:
    """The column's least and greatest value, by which the rows are only divided: new ones beyond are read, too."""
    dialect = gateway.module("org.apache.spark.sql.jdbc.JdbcDialects").get(access.url)
    name = dialect.quoteIdentifier(column.name)
    query = f"(SELECT MIN({name}) AS lo, MAX({name}) AS hi FROM {source.relation}) bounds_of_rows"  # noqa: S608  theirs
    found = reader.option("dbtable", query).load()
    texts = [quote_identifier(name) for name in found.columns]
    if isinstance(column.dataType, NumericType):  # Spark takes whole numbers only
        texts = [f"try_cast({way}({text}) AS BIGINT)" for way, text in zip(("floor", "ceil"), texts, strict=True)]
    low, high = found.select(*[F.expr(text).cast("string") for text in texts]).collect()[0]
    return None if low is None or high is None else (low, high)


def _error(error: BaseException, source: JdbcSource, access: JdbcAccess) -> Exception | None:
    """What the database or its driver has to say, in a sentence; None for an error that comes from elsewhere."""
    causes = causes_of(throwable_behind(error))
    database = f"The database of the connection {source.conn_id!r}"
    if any(_is_missing(cause, access) for cause in causes):
        return MergeConfigError(_no_driver(source.conn_id, access))
    found = [cause for cause in causes if _is_of_driver(cause, access)]
    if not found:
        return None
    cause = found[-1]
    state, number = str(call(cause, "getSQLState") or ""), call(cause, "getErrorCode")
    said = access.hidden_in(_message(cause))
    if state[:2] == "28" or number in _LOGIN_NUMBERS:
        return MergeExecutionError(f"{database} refused the login: {said} Check login and password.", sql_state="28000")
    if state in _MISSING_STATES or number in _MISSING_NUMBERS:
        return MergeExecutionError(
            f"{database} has no such table: {said} Check the name and its schema, and that the login may read it.",
            sql_state="42P01",
        )
    if state[:2] == "08" or number in _AWAY_NUMBERS:
        return MergeExecutionError(
            f"{database} can't be reached: {said} Check host and port, and that the machines where Spark runs reach "
            "them.",
            sql_state="08001",
        )
    return MergeExecutionError(f"{database} reported an error: {said}", sql_state=state or None)


def _is_missing(cause: Any, access: JdbcAccess) -> bool:
    """Whether Java has no class of the driver; other classes may be missing, too, as a file system's."""
    name = class_name_of(cause)
    if name == "ClassNotFoundException":
        return access.driver is not None and access.driver in _message(cause)
    return name == "SQLException" and "No suitable driver" in _message(cause)


def _no_driver(conn_id: str, access: JdbcAccess) -> str:
    jar = f" ({access.package} at Maven Central)" if access.package else ""
    return (
        f"The connection {conn_id!r} needs the JDBC driver {access.driver or 'for its URL'}, which Spark lacks. "
        f"Add its jar{jar} to jars or packages of the operator, or to jars of the Spark connection."
    )


def _is_of_driver(cause: Any, access: JdbcAccess) -> bool:
    """Whether a driver of databases has raised this; Delta's metastore may be in one, too, by another driver."""
    name = str(cause.getClass().getName())
    if call(cause, "getSQLState") is None and not name.startswith("java.sql."):
        return False
    vendor = ".".join((access.driver or "").split(".")[:2])
    return name.startswith(("java.sql.", vendor))


def _message(cause: Any) -> str:
    lines = str(cause.getMessage() or cause.getClass().getName()).strip().splitlines()
    text = re.sub(r"\s+", " ", lines[0]) if lines else ""
    return text if text.endswith(".") else f"{text}."
