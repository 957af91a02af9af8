"""Delta's transaction on the target: its files, what is written into it, and its commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from airflow_delta_merge.engine.delta_jvm.commit import (
    committing_with,
    delete_files,
    is_conflict,
    landed_version,
    session_user_metadata,
    user_metadata_backwards,
)
from airflow_delta_merge.engine.delta_jvm.errors import from_throwable, merge_error
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, jc, jdf, scala_list
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.exceptions import MergeConflictError, MergeExecutionError


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


class MergeTransaction:
    """An ``OptimisticTransaction`` on the target, active on this thread until :meth:`close`.

    Being active pins the snapshot of the target for whatever else the merge reads.

    :param gateway: the session's JVM.
    :param statement: the merge that runs in it.
    """

    def __init__(self, gateway: Gateway, statement: ResolvedMerge) -> None:
        self._gateway = gateway
        self._statement = statement
        self._command = statement.command
        log = self._command.targetFileIndex().deltaLog()
        self._transaction: JavaObject = log.startTransaction(self._command.catalogTable(), gateway.none)
        self._written: list[JavaObject] = []
        gateway.delta("OptimisticTransaction").setActive(self._transaction)

    def close(self) -> None:
        self._gateway.delta("OptimisticTransaction").clearActive()

    @cached_property
    def version_read(self) -> int:
        """The table version that the transaction reads."""
        return int(self._transaction.readVersion())

    def has_been_executed(self) -> bool:
        """Whether the table has a commit by the session's ``txnAppId`` with its ``txnVersion`` or a later one."""
        return bool(self._command.hasBeenExecuted(self._transaction, self._gateway.session, self._gateway.none))

    def generation(self, application_id: str) -> int | None:
        """The version that the application last committed to the table, if it did.

        To have asked makes another commit of that application meanwhile a conflict.
        """
        generation = int(self._transaction.txnVersion(application_id))
        return None if generation < 0 else generation

    def user_metadata_backwards(self) -> Iterator[tuple[int, str]]:
        """Version and ``userMetadata`` of the commits that have one, newest first, as far back as the log goes."""
        return user_metadata_backwards(self._transaction, self._gateway)

    def prepare(self) -> None:
        """Check that the table is as it was analysed, and let its schema and identity columns move on.

        :raises MergeExecutionError: when the schema changed since analysis.
        """
        analysed, metadata = self._command.target().schema(), self._transaction.metadata()
        if analysed.size() != metadata.schema().size():
            errors = self._gateway.delta("DeltaErrors")
            raise from_throwable(errors.schemaChangedSinceAnalysis(analysed, metadata.schema(), False))
        index = self._command.targetFileIndex()
        self._gateway.delta("TypeWidening").ensureFeatureConsistentlyEnabled(
            index.protocol(),
            index.metadata(),
            self._transaction.protocol(),
            metadata,
            self._transaction.tableNameOrPath(),
        )
        if self._command.canMergeSchema():
            schema = self._command.migratedSchema()
            self._command.updateMetadata(
                self._gateway.session,
                self._transaction,
                schema.get() if schema.isDefined() else analysed,
                metadata.partitionColumns(),
                metadata.configuration(),
                False,
                False,
            )
        self._command.checkIdentityColumnHighWaterMarks(self._transaction)
        self._transaction.setTrackHighWaterMarks(self._command.trackHighWaterMarks())

    # What the table is like

    @cached_property
    def partition_columns(self) -> list[str]:
        return [str(name) for name in scala_list(self._transaction.metadata().partitionColumns())]

    @cached_property
    def writes_change_data(self) -> bool:
        """Whether the table has its change data feed on."""
        return bool(self._command.isCdcEnabled(self._transaction))

    @cached_property
    def writes_deletion_vectors(self) -> bool:
        """Whether rows are marked as deleted instead of files rewritten: the table and the session allow it."""
        session = self._gateway.session
        return bool(self._command.shouldWritePersistentDeletionVectors(session, self._transaction))

    @cached_property
    def optimizes_write(self) -> bool:
        """Whether Delta's optimized write will arrange the files."""
        conf = self._gateway.session.sessionState().conf()
        writes = self._gateway.delta("files.TransactionalWrite")
        return bool(writes.shouldOptimizeWrite(self._transaction.metadata(), conf))

    @cached_property
    def generates_identity(self) -> bool:
        """Whether the rows get values of identity columns while they are written."""
        return bool(self._command.trackHighWaterMarks().nonEmpty())

    @cached_property
    def tracks_rows(self) -> bool:
        """Whether the table has stable row ids."""
        snapshot = self._transaction.snapshot()
        return bool(self._gateway.delta("RowTracking").isEnabled(snapshot.protocol(), snapshot.metadata()))

    @cached_property
    def has_stable_positions(self) -> bool:
        """Whether a row's position is the same in each read; a column named ``_metadata`` hides it from Spark."""
        names = (str(field.name()) for field in self._command.target().schema().fields())
        return "_metadata" not in map(str.lower, names)

    @cached_property
    def table_size(self) -> tuple[int, int]:
        """Files and bytes of the table as the transaction reads it."""
        snapshot = self._transaction.snapshot()
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    # Files

    def file_set(self, files: JavaObject) -> FileSet:
        """Totals of a JVM sequence of ``AddFile``."""
        totals = self._gateway.delta("commands.MergeIntoCommandBase").totalBytesAndDistinctPartitionValues(files)
        rows = self._gateway.delta("NumRecordsStats").fromActions(files).numLogicalRecordsAdded()
        return FileSet(
            files=files,
            count=int(files.size()),
            num_bytes=int(totals._1()),
            partitions=int(totals._2()),
            num_rows=int(rows.get()) if rows.isDefined() else None,
        )

    def filter_files(self, predicates: Iterable[Column]) -> FileSet:
        """The files that may hold rows of the target for which all predicates are true; they count as read."""
        frame = self._statement.target_frame()
        resolved = self._gateway.seq(self._gateway.resolve_predicate(frame, each) for each in predicates)
        return self.file_set(self._transaction.filterFiles(resolved, True))

    def select_files(self, candidates: FileSet, paths: Sequence[str]) -> FileSet:
        """Those of ``candidates`` whose encoded paths are given."""
        if len(paths) == candidates.count:
            return candidates
        data_path = self._transaction.deltaLog().dataPath()
        by_name = self._command.generateCandidateFileMap(data_path, candidates.files)
        chosen = (self._command.getTouchedFile(data_path, path, by_name) for path in paths)
        return self.file_set(self._gateway.seq(chosen))

    # Reading the target

    def target_frame(self, files: FileSet) -> DataFrame:
        """The target restricted to ``files``, with the attributes that the statement's expressions refer to."""
        utils = self._gateway.delta("DeltaTableUtils")
        return self._gateway.data_frame(utils.replaceFileIndex(self._command.target(), self._file_index(files)))

    def target_frame_with_positions(
        self, files: FileSet, *, path: str, row_index: str, indexed: bool, where: Sequence[Column]
    ) -> DataFrame:
        """:meth:`target_frame` plus two columns: the file's path (URI, as Spark encodes it) and a number of the row.

        Tables without deletion vectors hide the row index, so the relation gets a file format whose protocol
        knows deletion vectors; that only makes the column visible.

        :param indexed: whether the number is to be the row's index in its file; without it, or without
            :attr:`has_stable_positions`, it is a number that is unique in this read.
        :param where: predicates that the rows must fulfil.
        """
        if not indexed or not self.has_stable_positions:
            numbered = F.monotonically_increasing_id().alias(row_index)
            frame = _filtered(self.target_frame(files), where)
            return frame.select("*", F.input_file_name().alias(path), numbered)
        helper = self._gateway.delta("commands.DMLWithDeletionVectorsHelper")
        plan = self._with_row_index_format(self._command.target())
        index = self._file_index(files)
        scan = helper.createTargetDfForScanningForMatches(self._gateway.session, plan, index)
        # The relation's own metadata struct comes last, whatever columns users have named `_metadata`.
        metadata = self._gateway.column(scan.queryExecution().analyzed().output().last())
        return _filtered(self._gateway.wrap(scan), where).select(
            "*", metadata.getField("file_path").alias(path), metadata.getField("row_index").alias(row_index)
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

    def _with_row_index_format(self, plan: JavaObject) -> JavaObject:
        name = plan.getClass().getSimpleName()
        if name == "Project":
            project = self._gateway.java_class("org.apache.spark.sql.catalyst.plans.logical.Project")
            return project(plan.projectList(), self._with_row_index_format(plan.child()))
        if name != "LogicalRelation":  # an alias or a view: names, no attributes of its own
            return self._with_row_index_format(plan.child())
        relation = plan.relation()
        # By its constructor: Delta's file formats are equal whatever their protocols, so Spark's own ways to
        # change a plan would keep the old one.
        with_format = self._gateway.java_class("org.apache.spark.sql.execution.datasources.HadoopFsRelation")(
            relation.location(),
            relation.partitionSchema(),
            relation.dataSchema(),
            relation.bucketSpec(),
            self._row_index_format(relation.fileFormat()),
            relation.options(),
            relation.sparkSession(),
        )
        stream = getattr(plan, "copy$default$5")()
        return plan.copy(with_format, plan.output(), plan.catalogTable(), plan.isStreaming(), stream)

    def _row_index_format(self, file_format: JavaObject) -> JavaObject:
        feature = self._gateway.delta("DeletionVectorsTableFeature")
        supporting = self._gateway.delta("actions.Protocol").forTableFeature(feature)
        return file_format.copy(
            file_format.protocol().merge(self._gateway.seq([supporting])),
            file_format.metadata(),
            file_format.nullableRowTrackingConstantFields(),
            file_format.nullableRowTrackingGeneratedFields(),
            file_format.optimizationsEnabled(),
            file_format.tablePath(),
            file_format.isCDCRead(),
        )

    def with_row_tracking(self, frame: DataFrame) -> tuple[DataFrame, list[TrackingColumn]]:
        """Rows of the target with their stable row ids and commit versions, if the table tracks them.

        :return: the frame with up to two further columns, and what they are.
        """
        if not self.tracks_rows:
            return frame, []
        snapshot = self._transaction.snapshot()
        preserved = self._gateway.delta("RowTracking").preserveRowTrackingColumns(jdf(frame), snapshot)
        field_ids = self._gateway.delta("IcebergCompat").isGeqEnabled(self._transaction.metadata(), 3)
        columns = []
        for kind in ("RowId", "RowCommitVersion"):
            attribute = self._gateway.delta(f"Materialized{kind}").getAttribute(snapshot, preserved)
            if attribute.isDefined():
                name = str(attribute.get().name())
                metadata = self._gateway.delta(kind).columnMetadata(name, field_ids)
                column = self._gateway.column(attribute.get())
                columns.append(TrackingColumn(name, column, kind == "RowCommitVersion", metadata))
        return self._gateway.wrap(preserved), columns

    def tracking_alias(self, value: Column, tracking: TrackingColumn) -> Column:
        """A column under the name and metadata by which Delta knows a row tracking column."""
        return ClassicColumn(getattr(jc(value), "as")(tracking.name, tracking.metadata))

    # Writing

    def write_files(self, rows: DataFrame) -> JavaObject:
        """Write rows as new files by Delta's own writer; JVM sequence of file actions."""
        self._written.append(self._transaction.writeFiles(jdf(rows)))
        return self._written[-1]

    def split_change_files(self, actions: JavaObject) -> tuple[FileSet, int, int]:
        """The data files among the actions of a write; count and bytes of the change files."""
        if not self.writes_change_data:
            return self.file_set(actions), 0, 0
        by_class: dict[str, list[JavaObject]] = {"AddFile": [], "AddCDCFile": []}
        for action in scala_list(actions):
            by_class[action.getClass().getSimpleName()].append(action)
        change_files = by_class["AddCDCFile"]
        change_bytes = sum(int(file.size()) for file in change_files)
        return self.file_set(self._gateway.seq(by_class["AddFile"])), len(change_files), change_bytes

    def remove_actions(self, files: FileSet) -> JavaObject:
        """Actions that remove the files from the table."""
        return self._gateway.seq(file.remove() for file in scala_list(files.files))

    def deletion_vector_actions(self, files: FileSet, rows: DataFrame) -> tuple[JavaObject, dict[str, int], FileSet]:
        """Write deletion vectors that mark ``rows`` in ``files``, on top of those the files have.

        :param rows: columns ``path`` (encoded URI) and ``row_index`` (long); a row may appear more than once.
        :return: the file actions, Delta's counts of deletion vectors and removed files, and the files of which no
            row is left.
        """
        gateway, transaction = self._gateway, self._transaction
        helper = gateway.delta("commands.DMLWithDeletionVectorsHelper")
        marked = gateway.delta("commands.DeletionVectorBitmapGenerator").buildRowIndexSetsForFilesMatchingCondition(
            gateway.session,
            transaction,
            True,
            jdf(rows),
            files.files,
            gateway.module("org.apache.spark.sql.catalyst.expressions.Literal").TrueLiteral(),
            gateway.some(jc(F.col("path"))),
            gateway.some(jc(F.col("row_index"))),
        )
        by_name = self._command.generateCandidateFileMap(transaction.deltaLog().dataPath(), files.files)
        touched = helper.findFilesWithMatchingRows(transaction, by_name, marked)
        statistics = gateway.delta("stats.StatsCollectionUtils")
        prefix_length = statistics.getDataSkippingStringPrefixLength(gateway.session, transaction.metadata())
        done = helper.processUnmodifiedData(gateway.session, touched, transaction.snapshot(), prefix_length)
        counts = {str(name): int(done._2().apply(name)) for name in scala_list(done._2().keys().toSeq())}
        emptied = [file.fileLogEntry() for file in scala_list(touched) if file.isFullyReplaced()]
        return done._1(), counts, self.file_set(gateway.seq(emptied))

    @property
    def session_user_metadata(self) -> str | None:
        """The ``userMetadata`` that the session asks for."""
        return session_user_metadata(self._gateway)

    def commit(
        self,
        actions: JavaObject,
        *,
        application: tuple[str, int] | None = None,
        user_metadata: str | None = None,
    ) -> int | None:
        """Commit as operation MERGE with the statement's predicates and metrics, as Delta's own command does.

        :param actions: JVM sequence of file actions.
        :param application: application id and version to be kept with what is committed.
        :param user_metadata: the commit's ``userMetadata``; by default the session's.
        :return: the committed version; None when there was nothing to commit.
        :raises MergeConflictError: when another writer's commit got in the way; what this transaction wrote is deleted.
        """
        gateway, command, transaction = self._gateway, self._command, self._transaction
        operation = self._operation()
        executed = command.createSetTransaction(gateway.session, transaction.deltaLog(), gateway.none)
        actions = executed.toList().concat(actions)
        if application is not None and (actions.nonEmpty() or self._changes_metadata()):
            transaction.updateSetTransaction(*application, gateway.some(transaction.deltaLog().clock().getTimeMillis()))
        records = gateway.delta("NumRecordsStats").fromActions(actions)
        command.validateNumRecords(actions, records, operation, transaction.deltaLog())
        self._records = records
        transaction.registerSQLMetrics(gateway.session, command.metrics())
        no_tags = gateway.module("scala.collection.immutable.Map").empty()
        tags = gateway.delta("RowTracking").addPreservedRowTrackingTagIfNotSet(transaction.snapshot(), no_tags)
        try:
            with committing_with(gateway, user_metadata):
                version = transaction.commitIfNeeded(actions, operation, tags)
        except Exception as error:
            if not is_conflict(error):
                raise
            return self._resolve_conflict(error)
        return int(version.get()) if version.isDefined() else None

    def record_statistics(self, version: int | None, materialization_reason: JavaObject, attempt: int) -> None:
        """Record Delta's event ``delta.dml.merge.stats`` with the statement's metrics.

        :param version: the committed version.
        :param materialization_reason: Delta's reason to materialize the source, or not to.
        :param attempt: how often the source had to be materialized.
        """
        gateway, command = self._gateway, self._command
        committed = gateway.some_long(version) if version is not None else gateway.none
        getattr(command, "attempt_$eq")(attempt)
        statistics = command.collectMergeStats(self._transaction, materialization_reason, committed, self._records)
        command.recordDeltaEvent(
            self._transaction.deltaLog(),
            "delta.dml.merge.stats",
            getattr(command, "recordDeltaEvent$default$3")(),
            statistics,
            gateway.none,
        )

    def _changes_metadata(self) -> bool:
        return not self._transaction.metadata().equals(self._transaction.snapshot().metadata())

    def _resolve_conflict(self, error: Exception) -> int:
        """The version that was committed after all; else clean up and raise."""
        version = landed_version(self._gateway, self._transaction)
        if version is not None:
            return version
        deleted = sum(delete_files(self._gateway, self._transaction, written) for written in self._written)
        told = merge_error(error)
        raise MergeConflictError(
            f"{told} The {deleted} files that this attempt wrote were never part of the table and are deleted.",
            condition=told.condition,
            sql_state=told.sql_state,
        ) from error

    def _operation(self) -> JavaObject:
        gateway, command = self._gateway, self._command
        predicate = gateway.delta("DeltaOperations$MergePredicate")
        kinds = command.matchedClauses(), command.notMatchedClauses(), command.notMatchedBySourceClauses()
        predicates = [gateway.seq(predicate.apply(clause) for clause in scala_list(clauses)) for clauses in kinds]
        return gateway.delta("DeltaOperations$Merge").apply(gateway.some(command.condition()), *predicates)

    def multiple_matches_error(self) -> MergeExecutionError:
        """Delta's error for several source rows that match one target row, to be raised by the caller."""
        errors = self._gateway.delta("DeltaErrors")
        return from_throwable(errors.multipleSourceRowMatchingTargetRowInMergeException(self._gateway.session))


def _filtered(frame: DataFrame, predicates: Iterable[Column]) -> DataFrame:
    for predicate in predicates:
        frame = frame.filter(predicate)
    return frame
