"""One merge from statement to commit: :class:`MergeIntoCommand` and the engine's public functions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeConfig
from airflow_delta_merge.engine.classic_merge import ClassicMergeExecutor
from airflow_delta_merge.engine.delta_jvm import (
    Gateway,
    JavaObject,
    MergeTransaction,
    ResolvedMerge,
    raises_merge_errors,
)
from airflow_delta_merge.engine.delta_jvm.statement import require_expression, require_query
from airflow_delta_merge.engine.exactly_once import (
    MAX_COMMIT_ATTEMPTS,
    ExactlyOnce,
    digest,
    until_committed,
)
from airflow_delta_merge.engine.insert_only_merge import InsertOnlyMergeExecutor, write_inserts
from airflow_delta_merge.engine.merge_context import ColumnNames, MergeContext
from airflow_delta_merge.engine.metrics import MergeMetrics
from airflow_delta_merge.engine.pruning import (
    SMALLEST_TABLE_TO_CLUSTER,
    Range,
    candidate_predicates,
    key_clusters,
    source_keys,
)
from airflow_delta_merge.engine.source import materialize_source
from airflow_delta_merge.engine.transactional_write import TransactionalWrite
from airflow_delta_merge.identifiers import quote_identifier
from airflow_delta_merge.identity import MergeIdentity
from airflow_delta_merge.result import MergeResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@raises_merge_errors
def merge(
    spark: SparkSession,
    config: MergeConfig,
    *,
    identity: MergeIdentity | None = None,
    max_commit_attempts: int = MAX_COMMIT_ATTEMPTS,
) -> MergeResult:
    """Merge as ``config`` says and commit.

    :param spark: a classic session with Delta's extension and catalog.
    :param identity: by what the table shall know this merge. If a merge of the same identity was committed, its
        recorded result is returned, marked ``already_committed``, and nothing is done.
    :param max_commit_attempts: how often the merge is computed when other writers' commits conflict with it; each time
        from the table and the source as they are then.
    :raises MergeConfigError: when an expression or the query of the config is not one.
    :raises StaleMergeError: when a later generation of the identity's application was committed.
    :raises MergeExecutionError: with Delta's or Spark's error condition, when the merge is refused or fails;
        the table is as it was.
    """
    gateway = Gateway(spark)
    _check_expressions(gateway, config)
    guard = None if identity is None else ExactlyOnce(identity, digest(config.to_json()))
    with _source_relation(spark, config) as relation:

        def attempt(number: int) -> MergeResult:
            statement = _with_its_columns(spark, config).to_sql(source_relation=relation)
            return _run(gateway, statement, guard=guard, attempt=number, update_only_changed=config.update_only_changed)

        return until_committed(gateway, attempt, max_commit_attempts)


@raises_merge_errors
def merge_sql(
    spark: SparkSession,
    statement: str,
    *,
    identity: MergeIdentity | None = None,
    max_commit_attempts: int = MAX_COMMIT_ATTEMPTS,
) -> MergeResult:
    """Run a ``MERGE INTO`` statement by this engine and commit.

    :param identity: as for :func:`merge`.
    :param max_commit_attempts: as for :func:`merge`.
    :raises MergeConfigError: when the statement is no MERGE into a Delta table.
    :raises StaleMergeError: when a later generation of the identity's application was committed.
    :raises MergeExecutionError: with Delta's or Spark's error condition, when the merge is refused or fails;
        the table is as it was.
    """
    gateway = Gateway(spark)
    guard = None if identity is None else ExactlyOnce(identity, digest(statement))
    return until_committed(
        gateway, lambda attempt: _run(gateway, statement, guard=guard, attempt=attempt), max_commit_attempts
    )


def _run(
    gateway: Gateway,
    statement: str,
    *,
    guard: ExactlyOnce | None,
    attempt: int,
    update_only_changed: bool = False,
) -> MergeResult:
    metrics = MergeMetrics()
    with metrics.phase("total"):
        with metrics.phase("resolve"):
            resolved = ResolvedMerge(gateway, statement)
            metrics.bind(resolved.sql_metrics())
        command = MergeIntoCommand(
            gateway, resolved, metrics, guard=guard, attempt=attempt, update_only_changed=update_only_changed
        )
        command.run_merge()
    return command.result()


def _check_expressions(gateway: Gateway, config: MergeConfig) -> None:
    """Each expression must be whole by itself, so that none can end its clause and begin another one."""
    require_expression(gateway, config.condition_sql, "condition in on")
    for clause in config.clauses:
        if clause.condition is not None:
            require_expression(gateway, clause.condition, f"condition of the {clause.kind} {clause.action} clause")
        for column, value in clause.values:
            require_expression(
                gateway, value, f"value of column {column!r} in the {clause.kind} {clause.action} clause"
            )
    if config.source.query is not None:
        require_query(gateway, config.source.query)


def _with_its_columns(spark: SparkSession, config: MergeConfig) -> MergeConfig:
    """The config with the target's columns, as they are now, where its clauses take all columns but some."""
    if not config.has_star_exceptions:
        return config
    return config.with_target_columns(spark.table(config.target.to_sql()).columns)


