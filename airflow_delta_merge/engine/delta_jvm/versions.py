"""The supported versions of Spark and Delta, and the differences between them.

Each function here is one difference, named for what it does; the rest of the engine is the same for all versions. The
versions were compared by the signatures in the jars, the sources of Delta's merge, and the results of the merges in
``make test-versions``.
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
except ImportError:  # before Spark 4 all classes were classic
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

#: The Spark version for which each Delta was built, before Delta supported several.
_SPARK_OF_DELTA = {(3, 2): (3, 5), (3, 3): (3, 5), (4, 0): (4, 0)}

#: Metrics of a merge that some versions lack.
NOT_EVERYWHERE = ("operationNumSourceRows",)


@dataclass(frozen=True)
class Versions:
    """The versions of a session.

    :param spark: Spark's full version.
    :param delta: Delta's full version.
    """

    spark: str
    delta: str

    def __str__(self) -> str:
        return f"Spark {self.spark} with Delta {self.delta}"

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
    """Refuse versions with unknown internals.

    :raises MergeConfigError: when the engine was not tested on them; the message says what to do.
    """
    if not found.are_tried:
        supported = "; ".join(
            f"Spark {_short(spark)} with Delta {', '.join(map(_short, deltas))}" for spark, deltas in TRIED.items()
        )
        raise MergeConfigError(
            f"This package's own engine does not support {found}. It supports {supported}. "
            'Use one of these, or set engine="builtin" to run Delta\'s own MERGE.'
        )


def require_fitting_jars(jvm: Any) -> None:
    """Refuse to start a session with mixed versions, which would fail on a missing class or method.

    :param jvm: the JVM, before a session is started.
    :raises MergeConfigError: when PySpark's Python part or Delta's jar is for another Spark.
    """
    spark = str(getattr(jvm, "org.apache.spark.package$").__getattr__("MODULE$").SPARK_VERSION())
    if minor(pyspark.__version__) != minor(spark):
        raise MergeConfigError(
            f"The Python part of PySpark is {pyspark.__version__} in {pyspark.__path__[0]}, but Spark is {spark}. "
            "If pip installed both, install pyspark and pyspark-client in the same version, since they share that "
            "folder. If SPARK_HOME is set, remove any other pyspark from the Python path."
        )
    delta = getattr(jvm, "io.delta.package$")
    if type(delta).__name__ == "JavaPackage":  # the session's packages may still add Delta's jars
        return
    jar = str(delta._java_lang_class.getProtectionDomain().getCodeSource().getLocation().getPath()).rsplit("/", 1)[-1]
    made_for = _made_for(jar)
    if made_for is not None and made_for != minor(spark):
        raise MergeConfigError(
            f"Delta's jar {jar} is built for Spark {_short(made_for)}, but this is Spark {spark}. "
            f"`airflow-delta-merge jars --spark {_short(minor(spark))}` downloads the right jars. DeltaMergeHook ships "
            "the jars for the worker's spark-submit, so install the cluster's version of Spark there."
        )


def _made_for(jar: str) -> tuple[int, int] | None:
    """The minor version of Spark for which a Delta jar is built, by the jar's name; None if unknown."""
    found = re.match(r"delta-spark(?:_(\d+\.\d+))?_2\.\d+-(.+)\.jar", jar)
    if found is None:
        return None
    return minor(found[1]) if found[1] else _SPARK_OF_DELTA.get(minor(found[2]))


