"""One merge from statement to commit: :class:`MergeIntoCommand` and the engine's public functions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeConfig
from airflow_delta_merge.engine.classic_merge import ClassicMergeExecutor
from airflow_delta_merge.engine.delta_jvm import DeltaJvm, JavaObject, raises_merge_errors
from airflow_delta_merge.engine.insert_only_merge import InsertOnlyMergeExecutor, write_inserts
from airflow_delta_merge.engine.merge_context import ColumnNames, MergeContext
from airflow_delta_merge.engine.metrics import MergeMetrics
from airflow_delta_merge.engine.pruning import candidate_predicates, source_keys
from airflow_delta_merge.engine.source import materialize_source
from airflow_delta_merge.engine.transactional_write import TransactionalWrite
from airflow_delta_merge.identifiers import quote_identifier
from airflow_delta_merge.result import MergeResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@raises_merge_errors
def merge(spark: SparkSession, config: MergeConfig) -> MergeResult:
    """Merge as ``config`` says and commit.

    :param spark: a classic session with Delta's extension and catalog.
    :raises MergeConfigError: when an expression or the query of the config is not one.
    :raises MergeExecutionError: with Delta's or Spark's error condition, when the merge is refused or fails;
        the table is as it was.
    """
    delta = DeltaJvm(spark)
    _check_expressions(delta, config)
    with _source_relation(spark, config) as relation:
        return _run(delta, config.to_sql(source_relation=relation))


@raises_merge_errors
def merge_sql(spark: SparkSession, statement: str) -> MergeResult:
    """Run a ``MERGE INTO`` statement by this engine and commit.

    :raises MergeConfigError: when the statement is no MERGE into a Delta table.
    :raises MergeExecutionError: with Delta's or Spark's error condition, when the merge is refused or fails;
        the table is as it was.
    """
    return _run(DeltaJvm(spark), statement)


def _run(delta: DeltaJvm, statement: str) -> MergeResult:
    metrics = MergeMetrics()
    with metrics.phase("total"):
        with metrics.phase("resolve"):
            command = delta.resolve(statement)
            metrics.bind(delta.sql_metrics(command))
        runner = MergeIntoCommand(delta, command, metrics)
        runner.run_merge()
    return runner.result()


def _check_expressions(delta: DeltaJvm, config: MergeConfig) -> None:
    """Each expression must be whole by itself, so that none can end its clause and begin another one."""
    delta.require_expression(config.condition_sql, "condition in on")
    for clause in config.clauses:
        if clause.condition is not None:
            delta.require_expression(clause.condition, f"condition of the {clause.kind} {clause.action} clause")
        for column, value in clause.values:
            delta.require_expression(value, f"value of column {column!r} in the {clause.kind} {clause.action} clause")
    if config.source.query is not None:
        delta.require_query(config.source.query)


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

    :param delta: the JVM classes of the session.
    :param command: Delta's resolved command.
    :param metrics: where row counts, file counts and durations go.
    """

    def __init__(self, delta: DeltaJvm, command: JavaObject, metrics: MergeMetrics) -> None:
        self._delta = delta
        self._command = command
        self._metrics = metrics
        self._names = ColumnNames()
        self._executor = ""
        self._reason = ""
        self._version_read = -1
        self._version: int | None = None
        self._touched = 0

    def run_merge(self) -> None:
        """Start a transaction, merge within it and commit, or leave the table as it is."""
        transaction = self._delta.start_transaction(self._command)
        try:
            self._version_read = self._delta.version_read(transaction)
            if self._delta.has_been_executed(self._command, transaction):
                self._reason = "the session's transaction (txnAppId, txnVersion) was committed before: nothing to do"
                return
            self._delta.prepare_transaction(self._command, transaction)
            self._merge_within(transaction)
        finally:
            self._delta.clear_transaction()
        if self._version is not None:
            self._delta.recache_target(self._command)

    def _merge_within(self, transaction: JavaObject) -> None:
        metrics = self._metrics
        copied = self._delta.copied_columns(self._command)
        clauses = self._delta.clauses(self._command, copied)
        with metrics.phase("source", "materializeSourceTimeMs"):
            keys = source_keys(self._delta, self._command, prefix=self._names.statistic)
            source = materialize_source(
                self._delta,
                self._command,
                row_id=self._names.source_row_id,
                statistics=[statistic for key in keys for statistic in key.statistics()],
            )
        try:
            metrics.set(numSourceRows=source.num_rows, operationNumSourceRows=source.num_rows)
            context = MergeContext(
                delta=self._delta,
                command=self._command,
                write=TransactionalWrite(self._delta, transaction),
                source=source,
                copied=copied,
                clauses=clauses,
                names=self._names,
                metrics=metrics,
                candidate_predicates=candidate_predicates(self._delta, self._command, clauses, keys, source.statistics),
            )
            actions = self._execute(context)
            with metrics.phase("commit"):
                metrics.set(executionTimeMs=metrics.elapsed_ms())
                self._version = context.write.commit(self._command, actions)
        finally:
            source.release()

    def _execute(self, context: MergeContext) -> JavaObject:
        """Run the executor that fits; give the file actions to commit."""
        insert_only = bool(context.insert_clauses) and not context.target_clauses
        switch = "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled"
        if insert_only and self._delta.flag(switch):
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
            return self._delta.seq([])
        finally:
            touched.matches.unpersist()

    def result(self) -> MergeResult:
        """What was done, with all metrics."""
        values = self._metrics.values
        changed = [values[f"numTargetRows{what}"] for what in ("Updated", "Deleted", "Inserted")]
        return MergeResult(
            table=self._delta.table_name(self._command),
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
        )
