"""Reads data files of the target, with positions and tracking columns of their rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.gateway import (
    Gateway,
    JavaObject,
    class_name_of,
    jdf,
    scala_list,
    scala_option,
)
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.column_names import ColumnNames

_MOST_BYTES_PER_TASK = "spark.sql.files.maxPartitionBytes"
_PUSH_DOWN = "spark.sql.parquet.filterPushdown"
#: Spark's function that pads CHAR when it is read.
_PADDING = "readSidePadding"
_NESTED = ("StructType", "ArrayType", "MapType")


def bytes_per_task(num_bytes: int, num_files: int, *, most_tasks: int, open_cost: int) -> int:
    """The size of a task, as Spark counts it, from which on it reads the files in no more tasks than these.

    Spark (``FilePartition``) adds files to a task, each with the cost of opening it, until the next file would exceed
    the size. This function assumes files of equal size.

    :param num_bytes: size of the files.
    :param num_files: number of files.
    :param most_tasks: maximum number of tasks.
    :param open_cost: Spark's ``spark.sql.files.openCostInBytes``.
    """
    length = num_bytes / num_files
    files_of_task = math.ceil(num_files / most_tasks)
    return round((files_of_task - 0.5) * (length + open_cost) + length)  # half a file of slack on both sides


@dataclass(frozen=True)
class FileSet:
    """Data files of the table, as a JVM sequence of ``AddFile``, with their totals.

    :param files: the JVM sequence.
    :param count: number of files.
    :param num_bytes: their size.
    :param partitions: number of distinct partition values; 0 for an unpartitioned table.
    :param num_rows: number of logical rows; None if a file has no statistics.
    """

    files: JavaObject
    count: int
    num_bytes: int
    partitions: int
    num_rows: int | None


@dataclass(frozen=True)
class TrackingColumn:
    """A row tracking column.

    :param name: its physical name.
    :param column: its value for a row of the target.
    :param changes_with_row: whether an update clears it (the commit version) or keeps it (the row id).
    :param metadata: JVM metadata that marks it for the writer.
    """

    name: str
    column: Column
    changes_with_row: bool
    metadata: JavaObject


class TargetScan:
    """Reads files of the target as the transaction sees it.

    :param statement: the merge; the rows get the attributes that its expressions refer to.
    :param transaction: the JVM's ``OptimisticTransaction``.
    """

    def __init__(self, gateway: Gateway, statement: ResolvedMerge, transaction: JavaObject) -> None:
        self._gateway = gateway
        self._command = statement.command
        self._transaction = transaction

    def refuse_views_of_other_columns(self) -> None:
        """Refuse a view that renames, reorders or computes columns: rows that stay would be written as it shows them.

        :raises MergeExecutionError: with the condition by which Delta's own merge fails on most of them.
        """
        rules = "org.apache.spark.sql.catalyst"
        plan = self._gateway.module(f"{rules}.analysis.EliminateSubqueryAliases").apply(self._command.target())
        if class_name_of(plan) == "LogicalRelation":  # the table itself
            return
        plan = self._gateway.module(f"{rules}.optimizer.CollapseProject").apply(plan)
        is_view = class_name_of(plan) == "Project" and class_name_of(plan.child()) == "LogicalRelation"
        if is_view and all(map(_is_as_stored, scala_list(plan.projectList()), scala_list(plan.child().output()))):
            return
        raise MergeExecutionError(
            "The target is a view that renames, reorders or computes columns. MERGE needs a Delta table, or a view "
            "that is a plain SELECT * of one.",
            condition="MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
            sql_state="0A000",
        )

    @cached_property
    def tracks_rows(self) -> bool:
        """Whether the table has stable row ids."""
        snapshot = self._transaction.snapshot()
        return bool(self._gateway.delta("RowTracking").isEnabled(snapshot.protocol(), snapshot.metadata()))

    @cached_property
    def has_stable_positions(self) -> bool:
        """Whether Spark can read a row's position, the same in each read. A column named ``_metadata`` hides it."""
        names = self._gateway.as_json(self._command.target().schema().fieldNames())
        return "_metadata" not in map(str.lower, names)

    def frame(self, files: FileSet, *, most_tasks: int | None = None, reads_all_rows: bool = False) -> DataFrame:
        """The target restricted to ``files``, with the attributes that the statement's expressions refer to.

        :param most_tasks: maximum number of tasks that read them; None for Spark's own number.
        :param reads_all_rows: whether to turn off Parquet filter pushdown, so that footer statistics skip no rows. In
            an inner or anti join Spark pushes down the target's part of the condition and the source's constants, even
            those of a source that is kept. It compares them with Parquet's raw values: wrong for texts that are not
            UTF-8, for -0.0, and for the statistics of some writers.
        """
        utils = self._gateway.delta("DeltaTableUtils")
        plan = self._plan(files, most_tasks=most_tasks, with_row_index=False, reads_all_rows=reads_all_rows)
        return self._gateway.data_frame(utils.replaceFileIndex(plan, self._file_index(files)))

    def frame_with_positions(
        self, files: FileSet, names: ColumnNames, *, indexed: bool, where: Sequence[Column], most_tasks: int | None
    ) -> DataFrame:
        """:meth:`frame` plus columns: the file's path (URI, as Spark encodes it), the row's index in it and a number.

        The number is ``monotonically_increasing_id``, unique in this read. The index is the same in each read.

        Tables without deletion vectors hide the row index, so the relation gets a file format whose protocol
        supports deletion vectors; that only makes the column visible.

        Unlike the index, the path isn't read from the relation's metadata struct: with two fields in use, Spark builds
        the struct for every row; with one, it reads the field directly.

        :param names: the names of these columns.
        :param indexed: whether to read the index, which costs the reader time. If not, or without
            :attr:`has_stable_positions`, it is NULL.
        :param where: predicates that the rows must fulfil.
        :param most_tasks: see :meth:`frame`.
        """
        path, number = F.input_file_name(), F.monotonically_increasing_id()
        added = [path.alias(names.file_path), number.alias(names.row_number)]
        if not indexed or not self.has_stable_positions:
            frame = _filtered(self.frame(files, most_tasks=most_tasks), where)
            return frame.select("*", *added, F.lit(None).cast("bigint").alias(names.row_index))
        helper = self._gateway.delta("commands.DMLWithDeletionVectorsHelper")
        plan = self._plan(files, most_tasks=most_tasks, with_row_index=True)
        scan = helper.createTargetDfForScanningForMatches(self._gateway.session, plan, self._file_index(files))
        # The relation's own metadata struct comes last, even if a user column is named `_metadata`.
        metadata = self._gateway.column(scan.queryExecution().analyzed().output().last())
        index = metadata.getField("row_index").alias(names.row_index)
        return _filtered(self._gateway.wrap(scan), where).select("*", *added, index)

    def _file_index(self, files: FileSet) -> JavaObject:
        return self._gateway.java_class("org.apache.spark.sql.delta.files.TahoeBatchFileIndex")(
            self._gateway.session,
            "batch",
            files.files,
            self._transaction.deltaLog(),
            self._command.targetFileIndex().path(),
            self._transaction.snapshot(),
            False,
        )

    def _plan(
        self, files: FileSet, *, most_tasks: int | None, with_row_index: bool, reads_all_rows: bool = False
    ) -> JavaObject:
        """The target's plan, with a relation that is configured to read ``files``.

        Spark reads settings from the relation's session when the frame is executed, so each frame gets its own session.
        """
        plan, settings = self._command.target(), self._settings_to_read(files, most_tasks)
        if reads_all_rows:
            settings[_PUSH_DOWN] = "false"
        session = self._gateway.session_with(settings) if settings else None
        if session is None and not with_row_index:
            return plan
        return self._with_relation(plan, session=session, with_row_index=with_row_index)

    def _settings_to_read(self, files: FileSet, most_tasks: int | None) -> dict[str, str]:
        """Settings that make Spark read in no more tasks than these; empty if it does so anyway.

        ``coalesce`` would also reduce the tasks, but splits Spark's generated code in two, so that each row, including
        its file's path, is materialized in between.
        """
        if most_tasks is None or files.count <= most_tasks:
            return {}
        open_cost = int(self._gateway.sql_conf.filesOpenCostInBytes())
        per_task = bytes_per_task(files.num_bytes, files.count, most_tasks=most_tasks, open_cost=open_cost)
        most_bytes = int(self._gateway.sql_conf.filesMaxPartitionBytes())
        return {_MOST_BYTES_PER_TASK: str(per_task)} if per_task > most_bytes else {}

    def _with_relation(self, plan: JavaObject, *, session: JavaObject | None, with_row_index: bool) -> JavaObject:
        name = class_name_of(plan)
        if name == "Project":
            project = self._gateway.java_class("org.apache.spark.sql.catalyst.plans.logical.Project")
            child = self._with_relation(plan.child(), session=session, with_row_index=with_row_index)
            return project(plan.projectList(), child)
        if name != "LogicalRelation":  # an alias or a view: names, no attributes of its own
            return self._with_relation(plan.child(), session=session, with_row_index=with_row_index)
        relation = plan.relation()
        file_format = relation.fileFormat()
        # Uses the constructor: Delta's file formats compare as equal despite different protocols, so Spark's own plan
        # transformations would keep the old one.
        changed = self._gateway.java_class("org.apache.spark.sql.execution.datasources.HadoopFsRelation")(
            relation.location(),
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            self._row_index_format(file_format) if with_row_index else file_format,
            relation.options(),
            session or relation.sparkSession(),
        )
        return by_version.with_relation(self._gateway, plan, changed)

    def _row_index_format(self, file_format: JavaObject) -> JavaObject:
        feature = self._gateway.delta("DeletionVectorsTableFeature")
        supporting = self._gateway.delta("actions.Protocol").forTableFeature(feature)
        protocol = file_format.protocol().merge(self._gateway.seq([supporting]))
        return by_version.with_protocol(self._gateway, file_format, protocol)

    def with_row_tracking(self, frame: DataFrame) -> tuple[DataFrame, list[TrackingColumn]]:
        """Rows of the target with their stable row ids and commit versions, if the table tracks them.

        :return: the frame with up to two more columns, and these columns.
        """
        if not self.tracks_rows:
            return frame, []
        snapshot = self._transaction.snapshot()
        preserved = self._gateway.delta("RowTracking").preserveRowTrackingColumns(jdf(frame), snapshot)
        columns = []
        for kind in ("RowId", "RowCommitVersion"):
            attribute = scala_option(self._gateway.delta(f"Materialized{kind}").getAttribute(snapshot, preserved))
            if attribute is not None:
                name = str(attribute.name())
                metadata = by_version.tracking_column_metadata(self._gateway, kind, name, self._transaction)
                column = self._gateway.column(attribute)
                columns.append(TrackingColumn(name, column, kind == "RowCommitVersion", metadata))
        return self._gateway.wrap(preserved), columns

    def marked_as_tracking(self, rows: DataFrame, tracking: Iterable[TrackingColumn]) -> DataFrame:
        """The rows, with the metadata that marks these columns as row tracking columns for Delta."""
        for column in tracking:
            rows = self._gateway.wrap(jdf(rows).withMetadata(column.name, column.metadata))
        return rows


def _is_as_stored(column: JavaObject, stored: JavaObject) -> bool:
    """Whether a column of a projection is the table's own one, whose CHAR Spark may pad."""
    value = column
    while class_name_of(value) in ("Alias", "Cast"):  # a view casts each column to the type that it has
        value = value.child()
    if class_name_of(value) == "StaticInvoke" and str(value.functionName()) == _PADDING:
        value = value.arguments().head()
    is_stored = value.semanticEquals(stored) and column.dataType().equals(stored.dataType())
    # CHAR inside a struct, an array or a map is padded by an expression that builds the whole anew.
    is_padded_inside = class_name_of(stored.dataType()) in _NESTED and f"{_PADDING}(" in str(value.toString())
    return column.name() == stored.name() and bool(is_stored or is_padded_inside)


def _filtered(frame: DataFrame, predicates: Iterable[Column]) -> DataFrame:
    for predicate in predicates:
        frame = frame.filter(predicate)
    return frame