def _short(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def minor(version: str) -> tuple[int, int]:
    """Major and minor number of a version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# --- Spark 4 has two kinds of sessions, frames and columns; the classic ones have their own packages ------------------


def session_class(gateway: Gateway) -> str:
    """The name of the JVM's session class."""
    return _with_jvm(gateway, "SparkSession")


def column(gateway: Gateway, expression: Any) -> Column:
    """A resolved expression as a Column."""
    if gateway.versions.spark_minor < (4, 0):
        return ClassicColumn(gateway.java_class("org.apache.spark.sql.Column")(expression))
    return ClassicColumn(gateway.module(_with_jvm(gateway, "ExpressionUtils")).column(expression))


def expression(gateway: Gateway, java_column: Any) -> Any:
    """The expression behind a JVM column."""
    if gateway.versions.spark_minor < (4, 0):
        return java_column.expr()
    return gateway.module(_with_jvm(gateway, "ExpressionUtils")).expression(java_column)


def data_frame(gateway: Gateway, plan: Any) -> DataFrame:
    """An analysed logical plan as a DataFrame."""
    return frame(gateway, gateway.module(_with_jvm(gateway, "Dataset")).ofRows(gateway.session, plan))


def frame(gateway: Gateway, java_frame: Any) -> DataFrame:
    """A JVM DataFrame as PySpark's."""
    return ClassicDataFrame(java_frame, gateway.spark)


def _with_jvm(gateway: Gateway, name: str) -> str:
    return f"org.apache.spark.sql.{'' if gateway.versions.spark_minor < (4, 0) else 'classic.'}{name}"


def knows_star_except(gateway: Gateway) -> bool:
    """Whether SQL has ``SELECT * EXCEPT (…)``."""
    return gateway.versions.spark_minor >= (4, 0)


def condition_of(error: PySparkException) -> str | None:
    """The condition of an error, which Spark 3.5 calls its class."""
    get = getattr(error, "getCondition", None) or error.getErrorClass
    condition = get()
    return None if condition is None else str(condition)


# --- Scala 2.12, and arguments that Spark 3.5 lacks -------------------------------------------------------------------


def some_long(gateway: Gateway, number: int) -> Any:
    """A Scala ``Some[Long]``; py4j alone would convert small numbers to Integers."""
    if gateway.versions.spark_minor < (4, 0):
        boxed = gateway.java_class("java.util.stream.LongStream").of(number).boxed().toArray()
        return gateway.java_class("scala.Some")._java_lang_class.getConstructors()[0].newInstance(boxed)
    optional = gateway.java_class("java.util.OptionalLong").of(number)
    return gateway.java_class("scala.jdk.javaapi.OptionConverters").toScala(optional)


def checkpoint(gateway: Gateway, java_frame: Any, storage_level: str) -> Any:
    """Compute a JVM frame and keep its rows. Spark 3.5 ignores the storage level and uses memory and disk."""
    if gateway.versions.spark_minor < (4, 0):
        return java_frame.localCheckpoint(True)
    level = gateway.java_class("org.apache.spark.storage.StorageLevel").fromString(storage_level)
    return java_frame.localCheckpoint(True, level)


def scalar_subquery(gateway: Gateway, java_frame: Any) -> Any:
    """The single value of a JVM frame as an expression; Spark 3.5 has no method for it."""
    if gateway.versions.spark_minor >= (4, 0):
        return expression(gateway, java_frame.scalar())
    expressions = "org.apache.spark.sql.catalyst.expressions"
    plan, nothing = java_frame.queryExecution().analyzed(), gateway.seq([])
    number = gateway.module(f"{expressions}.NamedExpression").newExprId()
    arguments = (plan, nothing, number, nothing, gateway.none, gateway.none)
    return gateway.java_class(f"{expressions}.ScalarSubquery")(*arguments)


def with_relation(gateway: Gateway, plan: Any, relation: Any) -> Any:
    """A ``LogicalRelation`` with another relation. Since Spark 4.0 it also has a stream."""
    stream = [] if gateway.versions.spark_minor < (4, 0) else [getattr(plan, "copy$default$5")()]
    return plan.copy(relation, plan.output(), plan.catalogTable(), plan.isStreaming(), *stream)


def of_execution(gateway: Gateway, execution: Any, arguments: Sequence[Any], *, begins: bool) -> list[Any]:
    """Arguments of the events that begin and end an execution. Since Spark 4.0 the first event has a job group (none
    here), since 4.2 both have the query's id.

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
    """Whether to refuse a merge that would add an untyped column: always before Delta 4.4, which has a setting."""
    if gateway.versions.delta_minor < (4, 4):
        return True
    return gateway.flag("spark.databricks.delta.createDataFrame.dropNullColumns")


def ensure_type_widening_unchanged(gateway: Gateway, analysed: Any, transaction: Any) -> None:
    """Check that the table's type widening hasn't changed since analysis. Delta 4.4 names the table in its error.

    :param analysed: the JVM's file index of the analysed target.
    """
    arguments = [analysed.protocol(), analysed.metadata(), transaction.protocol(), transaction.metadata()]
    if gateway.versions.delta_minor >= (4, 4):
        arguments.append(transaction.tableNameOrPath())
    gateway.delta("TypeWidening").ensureFeatureConsistentlyEnabled(*arguments)


def actions_for_marked_files(gateway: Gateway, touched: Any, transaction: Any) -> Any:
    """Delta's actions for files with new deletion vectors. Since 4.1 it takes the prefix length of texts."""
    arguments = [gateway.session, touched, transaction.snapshot()]
    if gateway.versions.delta_minor >= (4, 1):
        statistics = gateway.delta("stats.StatsCollectionUtils")
        arguments.append(statistics.getDataSkippingStringPrefixLength(gateway.session, transaction.metadata()))
    return gateway.delta("commands.DMLWithDeletionVectorsHelper").processUnmodifiedData(*arguments)


def tracking_column_metadata(gateway: Gateway, kind: str, name: str, transaction: Any) -> Any:
    """Metadata that marks a row tracking column for the writer. Since Delta 4.1 it includes field ids for Iceberg.

    :param kind: ``RowId`` or ``RowCommitVersion``.
    """
    if gateway.versions.delta_minor < (4, 1):
        return gateway.delta(kind).columnMetadata(name)
    field_ids = gateway.delta("IcebergCompat").isGeqEnabled(transaction.metadata(), 3)
    return gateway.delta(kind).columnMetadata(name, field_ids)


def history(gateway: Gateway, transaction: Any, start: int, end: int) -> Any:
    """Delta's commits from one version to another, newest first. Since 4.0 it takes the catalog's table."""
    table = [] if gateway.versions.delta_minor < (4, 0) else [transaction.catalogTable()]
    return transaction.deltaLog().history().getHistory(start, some_long(gateway, end), *table)


def with_protocol(gateway: Gateway, file_format: Any, protocol: Any) -> Any:
    """Delta's file format with another protocol. Since 4.0 it has two flags for row tracking instead of one."""
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
    """Delta's check (since 4.0) that a merge without inserts adds no rows and one without deletes removes none."""
    if gateway.versions.delta_minor >= (4, 0):
        command.validateNumRecords(actions, records, operation, log)


def set_num_source_rows(gateway: Gateway, command: Any) -> None:
    """Make Delta's own merge set the number of source rows, a metric since 4.0."""
    if gateway.versions.delta_minor >= (4, 0):
        command.setOperationNumSourceRowsMetric()
