"""What differs between versions of Spark and Delta.

Each function is one difference, named for what it does; those of sessions, frames and columns are in
:mod:`~airflow_delta_merge.engine.delta_jvm.gateway`. The rest of the engine is the same for all versions. The versions
were compared by the signatures in the jars, the sources of Delta's merge, and the results of the merges in ``make
test-versions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway


# --- Spark ------------------------------------------------------------------------------------------------------------


def knows_star_except(gateway: Gateway) -> bool:
    """Whether SQL has ``SELECT * EXCEPT (…)``."""
    return gateway.versions.spark_minor >= (4, 0)


def some_long(gateway: Gateway, number: int) -> Any:
    """A Scala ``Some[Long]``; py4j alone would convert small numbers to Integers."""
    if gateway.versions.spark_minor < (4, 0):
        boxed = gateway.java_class("java.util.stream.LongStream").of(number).boxed().toArray()
        return gateway.java_class("scala.Some")._java_lang_class.getConstructors()[0].newInstance(boxed)
    optional = gateway.java_class("java.util.OptionalLong").of(number)
    return gateway.java_class("scala.jdk.javaapi.OptionConverters").toScala(optional)


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
