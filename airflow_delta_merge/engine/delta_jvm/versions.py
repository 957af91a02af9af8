"""What differs between the versions of Spark and Delta that the engine runs on, and which those are.

Each function here is one difference, named for what it does; the rest of the engine is the same on all of them. What
was compared: the signatures in the jars, the sources of Delta's merge, and what the merges of ``make test-versions``
leave behind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyspark

try:
    from pyspark.sql.classic.column import Column as ClassicColumn
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
except ImportError:  # until Spark 4 there were no others
    from pyspark.sql import Column as ClassicColumn  # type: ignore[assignment]
    from pyspark.sql import DataFrame as ClassicDataFrame  # type: ignore[assignment]

from airflow_delta_merge.exceptions import MergeConfigError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame

    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway

#: Minor versions of Delta on which the engine was tried, by the minor version of Spark that they run on.
TRIED = {
    (3, 5): ((3, 3),),
    (4, 0): ((4, 0), (4, 4)),
    (4, 1): ((4, 1), (4, 2), (4, 3), (4, 4)),
    (4, 2): ((4, 4),),
}

#: For which Spark Delta was made while there was but one.
_SPARK_OF_DELTA = {(3, 2): (3, 5), (3, 3): (3, 5), (4, 0): (4, 0)}

#: Metrics of a merge that not every version has.
NOT_EVERYWHERE = ("operationNumSourceRows",)


@dataclass(frozen=True)
class Versions:
    """The versions that a session runs.

    :param spark: Spark's, in full.
    :param delta: Delta's, in full.
    """

    spark: str
    delta: str

    @cached_property
    def spark_minor(self) -> tuple[int, int]:
        return minor(self.spark)

    @cached_property
    def delta_minor(self) -> tuple[int, int]:
        return minor(self.delta)

    @property
    def are_tried(self) -> bool:
        """Whether the engine was tried on them."""
        return self.delta_minor in TRIED.get(self.spark_minor, ())


def require_tried(found: Versions) -> None:
    """Refuse versions whose internals nobody has looked at.

    :raises MergeConfigError: with what to do, when the engine was not tried on them.
    """
    if not found.are_tried:
        told = "; ".join(
            f"Spark {_told(spark)} with Delta {', '.join(map(_told, deltas))}" for spark, deltas in TRIED.items()
        )
        raise MergeConfigError(
            f"This is Spark {found.spark} with Delta {found.delta}, on which this package's own engine was not tried, "
            f'so it does nothing there. It runs on {told}. engine="builtin" lets Delta\'s own MERGE do it.'
        )


def require_fitting_jars(jvm: Any) -> None:
    """Refuse to start a session in which versions are mixed: it would end in a class or method that isn't there.

    :param jvm: the JVM, before there is a session.
    :raises MergeConfigError: when PySpark's Python or Delta's jar is for another Spark.
    """
    spark = str(getattr(jvm, "org.apache.spark.package$").__getattr__("MODULE$").SPARK_VERSION())
    if minor(pyspark.__version__) != minor(spark):
        raise MergeConfigError(
            f"The Python part of PySpark is {pyspark.__version__} in {pyspark.__path__[0]}, but Spark is {spark}. "
            "Where pip installed them, install pyspark and pyspark-client of one version, as both fill that folder; "
            "where SPARK_HOME names a Spark, let nothing put another pyspark on the Python path."
        )
    delta = getattr(jvm, "io.delta.package$")
    if type(delta).__name__ == "JavaPackage":  # Delta's jars may yet come with the session's packages
        return
    jar = str(delta._java_lang_class.getProtectionDomain().getCodeSource().getLocation().getPath()).rsplit("/", 1)[-1]
    made_for = _made_for(jar)
    if made_for is not None and made_for != minor(spark):
        raise MergeConfigError(
            f"Delta's jar {jar} is made for Spark {_told(made_for)}, but this is Spark {spark}. "
            f"`airflow-delta-merge jars --spark {_told(minor(spark))}` fetches the jars that fit; DeltaMergeHook ships "
            "those for the Spark of the worker's spark-submit, so let it be of the cluster's version."
        )


def _made_for(jar: str) -> tuple[int, int] | None:
    """The minor version of Spark for which a jar of Delta is made, by its name; None where it doesn't tell."""
    found = re.match(r"delta-spark(?:_(\d+\.\d+))?_2\.\d+-(.+)\.jar", jar)
    if found is None:
        return None
    return minor(found[1]) if found[1] else _SPARK_OF_DELTA.get(minor(found[2]))


