"""Delta's transaction on the target: the table's properties, writes and the commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.builtin import find_and_write_changes
from airflow_delta_merge.engine.delta_jvm.checksum import VersionChecksum
from airflow_delta_merge.engine.delta_jvm.commit import USER_METADATA, committing_with, delete_files, landed
from airflow_delta_merge.engine.delta_jvm.commit_history import user_metadata_backwards
from airflow_delta_merge.engine.delta_jvm.copies import CopyTerms, are_files_copied, terms_of_copies
from airflow_delta_merge.engine.delta_jvm.errors import from_throwable
from airflow_delta_merge.engine.delta_jvm.gateway import (
    Gateway,
    JavaObject,
    class_name_of,
    jc,
    jdf,
    scala_list,
    scala_option,
)
from airflow_delta_merge.engine.delta_jvm.log_store import require_one_writer_each
from airflow_delta_merge.engine.delta_jvm.marked_files import actions_of_marked_files
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.engine.delta_jvm.table_files import TableFiles
from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet, TargetScan
from airflow_delta_merge.exceptions import MergeExecutionError

#: Metadata of an identity column's field: whether rows may bring values of their own.
_IDENTITY_BY_DEFAULT = "delta.identity.allowExplicitInsert"
_UTC = ("UTC", "ETC/UTC", "GMT", "Z", "+00:00")


@dataclass(frozen=True)
class WrittenFiles:
    """New files that are not committed yet.

    :param actions: JVM sequence of the file actions that add them.
    :param added: the data files among them.
    :param num_change_files: number of change files.
    :param change_bytes: their size.
    """

    actions: JavaObject
    added: FileSet
    num_change_files: int = 0
    change_bytes: int = 0


class MergeTransaction:
    """An ``OptimisticTransaction`` on the target, active on this thread until :meth:`close`.

    While it is active, all other reads of the merge use the same snapshot of the target.

    :param statement: the merge that runs in it.
    :param use_checksum: whether to use the version's checksum file, which repeats information from the log.
    :param list_files: whether all files may be listed on the driver, if they are not too many.
    :ivar files: the target's files.
    :ivar target: reads them.
    """

    def __init__(self, gateway: Gateway, statement: ResolvedMerge, *, use_checksum: bool, list_files: bool) -> None:
        self._gateway = gateway
        self._command = statement.command
        log = self._command.targetFileIndex().deltaLog()
        self._transaction: JavaObject = log.startTransaction(self._command.catalogTable(), gateway.none)
        self._written: list[JavaObject] = []
        self._checksum = VersionChecksum(gateway, self._transaction, use=use_checksum)
        self.files = TableFiles(gateway, statement, self._transaction, self._checksum, may_list=list_files)
        self.target = TargetScan(gateway, statement, self._transaction)
        gateway.delta("OptimisticTransaction").setActive(self._transaction)

    def close(self) -> None:
        self._gateway.delta("OptimisticTransaction").clearActive()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let another table be written on this thread, for which Delta wants no transaction to be active."""
        self.close()
        try:
            yield
        finally:
            self._gateway.delta("OptimisticTransaction").setActive(self._transaction)

    @cached_property
    def version_read(self) -> int:
        """The table version that the transaction reads."""
        return int(self._transaction.readVersion())

    def require_one_writer_each(self) -> None:
        """Check that the table's store lets only one writer make each commit.

        :raises MergeExecutionError: when it does not; the message says what to do.
        """
        require_one_writer_each(self._gateway, self._transaction.deltaLog())

    def has_been_executed(self) -> bool:
        """Whether the table has a commit by the session's ``txnAppId`` with its ``txnVersion`` or a later one."""
        return bool(self._command.hasBeenExecuted(self._transaction, self._gateway.session, self._gateway.none))

    def generation(self, application_id: str) -> int | None:
        """The version that the application last committed to the table, if any.

        Asking makes a concurrent commit of that application a conflict.
        """
        listed = self._checksum.listed("setTransactions")
        if listed is None:
            generation = int(self._transaction.txnVersion(application_id))
            return None if generation < 0 else generation
        # Like Delta's txnVersion, but the checksum file saves replaying the log.
        getattr(self._transaction.readTxn(), "$plus$eq")(application_id)
        committed = (each for each in scala_list(listed) if each.appId() == application_id)
        return next((int(each.version()) for each in committed), None)

    def user_metadata_backwards(self) -> Iterator[tuple[int, str]]:
        """Version and ``userMetadata`` of the commits that have one, newest first, as far back as the log goes."""
        return user_metadata_backwards(self._gateway, self._transaction)

    def prepare(self) -> None:
        """Check that the table hasn't changed since analysis, and update its schema and identity columns.

        :raises MergeExecutionError: when the schema changed since analysis.
        """
        analysed, metadata = self._command.target().schema(), self._transaction.metadata()
        if analysed.size() != metadata.schema().size():
            errors = self._gateway.delta("DeltaErrors")
            raise from_throwable(errors.schemaChangedSinceAnalysis(analysed, metadata.schema(), False))
        self.target.refuse_views_of_other_columns()
        index = self._command.targetFileIndex()
        by_version.ensure_type_widening_unchanged(self._gateway, index, self._transaction)
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

    # Properties of the table

    @cached_property
    def partition_columns(self) -> list[str]:
        return [str(name) for name in scala_list(self._transaction.metadata().partitionColumns())]

    def table_property(self, name: str) -> str | None:
        """The value of a table property; None if it isn't set."""
        value = scala_option(self._transaction.metadata().configuration().get(name))
        return None if value is None else str(value)

    @cached_property
    def is_in_utc(self) -> bool:
        """Whether timestamps without a time zone are in UTC."""
        return self._gateway.conf("spark.sql.session.timeZone").upper() in _UTC

    @cached_property
    def writes_change_data(self) -> bool:
        """Whether the table has its change data feed on."""
        return bool(self._command.isCdcEnabled(self._transaction))

    @cached_property
    def writes_deletion_vectors(self) -> bool:
        """Whether to mark rows as deleted instead of rewriting files: the table and the session must allow it.

        If rows have no stable positions to mark, files are rewritten, too.
        """
        session = self._gateway.session
        allowed = bool(self._command.shouldWritePersistentDeletionVectors(session, self._transaction))
        return allowed and self.target.has_stable_positions

    @cached_property
    def optimizes_write(self) -> bool:
        """Whether Delta's optimized write will arrange the files."""
        writes = self._gateway.delta("files.TransactionalWrite")
        return bool(writes.shouldOptimizeWrite(self._transaction.metadata(), self._gateway.sql_conf))

    @cached_property
    def generates_identity(self) -> bool:
        """Whether rows get identity values while they are written."""
        return bool(self._command.trackHighWaterMarks().nonEmpty())

    @property
    def _counts_old_identity(self) -> bool:
        """Whether the next identity value depends on the values that users gave to rows that are written again."""
        if not self.generates_identity:
            return False
        fields = json.loads(self._transaction.metadata().schemaString())["fields"]
        return any(field["metadata"].get(_IDENTITY_BY_DEFAULT) for field in fields)

    # Writing

    def write_files(self, rows: DataFrame) -> JavaObject:
        """Write rows as new files with Delta's own writer. Returns a JVM sequence of file actions."""
        written = self._transaction.writeFiles(jdf(rows))
        self._written.append(written)
        return written

    @cached_property
    def may_copy_files(self) -> bool:
        """Whether Arrow can copy files that lose rows; else only Spark can rewrite them."""
        return (
            not (self.writes_deletion_vectors or self.target.tracks_rows or self.optimizes_write)
            and not self._counts_old_identity
            and self.target.has_stable_positions  # by which it finds the rows
            and are_files_copied(self._gateway, self._transaction)
        )

    @cached_property
    def copy_terms(self) -> CopyTerms:
        """The terms for copying files."""
        return terms_of_copies(self._gateway, self._transaction)

    def add_copies(self, adds: Iterable[dict[str, Any]]) -> JavaObject:
        """Register copies of the table's files as written. Returns a JVM sequence of the actions that add them.

        :param adds: their add actions in log form.
        """
        actions = self.files.of_adds(adds)
        self._written.append(actions)
        return actions

    def merge_by_builtin(self, attempt: int) -> tuple[FileSet, JavaObject, JavaObject]:
        """Let Delta's own merge find and write the changes; see :mod:`~airflow_delta_merge.engine.delta_jvm.builtin`.

        :return: the touched files, and JVM sequences of the actions of written files and of all actions to commit.
        """
        touched, written, marked = find_and_write_changes(
            self._gateway, self._command, self._transaction, attempt=attempt
        )
        self._written.append(written)
        files = self.files.file_set(touched)
        gone = self.remove_actions(files) if marked is None else marked
        return files, written, self._gateway.concat(written, gone)

    def discard(self, written: JavaObject) -> None:
        """Delete written files that will not be committed.

        :param written: the actions from :meth:`write_files`, or the written ones from :meth:`merge_by_builtin`.
        """
        if written.isEmpty():
            return
        self._written.remove(written)
        delete_files(self._gateway, self._transaction, written)

    def written_files(self, actions: JavaObject) -> WrittenFiles:
        """The files that :meth:`write_files` wrote, from its actions."""
        if not self.writes_change_data:
            return WrittenFiles(actions, self.files.file_set(actions))
        by_class: dict[str, list[JavaObject]] = {"AddFile": [], "AddCDCFile": []}
        for action in scala_list(actions):
            by_class[class_name_of(action)].append(action)
        added = self.files.file_set(self._gateway.seq(by_class["AddFile"]))
        change_files = by_class["AddCDCFile"]
        return WrittenFiles(actions, added, len(change_files), sum(int(file.size()) for file in change_files))

    def remove_actions(self, files: FileSet) -> JavaObject:
        """Actions that remove the files from the table, in a few calls regardless of their number."""
        gateway, log = self._gateway, self._transaction.deltaLog()
        paths = (json.dumps(file["path"]) for file in gateway.as_json(files.files))
        of_files = gateway.seq_from_json(paths, "java.lang.String")
        now = int(log.clock().getTimeMillis())
        return self._command.removeFilesFromPaths(log, self.files.by_name(files), of_files, now)

    def deletion_vector_actions(self, files: FileSet, rows: DataFrame) -> tuple[JavaObject, dict[str, int], FileSet]:
        """Write deletion vectors that mark ``rows`` in ``files``, on top of those the files have.

        :param rows: columns ``path`` (encoded URI) and ``row_index`` (long); a row may appear more than once.
        :return: the file actions, Delta's counts of deletion vectors and removed files, and the files without
            remaining rows.
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
        touched = helper.findFilesWithMatchingRows(transaction, self.files.by_name(files), marked)
        actions, counts = actions_of_marked_files(gateway, touched, transaction, self.files.with_statistics)
        emptied = []
        if counts["numRemovedFiles"]:  # asking each of thousands of files takes longer than marking them
            emptied = [file.fileLogEntry() for file in scala_list(touched) if file.isFullyReplaced()]
        return actions, counts, self.files.file_set(gateway.seq(emptied))

    @property
    def session_user_metadata(self) -> str | None:
        """The session's ``userMetadata`` for commits."""
        return self._gateway.conf_if_set(USER_METADATA)

    def commit(
        self, actions: JavaObject, *, application: tuple[str, int] | None = None, user_metadata: str | None = None
    ) -> int | None:
        """Commit as operation MERGE with the statement's predicates and metrics, as Delta's own command does.

        :param actions: JVM sequence of file actions.
        :param application: application id and version to record in the commit.
        :param user_metadata: the commit's ``userMetadata``; by default the session's.
        :return: the committed version; None if there was nothing to commit.
        :raises MergeConflictError: when another writer's commit conflicts; this transaction's files are deleted.
        """
        gateway, command, transaction = self._gateway, self._command, self._transaction
        operation = self._operation()
        executed = command.createSetTransaction(gateway.session, transaction.deltaLog(), gateway.none)
        actions = gateway.concat(executed.toList(), actions)
        if application is not None and (actions.nonEmpty() or self._changes_metadata()):
            transaction.updateSetTransaction(*application, gateway.some(transaction.deltaLog().clock().getTimeMillis()))
        self._records = gateway.delta("NumRecordsStats").fromActions(actions)
        by_version.validate_num_records(gateway, command, actions, self._records, operation, transaction.deltaLog())
        transaction.registerSQLMetrics(gateway.session, command.metrics())
        no_tags = gateway.module("scala.collection.immutable.Map").empty()
        tags = gateway.delta("RowTracking").addPreservedRowTrackingTagIfNotSet(transaction.snapshot(), no_tags)

        def commit() -> JavaObject:
            with committing_with(gateway, user_metadata):
                return transaction.commitIfNeeded(actions, operation, tags)

        return landed(gateway, transaction, commit, self._written)

    def record_statistics(self, version: int | None, materialization_reason: JavaObject, attempt: int) -> None:
        """Record Delta's event ``delta.dml.merge.stats`` with the statement's metrics.

        :param version: the committed version.
        :param materialization_reason: Delta's reason to materialize the source or not.
        :param attempt: number of times the source was materialized.
        """
        gateway, command = self._gateway, self._command
        committed = by_version.some_long(gateway, version) if version is not None else gateway.none
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

    def _operation(self) -> JavaObject:
        gateway, command = self._gateway, self._command
        predicate = gateway.delta("DeltaOperations$MergePredicate")
        kinds = command.matchedClauses(), command.notMatchedClauses(), command.notMatchedBySourceClauses()
        predicates = [gateway.seq(predicate.apply(clause) for clause in scala_list(clauses)) for clauses in kinds]
        return gateway.delta("DeltaOperations$Merge").apply(gateway.some(command.condition()), *predicates)

    def multiple_matches_error(self) -> MergeExecutionError:
        """Delta's error for several source rows that match one target row, for the caller to raise."""
        errors = self._gateway.delta("DeltaErrors")
        return from_throwable(errors.multipleSourceRowMatchingTargetRowInMergeException(self._gateway.session))