@contextmanager
def _source_relation(spark: SparkSession, config: MergeConfig) -> Iterator[str | None]:
    """The name of a temporary view over the source's files, where SQL cannot express how to read them."""
    source = config.source
    if not source.needs_view:
        yield None
        return
    view = f"merge_source_{uuid.uuid4().hex}"
    reader = spark.read.format(source.format or "").options(**dict(source.options))
    reader.load(list(source.paths)).createOrReplaceTempView(view)
    try:
        yield quote_identifier(view)
    finally:
        spark.catalog.dropTempView(view)


class MergeIntoCommand:
    """Runs a merge that Delta's analyzer has resolved.

    :param gateway: the session's JVM.
    :param statement: the resolved merge.
    :param metrics: where row counts, file counts and durations go.
    :param guard: sees to it that the merge is committed once, if its caller said who it is.
    :param attempt: which commit attempt this is, from 1.
    :param update_only_changed: whether rows that an update would leave as they are stay untouched.
    """

    def __init__(
        self,
        gateway: Gateway,
        statement: ResolvedMerge,
        metrics: MergeMetrics,
        *,
        guard: ExactlyOnce | None,
        attempt: int,
        update_only_changed: bool,
    ) -> None:
        self._gateway = gateway
        self._statement = statement
        self._metrics = metrics
        self._guard = guard
        self._attempt = attempt
        self._recorded: MergeResult | None = None
        self._update_only_changed = update_only_changed
        self._executor = ""
        self._reason = ""
        self._version_read = -1
        self._version: int | None = None
        self._touched = 0

    def run_merge(self) -> None:
        """Start a transaction, merge within it and commit, or leave the table as it is."""
        transaction = MergeTransaction(self._gateway, self._statement)
        try:
            self._version_read = transaction.version_read
            if self._guard is not None:
                self._recorded = self._guard.recorded_result(transaction, self._statement.table_name())
                if self._recorded is not None:
                    return
            if transaction.has_been_executed():
                self._reason = "the session's transaction (txnAppId, txnVersion) was committed before: nothing to do"
                return
            transaction.prepare()
            self._merge_within(transaction)
        finally:
            transaction.close()
        if self._version is not None:
            self._statement.recache_target()

    def _merge_within(self, transaction: MergeTransaction) -> None:
        metrics, names = self._metrics, ColumnNames()
        keys = source_keys(self._statement, prefix=names.statistic)
        with metrics.phase("source", "materializeSourceTimeMs"), self._described("materialize source"):
            source = materialize_source(
                self._gateway,
                self._statement,
                row_id=names.source_row_id,
                statistics=[statistic for key in keys for statistic in key.statistics()],
            )
        try:
            metrics.set(numSourceRows=source.num_rows, operationNumSourceRows=source.num_rows)
            clusters: dict[str, list[Range]] = {}
            if transaction.table_size()[0] >= SMALLEST_TABLE_TO_CLUSTER:
                with metrics.phase("source", "materializeSourceTimeMs"), self._described("find the source's ranges"):
                    clusters = key_clusters(source.frame, keys, source.statistics)
            context = MergeContext(
                gateway=self._gateway,
                statement=self._statement,
                transaction=transaction,
                write=TransactionalWrite(self._gateway, transaction),
                source=source,
                candidate_predicates=candidate_predicates(self._statement, keys, source.statistics, clusters),
                names=names,
                metrics=metrics,
                update_only_changed=self._update_only_changed,
            )
            with self._described("find and write changes"):
                actions = self._execute(context)
            with metrics.phase("commit"):
                metrics.set(executionTimeMs=metrics.elapsed_ms())
                self._version = self._commit(context, actions)
        finally:
            source.release()

    def _commit(self, context: MergeContext, actions: JavaObject) -> int | None:
        if self._guard is None:
            return context.write.commit(actions)
        record = self._guard.record(self.result(), context.transaction.session_user_metadata)
        return context.write.commit(actions, application=self._guard.application, user_metadata=record)

    def _described(self, step: str) -> AbstractContextManager[None]:
        return self._gateway.describing_jobs(f"MERGE operation - {step}")

    def _execute(self, context: MergeContext) -> JavaObject:
        """Run the executor that fits; give the file actions to commit."""
        insert_only = bool(context.insert_clauses) and not context.target_clauses
        switch = "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled"
        if insert_only and self._gateway.flag(switch):
            inserts = InsertOnlyMergeExecutor(context)
            added = inserts.write_only_inserts()
            self._executor, self._reason = type(inserts).__name__, inserts.reason
            return added
        classic = ClassicMergeExecutor(context)
        self._executor = type(classic).__name__
        touched = classic.find_touched_files()
        try:
            if touched.files.count:
                self._touched = touched.files.count
                actions = classic.write_all_changes(touched)
                self._reason = classic.reason
                return actions
            if context.insert_clauses:
                self._reason = "no file is touched: the unmatched source rows are appended"
                with context.metrics.phase("rewrite", "rewriteTimeMs"):
                    return write_inserts(context, classic.unmatched_rows(touched))
            self._reason = "no file is touched and there is nothing to insert"
            return self._gateway.seq([])
        finally:
            touched.matches.unpersist()

    def result(self) -> MergeResult:
        """What was done, with all metrics."""
        if self._recorded is not None:
            return self._recorded
        values = self._metrics.values
        changed = [values[f"numTargetRows{what}"] for what in ("Updated", "Deleted", "Inserted")]
        return MergeResult(
            table=self._statement.table_name(),
            version_read=self._version_read,
            version=self._version,
            executor=self._executor,
            executor_reason=self._reason,
            num_affected_rows=sum(changed),
            num_updated_rows=changed[0],
            num_deleted_rows=changed[1],
            num_inserted_rows=changed[2],
            num_files_before_skipping=values["numTargetFilesBeforeSkipping"],
            num_bytes_before_skipping=values["numTargetBytesBeforeSkipping"],
            num_candidate_files=values["numTargetFilesAfterSkipping"],
            num_candidate_bytes=values["numTargetBytesAfterSkipping"],
            num_touched_files=self._touched,
            num_removed_files=values["numTargetFilesRemoved"],
            num_removed_bytes=values["numTargetBytesRemoved"],
            num_added_files=values["numTargetFilesAdded"],
            num_added_bytes=values["numTargetBytesAdded"],
            num_deletion_vectors_added=values["numTargetDeletionVectorsAdded"],
            num_deletion_vectors_removed=values["numTargetDeletionVectorsRemoved"],
            num_deletion_vectors_updated=values["numTargetDeletionVectorsUpdated"],
            metrics=dict(values),
            durations_ms=dict(self._metrics.durations_ms),
            num_commit_attempts=self._attempt,
        )