def _told(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def minor(version: str) -> tuple[int, int]:
    """Major and minor number of a version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# --- Spark 4 has two kinds of sessions, frames and columns; those with a JVM are in packages of their own -------------


def session_class(gateway: Gateway) -> str:
    """The name of the JVM's class of sessions."""
    return _with_jvm(gateway, "SparkSession")


def column(gateway: Gateway, expression: Any) -> Column:
    """A resolved expression as a Column."""
    if gateway.versions.spark_minor < (4, 0):
        return python_column(gateway.java_class("org.apache.spark.sql.Column")(expression))
    return python_column(gateway.module(_with_jvm(gateway, "ExpressionUtils")).column(expression))


def python_column(java_column: Any) -> Column:
    """A column of the JVM as PySpark's."""
    return ClassicColumn(java_column)


def expression(gateway: Gateway, java_column: Any) -> Any:
    """The expression behind a column of the JVM."""
    if gateway.versions.spark_minor < (4, 0):
        return java_column.expr()
    return gateway.module(_with_jvm(gateway, "ExpressionUtils")).expression(java_column)


def data_frame(gateway: Gateway, plan: Any) -> DataFrame:
    """An analysed logical plan as a DataFrame."""
    return frame(gateway, gateway.module(_with_jvm(gateway, "Dataset")).ofRows(gateway.session, plan))


def frame(gateway: Gateway, java_frame: Any) -> DataFrame:
    """A DataFrame of the JVM as PySpark's."""
    return ClassicDataFrame(java_frame, gateway.spark)


def _with_jvm(gateway: Gateway, name: str) -> str:
    return f"org.apache.spark.sql.{'' if gateway.versions.spark_minor < (4, 0) else 'classic.'}{name}"


def condition_of(error: PySparkException) -> str | None:
    """The condition of an error, which Spark 3.5 calls its class."""
    get = getattr(error, "getCondition", None) or error.getErrorClass
    condition = get()
    return None if condition is None else str(condition)


# --- Scala 2.12, and what Spark 3.5 has no argument for ---------------------------------------------------------------


def concat(gateway: Gateway, first: Any, second: Any) -> Any:
    """One Scala sequence of two."""
    if gateway.versions.spark_minor < (4, 0):
        return getattr(second.toList(), "$colon$colon$colon")(first.toList())
    return first.concat(second)


def add_to_buffer(gateway: Gateway, buffer: Any, item: Any) -> None:
    """Append to a Scala buffer."""
    getattr(buffer, "$plus$eq" if gateway.versions.spark_minor < (4, 0) else "addOne")(item)


def some_long(gateway: Gateway, number: int) -> Any:
    """A Scala ``Some[Long]``; py4j by itself makes small numbers Integers."""
    if gateway.versions.spark_minor < (4, 0):
        boxed = gateway.java_class("java.util.stream.LongStream").of(number).boxed().toArray()
        return gateway.java_class("scala.Some")._java_lang_class.getConstructors()[0].newInstance(boxed)
    optional = gateway.java_class("java.util.OptionalLong").of(number)
    return gateway.java_class("scala.jdk.javaapi.OptionConverters").toScala(optional)


def checkpoint(gateway: Gateway, java_frame: Any, storage_level: str) -> Any:
    """Compute a frame of the JVM and keep its rows; Spark 3.5 keeps them in memory and on disk, whatever is asked."""
    if gateway.versions.spark_minor < (4, 0):
        return java_frame.localCheckpoint(True)
    level = gateway.java_class("org.apache.spark.storage.StorageLevel").fromString(storage_level)
    return java_frame.localCheckpoint(True, level)


def scalar_subquery(gateway: Gateway, java_frame: Any) -> Any:
    """The one value of a frame of the JVM as an expression; Spark 3.5 has no call for it."""
    if gateway.versions.spark_minor >= (4, 0):
        return expression(gateway, java_frame.scalar())
    expressions = "org.apache.spark.sql.catalyst.expressions"
    plan, nothing = java_frame.queryExecution().analyzed(), gateway.seq([])
    number = gateway.module(f"{expressions}.NamedExpression").newExprId()
    arguments = (plan, nothing, number, nothing, gateway.none, gateway.none)
    return gateway.java_class(f"{expressions}.ScalarSubquery")(*arguments)


def with_relation(gateway: Gateway, plan: Any, relation: Any) -> Any:
    """A ``LogicalRelation`` with another relation; from Spark 4.0 on it has a stream, too."""
    stream = [] if gateway.versions.spark_minor < (4, 0) else [getattr(plan, "copy$default$5")()]
    return plan.copy(relation, plan.output(), plan.catalogTable(), plan.isStreaming(), *stream)


def of_execution(gateway: Gateway, execution: Any, arguments: Sequence[Any], *, begins: bool) -> list[Any]:
    """Arguments of the events that begin and end an execution: since Spark 4.0 with the group of its jobs when it
    begins, of which there is none here, since 4.2 with the query's id.

    :param execution: the JVM's ``QueryExecution``.
    """
    spark, further = gateway.versions.spark_minor, []
    if begins and spark >= (4, 0):
        further.append(gateway.none)
    if spark >= (4, 2):
        further.append(gateway.some(execution.queryId()))
    return [*arguments, *further]


# --- Delta ------------------------------------------------------------------------------------------------------------


def refuses_void_columns(gateway: Gateway) -> bool:
    """Whether a merge that would add a column without a type is refused: always, until Delta 4.4 made it a setting."""
    if gateway.versions.delta_minor < (4, 4):
        return True
    return gateway.flag("spark.databricks.delta.createDataFrame.dropNullColumns")


def ensure_type_widening_unchanged(gateway: Gateway, analysed: Any, transaction: Any) -> None:
    """Check that the table's type widening is as it was analysed; Delta 4.4 names the table in its error.

    :param analysed: the JVM's file index of the analysed target.
    """
    arguments = [analysed.protocol(), analysed.metadata(), transaction.protocol(), transaction.metadata()]
    if gateway.versions.delta_minor >= (4, 4):
        arguments.append(transaction.tableNameOrPath())
    gateway.delta("TypeWidening").ensureFeatureConsistentlyEnabled(*arguments)


def actions_for_marked_files(gateway: Gateway, touched: Any, transaction: Any) -> Any:
    """Delta's actions for files that got deletion vectors; from 4.1 on it is told how long texts in statistics are."""
    arguments = [gateway.session, touched, transaction.snapshot()]
    if gateway.versions.delta_minor >= (4, 1):
        statistics = gateway.delta("stats.StatsCollectionUtils")
        arguments.append(statistics.getDataSkippingStringPrefixLength(gateway.session, transaction.metadata()))
    return gateway.delta("commands.DMLWithDeletionVectorsHelper").processUnmodifiedData(*arguments)


def tracking_column_metadata(gateway: Gateway, kind: str, name: str, transaction: Any) -> Any:
    """Metadata that marks a row tracking column for the writer; from Delta 4.1 on with field ids for Iceberg.

    :param kind: ``RowId`` or ``RowCommitVersion``.
    """
    if gateway.versions.delta_minor < (4, 1):
        return gateway.delta(kind).columnMetadata(name)
    field_ids = gateway.delta("IcebergCompat").isGeqEnabled(transaction.metadata(), 3)
    return gateway.delta(kind).columnMetadata(name, field_ids)


def history(gateway: Gateway, transaction: Any, start: int, end: int) -> Any:
    """Delta's commits from one version to another, newest first; since 4.0 it is told the catalog's table."""
    table = [] if gateway.versions.delta_minor < (4, 0) else [transaction.catalogTable()]
    return transaction.deltaLog().history().getHistory(start, some_long(gateway, end), *table)


def with_protocol(gateway: Gateway, file_format: Any, protocol: Any) -> Any:
    """Delta's file format for another protocol; since 4.0 it has two flags for row tracking in place of one."""
    if gateway.versions.delta_minor < (4, 0):
        nullable = [file_format.nullableRowTrackingFields()]
    else:
        nullable = [file_format.nullableRowTrackingConstantFields(), file_format.nullableRowTrackingGeneratedFields()]
    return file_format.copy(
        protocol,
        file_format.metadata(),
        *nullable,
        file_format.optimizationsEnabled(),
        file_format.tablePath(),
        file_format.isCDCRead(),
    )


def validate_num_records(gateway: Gateway, command: Any, actions: Any, records: Any, operation: Any, log: Any) -> None:
    """Delta's check, since 4.0, that a merge without inserts adds no rows, and one without deletes loses none."""
    if gateway.versions.delta_minor >= (4, 0):
        command.validateNumRecords(actions, records, operation, log)


def set_num_source_rows(gateway: Gateway, command: Any) -> None:
    """Let Delta's own merge say how many rows the source had: a metric that it has since 4.0."""
    if gateway.versions.delta_minor >= (4, 0):
        command.setOperationNumSourceRowsMetric()
