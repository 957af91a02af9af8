"""Reading data files of the target, with positions and tracking columns of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import versions
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, jdf
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.engine.even_tasks import split_bytes

_MOST_BYTES_PER_TASK = "spark.sql.files.maxPartitionBytes"
_PUSH_DOWN = "spark.sql.parquet.filterPushdown"


@dataclass(frozen=True)
class FileSet:
    """Data files of the table, as a JVM sequence of ``AddFile``, with their totals.

    :param files: the JVM sequence.
    :param count: how many files.
    :param num_bytes: their size.
    :param partitions: distinct partition values among them; 0 for an unpartitioned table.
    :param num_rows: their logical rows, None when a file has no statistics.
    """

    files: JavaObject
    count: int
    num_bytes: int
    partitions: int
    num_rows: int | None


@dataclass(frozen=True)
class TrackingColumn:
    """A column by which a table with row tracking knows its rows.

    :param name: its physical name.
    :param column: its value for a row of the target.
    :param changes_with_row: whether an update makes it void (the commit version) or leaves it (the row id).
    :param metadata: JVM metadata that marks it for the writer.
    """

    name: str
    column: Column
    changes_with_row: bool
    metadata: JavaObject


class TargetScan:
    """Reads files of the target as the transaction sees it.

    :param gateway: the session's JVM.
    :param statement: the merge; the rows get the attributes that its expressions refer to.
    :param transaction: the JVM's ``OptimisticTransaction``.
    """

    def __init__(self, gateway: Gateway, statement: ResolvedMerge, transaction: JavaObject) -> None:
        self._gateway = gateway
        self._command = statement.command
        self._transaction = transaction

    @cached_property
    def tracks_rows(self) -> bool:
        """Whether the table has stable row ids."""
        snapshot = self._transaction.snapshot()
        return bool(self._gateway.delta("RowTracking").isEnabled(snapshot.protocol(), snapshot.metadata()))

    @cached_property
    def has_stable_positions(self) -> bool:
        """Whether a row's position is the same in each read; a column named ``_metadata`` hides it from Spark."""
        names = self._gateway.as_json(self._command.target().schema().fieldNames())
        return "_metadata" not in map(str.lower, names)

    def frame(self, files: FileSet, *, most_tasks: int | None = None, reads_all_rows: bool = False) -> DataFrame:
        """The target restricted to ``files``, with the attributes that the statement's expressions refer to.

        :param most_tasks: how many tasks, at most, shall read them; None for as many as Spark makes of their size.
        :param reads_all_rows: whether Spark shall leave out no rows by the statistics in Parquet's footers.
        """
        utils = self._gateway.delta("DeltaTableUtils")
        plan = self._plan(files, most_tasks=most_tasks, with_row_index=False, reads_all_rows=reads_all_rows)
        return self._gateway.data_frame(utils.replaceFileIndex(plan, self._file_index(files)))

    def frame_with_positions(
        self,
        files: FileSet,
        *,
        path: str,
        row_index: str,
        row_number: str,
        indexed: bool,
        where: Sequence[Column],
        most_tasks: int | None,
    ) -> DataFrame:
        """:meth:`frame` plus columns: the file's path (URI, as Spark encodes it), the row's index in it and a number.

        The number is ``monotonically_increasing_id``, unique in this read. The index is the same in each read.

        Tables without deletion vectors hide the row index, so the relation gets a file format whose protocol
        knows deletion vectors; that only makes the column visible.

        :param path: the path's name. It isn't taken from the relation's metadata, as the index is: of a struct from
            which two fields are used Spark makes one for each row that is read, one field it takes where it is used.
        :param row_index: the index's name.
        :param row_number: the number's name.
        :param indexed: whether the index is wanted, which the reader has to count; without it, or without
            :attr:`has_stable_positions`, it is NULL.
        :param where: predicates that the rows must fulfil.
        :param most_tasks: see :meth:`frame`.
        """
        file_name, number = F.input_file_name().alias(path), F.monotonically_increasing_id().alias(row_number)
        if not indexed or not self.has_stable_positions:
            frame = _filtered(self.frame(files, most_tasks=most_tasks), where)
            return frame.select("*", file_name, F.lit(None).cast("bigint").alias(row_index), number)
        helper = self._gateway.delta("commands.DMLWithDeletionVectorsHelper")
        plan = self._plan(files, most_tasks=most_tasks, with_row_index=True)
        scan = helper.createTargetDfForScanningForMatches(self._gateway.session, plan, self._file_index(files))
        # The relation's own metadata struct comes last, whatever columns users have named `_metadata`.
        metadata = self._gateway.column(scan.queryExecution().analyzed().output().last())
        return _filtered(self._gateway.wrap(scan), where).select(
            "*", file_name, metadata.getField("row_index").alias(row_index), number
        )

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
        """The target's plan, its relation such that it reads ``files`` as it should.

        Spark asks the relation's session when the frame is executed, so each frame gets one of its own.
        """
        plan, settings = self._command.target(), self._settings_to_read_evenly(files, most_tasks)
        if reads_all_rows:
            settings[_PUSH_DOWN] = "false"
        session = self._gateway.session_with(settings) if settings else None
        if session is None and not with_row_index:
            return plan
        return self._with_relation(plan, session=session, with_row_index=with_row_index)

    def _settings_to_read_evenly(self, files: FileSet, most_tasks: int | None) -> dict[str, str]:
        """What makes Spark read in the tasks that are wanted; nothing where it does so anyway.

        To coalesce the rows' partitions would do for fewer tasks, but breaks the code that Spark generates in two,
        between which each row is built in memory, its file's path included.
        """
        conf = self._gateway.sql_conf
        per_task = split_bytes(
            files.num_bytes,
            files.count,
            cores=self._gateway.default_parallelism,
            most_tasks=most_tasks,
            most_bytes=int(conf.filesMaxPartitionBytes()),
            open_cost=int(conf.filesOpenCostInBytes()),
        )
        return {} if per_task is None else {_MOST_BYTES_PER_TASK: str(per_task)}

    def _with_relation(self, plan: JavaObject, *, session: JavaObject | None, with_row_index: bool) -> JavaObject:
        name = plan.getClass().getSimpleName()
        if name == "Project":
            project = self._gateway.java_class("org.apache.spark.sql.catalyst.plans.logical.Project")
            child = self._with_relation(plan.child(), session=session, with_row_index=with_row_index)
            return project(plan.projectList(), child)
        if name != "LogicalRelation":  # an alias or a view: names, no attributes of its own
            return self._with_relation(plan.child(), session=session, with_row_index=with_row_index)
        relation = plan.relation()
        file_format = relation.fileFormat()
        # By its constructor: Delta's file formats are equal whatever their protocols, so Spark's own ways to
        # change a plan would keep the old one.
        changed = self._gateway.java_class("org.apache.spark.sql.execution.datasources.HadoopFsRelation")(
            relation.location(),
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            self._row_index_format(file_format) if with_row_index else file_format,
            relation.options(),
            session or relation.sparkSession(),
        )
        return versions.with_relation(self._gateway, plan, changed)

    def _row_index_format(self, file_format: JavaObject) -> JavaObject:
        feature = self._gateway.delta("DeletionVectorsTableFeature")
        supporting = self._gateway.delta("actions.Protocol").forTableFeature(feature)
        protocol = file_format.protocol().merge(self._gateway.seq([supporting]))
        return versions.with_protocol(self._gateway, file_format, protocol)

    def with_row_tracking(self, frame: DataFrame) -> tuple[DataFrame, list[TrackingColumn]]:
        """Rows of the target with their stable row ids and commit versions, if the table tracks them.

        :return: the frame with up to two further columns, and what they are.
        """
        if not self.tracks_rows:
            return frame, []
        snapshot = self._transaction.snapshot()
        preserved = self._gateway.delta("RowTracking").preserveRowTrackingColumns(jdf(frame), snapshot)
        columns = []
        for kind in ("RowId", "RowCommitVersion"):
            attribute = self._gateway.delta(f"Materialized{kind}").getAttribute(snapshot, preserved)
            if attribute.isDefined():
                name = str(attribute.get().name())
                metadata = versions.tracking_column_metadata(self._gateway, kind, name, self._transaction)
                column = self._gateway.column(attribute.get())
                columns.append(TrackingColumn(name, column, kind == "RowCommitVersion", metadata))
        return self._gateway.wrap(preserved), columns

    def marked_as_tracking(self, rows: DataFrame, tracking: Iterable[TrackingColumn]) -> DataFrame:
        """Rows whose columns of these names have the metadata by which Delta knows row tracking columns."""
        for column in tracking:
            rows = self._gateway.wrap(jdf(rows).withMetadata(column.name, column.metadata))
        return rows


def _filtered(frame: DataFrame, predicates: Iterable[Column]) -> DataFrame:
    for predicate in predicates:
        frame = frame.filter(predicate)
    return frame
