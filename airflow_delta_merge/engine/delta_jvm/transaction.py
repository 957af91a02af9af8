"""Delta's transaction on the target: its files, what is written into it, and its commit."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import versions
from airflow_delta_merge.engine.delta_jvm.builtin import find_and_write_changes
from airflow_delta_merge.engine.delta_jvm.commit import (
    committing_with,
    delete_files,
    is_conflict,
    is_storage_error,
    landed_version,
    session_user_metadata,
    user_metadata_backwards,
)
from airflow_delta_merge.engine.delta_jvm.errors import from_throwable, merge_error
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, jc, jdf, scala_list
from airflow_delta_merge.engine.delta_jvm.marked_files import actions_of_marked_files
from airflow_delta_merge.engine.delta_jvm.state_files import files_of, list_state
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet, TargetScan
from airflow_delta_merge.engine.delta_jvm.written_texts import WrittenTexts
from airflow_delta_merge.engine.file_statistics import statistics_of
from airflow_delta_merge.exceptions import MergeConflictError, MergeExecutionError

_log = logging.getLogger(__name__)

#: To hand what the log says of files to the JVM takes longer than Delta's job from so many characters on.
_MOST_CHARACTERS = 400_000


class MergeTransaction:
    """An ``OptimisticTransaction`` on the target, active on this thread until :meth:`close`.

    Being active pins the snapshot of the target for whatever else the merge reads.

    :param gateway: the session's JVM.
    :param statement: the merge that runs in it.
    :param use_checksum: whether the version's checksum file may be asked for what it has, which the log has too.
    :param list_files_up_to: how many files a table may have, at most, for all of them to be listed here.
    :ivar target: reads the target's files.
    """

    def __init__(
        self, gateway: Gateway, statement: ResolvedMerge, *, use_checksum: bool, list_files_up_to: int
    ) -> None:
        self._gateway = gateway
        self._statement = statement
        self._use_checksum = use_checksum
        self._list_files_up_to = list_files_up_to
        self._command = statement.command
        log = self._command.targetFileIndex().deltaLog()
        self._transaction: JavaObject = log.startTransaction(self._command.catalogTable(), gateway.none)
        self._written: list[JavaObject] = []
        self._chosen_of_state: JavaObject | None = None
        self.target = TargetScan(gateway, statement, self._transaction)
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
        listed = self._listed("setTransactions")
        if listed is None:
            generation = int(self._transaction.txnVersion(application_id))
            return None if generation < 0 else generation
        # As Delta's txnVersion does; but the checksum file spares replaying the log.
        versions.add_to_buffer(self._gateway, self._transaction.readTxn(), application_id)
        committed = (each for each in scala_list(listed) if each.appId() == application_id)
        return next((int(each.version()) for each in committed), None)

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
        versions.ensure_type_widening_unchanged(self._gateway, index, self._transaction)
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
        writes = self._gateway.delta("files.TransactionalWrite")
        return bool(writes.shouldOptimizeWrite(self._transaction.metadata(), self._gateway.sql_conf))

    @cached_property
    def generates_identity(self) -> bool:
        """Whether the rows get values of identity columns while they are written."""
        return bool(self._command.trackHighWaterMarks().nonEmpty())

    @cached_property
    def table_size(self) -> tuple[int, int]:
        """Files and bytes of the table as the transaction reads it."""
        if self._checksum is not None:
            return int(self._checksum.numFiles()), int(self._checksum.tableSizeBytes())
        snapshot = self._transaction.snapshot()
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    @cached_property
    def _checksum(self) -> JavaObject | None:
        """What the version's checksum file says of the table, if there is one; it is read with the log."""
        if not self._use_checksum:
            return None
        checksum = self._transaction.snapshot().checksumOpt()
        return checksum.get() if checksum.isDefined() else None

    def _listed(self, name: str) -> JavaObject | None:
        """A JVM sequence of actions that the checksum file has, if it was small enough to be put there."""
        if self._checksum is None:
            return None
        listed = getattr(self._checksum, name)()
        return listed.get() if listed.isDefined() else None

    def num_rows(self) -> int:
        """Rows of the whole table as the transaction reads it; to have asked makes no other commit a conflict."""
        rows = self.file_set(self._transaction.snapshot().filesForScan(self._gateway.seq([]), True).files()).num_rows
        return rows if rows is not None else self._gateway.data_frame(self._command.target()).count()

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
        return self.file_set(self._transaction.filterFiles(self._resolved(predicates), True))

    def _resolved(self, predicates: Iterable[Column]) -> JavaObject:
        frame = self._statement.target_frame()
        return self._gateway.seq(self._gateway.resolve_predicate(frame, each) for each in predicates)

    def all_files(self) -> FileSet:
        """All files of the table; they count as read."""
        files = self._listed_files
        return self.filter_files([]) if files is None else self._read(files, [])

    @cached_property
    def _listed_files(self) -> FileSet | None:
        """All files of the table, if they are few.

        Delta lists the files of a small table in its version's checksum file: taken from there, nothing of the log
        has to be replayed by Spark.
        """
        listed = self._listed("allFiles")
        files = None if listed is None else self.file_set(listed)
        return None if files is None or (files.count, files.num_bytes) != self.table_size else files

    @property
    def num_listed_rows(self) -> int | None:
        """Rows of the whole table, if all its files are listed without a Spark job; they don't count as read."""
        return None if self._listed_files is None else self._listed_files.num_rows

    @cached_property
    def _listed_state(self) -> list[str] | None:
        """What the log says of each file, if they are few enough; those of the checksum file need no such list."""
        if self._listed_files is not None or self.table_size[0] > self._list_files_up_to:
            return None
        return list_state(self._gateway, self._transaction.snapshot())

    @cached_property
    def listed_statistics(self) -> list[dict[str, Any]] | None:
        """What Delta's statistics tell of each file, nothing where there are none; None when the table has many.

        Columns that the table is partitioned by are told of in the same way. None, too, where the session doesn't want
        files to be left out by statistics.
        """
        if not self._skips_by_statistics:
            return None
        if self._listed_files is not None:
            return self.file_statistics(self._listed_files)
        return None if self._listed_state is None else self._statistics_of(map(json.loads, self._listed_state))

    @property
    def _skips_by_statistics(self) -> bool:
        return self._gateway.flag("spark.databricks.delta.stats.skipping")

    def file_statistics(self, files: FileSet) -> list[dict[str, Any]] | None:
        """What Delta's statistics tell of each of a few files, as :attr:`listed_statistics` does."""
        if not self._skips_by_statistics:
            return None
        # File by file: an answer of more than 8 kB takes py4j 40 ms, since both ends of its socket wait for the other.
        return self._statistics_of(json.loads(file.json())["add"] for file in scala_list(files.files))

    def _statistics_of(self, adds: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        fields = scala_list(self._transaction.metadata().partitionSchema().toSeq())
        partitioned_by = {
            str(self.physical_name(field.name())): str(field.dataType().catalogString()) for field in fields
        }
        return [statistics_of(add, partitioned_by) for add in adds]

    def listed_files_at(self, positions: Sequence[int], predicates: Iterable[Column]) -> FileSet | None:
        """Those of the files that :attr:`listed_statistics` tells of; None when :meth:`filter_files` finds them sooner.

        They count as read, and so does what others may add to the partitions for which the predicates are true.

        :param positions: which of them.
        :param predicates: predicates over columns that the table is partitioned by, none for the whole table.
        """
        files = self._listed_files
        if files is None:
            assert self._listed_state is not None, "listed_statistics is there only if they are listed"
            adds = [self._listed_state[position] for position in positions]
            if sum(map(len, adds)) > _MOST_CHARACTERS:
                return None
            files = self.file_set(files_of(self._gateway, adds))
            self._chosen_of_state = files.files
        elif len(positions) < files.count:
            files = self.file_set(self._gateway.seq(files.files.apply(position) for position in positions))
        return self._read(files, predicates)

    def _read(self, files: FileSet, predicates: Iterable[Column]) -> FileSet:
        self._transaction.trackReadPredicates(self._resolved(predicates), False, True)
        self._transaction.trackFilesRead(files.files)
        return files

    def physical_name(self, column: str) -> str | None:
        """The name by which files and statistics know a column; None if the table has none of that very name."""
        schema = self._transaction.metadata().schema()
        if schema.getFieldIndex(column).isEmpty():
            return None
        return str(self._gateway.delta("DeltaColumnMapping").getPhysicalName(schema.apply(column)))

    def select_files(self, candidates: FileSet, paths: Sequence[str]) -> FileSet:
        """Those of ``candidates`` whose encoded paths are given."""
        data_path = self._transaction.deltaLog().dataPath()
        by_name = self._command.generateCandidateFileMap(data_path, candidates.files)
        chosen = (self._command.getTouchedFile(data_path, path, by_name) for path in paths)
        return self.file_set(self._gateway.seq(chosen))

    # Writing

    def write_files(self, rows: DataFrame, *, texts_by_footers: bool) -> JavaObject:
        """Write rows as new files by Delta's own writer; JVM sequence of file actions.

        :param texts_by_footers: whether statistics of text columns shall be read from the new files' footers.
        """
        texts = self._written_texts if texts_by_footers else None
        if texts is None:
            written = self._transaction.writeFiles(jdf(rows))
        else:
            with texts.left_out(self._gateway, self._transaction):
                written = self._transaction.writeFiles(jdf(rows))
            written = texts.added_to(written, self._gateway, self._transaction)
        self._written.append(written)
        return written

    @property
    def share_of_texts(self) -> float:
        """How many of the table's columns are text columns whose statistics footers can tell, from 0 to 1."""
        return self._written_texts.share if self._written_texts else 0.0

    @cached_property
    def _written_texts(self) -> WrittenTexts | None:
        return WrittenTexts.of(self._gateway, self._transaction)

    def merge_by_builtin(self, attempt: int) -> tuple[FileSet, JavaObject, JavaObject]:
        """Let Delta's own merge find and write the changes; see :mod:`~airflow_delta_merge.engine.delta_jvm.builtin`.

        :return: the touched files; JVM sequences of actions: of files that were written, and of all to be committed.
        """
        touched, written, marked = find_and_write_changes(
            self._gateway, self._command, self._transaction, attempt=attempt
        )
        self._written.append(written)
        files = self.file_set(touched)
        gone = self.remove_actions(files) if marked is None else marked
        return files, written, self._gateway.concat(written, gone)

    def discard(self, written: JavaObject) -> None:
        """Delete files that were written and shall not be committed.

        :param written: what :meth:`write_files` gave, or :meth:`merge_by_builtin` as written.
        """
        self._written.remove(written)
        delete_files(self._gateway, self._transaction, written)

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
            jdf(rows.withColumnRenamed("path", "row_path")),  # until 4.3 Delta adds a column `path`
            files.files,
            gateway.module("org.apache.spark.sql.catalyst.expressions.Literal").TrueLiteral(),
            gateway.some(jc(F.col("row_path"))),
            gateway.some(jc(F.col("row_index"))),
        )
        by_name = self._command.generateCandidateFileMap(transaction.deltaLog().dataPath(), files.files)
        touched = helper.findFilesWithMatchingRows(transaction, by_name, marked)
        listed = self._chosen_of_state if self._listed_files is None else self._listed_files.files
        actions, counts = actions_of_marked_files(gateway, touched, transaction, listed)
        emptied = []
        if counts["numRemovedFiles"]:  # asking each of thousands of files takes longer than marking them
            emptied = [file.fileLogEntry() for file in scala_list(touched) if file.isFullyReplaced()]
        return actions, counts, self.file_set(gateway.seq(emptied))

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
        actions = gateway.concat(executed.toList(), actions)
        if application is not None and (actions.nonEmpty() or self._changes_metadata()):
            transaction.updateSetTransaction(*application, gateway.some(transaction.deltaLog().clock().getTimeMillis()))
        records = gateway.delta("NumRecordsStats").fromActions(actions)
        versions.validate_num_records(gateway, command, actions, records, operation, transaction.deltaLog())
        self._records = records
        transaction.registerSQLMetrics(gateway.session, command.metrics())
        no_tags = gateway.module("scala.collection.immutable.Map").empty()
        tags = gateway.delta("RowTracking").addPreservedRowTrackingTagIfNotSet(transaction.snapshot(), no_tags)
        try:
            with committing_with(gateway, user_metadata):
                version = transaction.commitIfNeeded(actions, operation, tags)
        except Exception as error:
            if is_conflict(error):
                return self._resolve_conflict(error)
            version_after_all = self._version_after_all(error)
            if version_after_all is None:
                raise
            return version_after_all
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

    def _version_after_all(self, error: Exception) -> int | None:
        """The version of a commit of which the storage told an error, if the log has it."""
        if not is_storage_error(error):
            return None
        try:
            version = landed_version(self._gateway, self._transaction)
        except Exception:  # the storage is still away: its first error tells most
            return None
        if version is not None:
            _log.warning(
                "The storage told an error, but the commit is in the log as version %s.", version, exc_info=error
            )
        return version

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
