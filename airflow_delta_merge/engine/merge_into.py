"""One merge, from its statement to the commit: :class:`MergeIntoCommand`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from airflow_delta_merge.config import MergeEngine
from airflow_delta_merge.engine.column_lineage import trace_columns
from airflow_delta_merge.engine.column_names import ColumnNames
from airflow_delta_merge.engine.delta_jvm.calls import without_call_sites
from airflow_delta_merge.engine.delta_jvm.errors import raises_merge_errors
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.engine.delta_jvm.lineage import trees_of
from airflow_delta_merge.engine.delta_jvm.spark_ui import shown_in_spark_ui
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction
from airflow_delta_merge.engine.delta_jvm.usage import record_source_error, recorded_operation
from airflow_delta_merge.engine.merge_context import MergeContext
from airflow_delta_merge.engine.merge_report import MergeReport
from airflow_delta_merge.engine.metrics import MergeMetrics
from airflow_delta_merge.engine.progress import COMMIT, only_logged
from airflow_delta_merge.engine.read_once import read_once
from airflow_delta_merge.engine.settings import Settings
from airflow_delta_merge.engine.source.kept_rows import KeptRows
from airflow_delta_merge.engine.source.materialized import max_attempts
from airflow_delta_merge.engine.source.null_keys import NullKeys
from airflow_delta_merge.engine.started_merge import StartedMerge
from airflow_delta_merge.engine.strategies import Facts, Outcome, Strategy, builtin, fitting
from airflow_delta_merge.engine.strategies.facts import facts_after, facts_before
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from airflow_delta_merge.config.options import MergeOptions
    from airflow_delta_merge.contract.lineage import ColumnLineage
    from airflow_delta_merge.contract.merge_plan import MergePlan
    from airflow_delta_merge.contract.result import MergeResult
    from airflow_delta_merge.engine.allowed_locations import AllowedLocations
    from airflow_delta_merge.engine.exactly_once import ExactlyOnce

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Spark's condition for a part of the materialized source that is gone.
LOST_SOURCE = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"

#: Why a source is not materialized.
NO_MATERIALIZATION_REASON = "its rows are read once"


class MergeIntoCommand:
    """Resolves a MERGE statement and runs it.

    :param options: how it runs; for a config also the treatment of NULLs in its key columns.
    :param once: sees to it that the merge is committed once, if its caller said who it is.
    :param attempt: which commit attempt this is, from 1.
    :param num_bad_rows: how many bad rows the source's files have, which it doesn't see.
    :param kept_rows: keeps the rows that its guards set aside; None for a dry run, which keeps none.
    :param allowed: the locations that it may read and write.
    :param on_lineage: called after the merge with where the target's columns come from, if that can be determined.
    """

    def __init__(
        self,
        gateway: Gateway,
        statement: str,
        options: MergeOptions,
        *,
        once: ExactlyOnce | None = None,
        attempt: int = 1,
        num_bad_rows: int = 0,
        kept_rows: KeptRows | None = None,
        allowed: AllowedLocations | None = None,
        on_lineage: Callable[[ColumnLineage], None] | None = None,
    ) -> None:
        self._gateway = gateway
        self._metrics = MergeMetrics()
        self._options = options
        self._once = once
        self._is_dry_run = False
        self._null_keys = NullKeys.of(options)
        self._kept_rows = kept_rows
        self._on_lineage = on_lineage
        self._source_attempt = 0
        gateway.progress.step = "resolve the statement"
        with self._metrics.phase("resolve"):
            self._statement = ResolvedMerge(gateway, statement)
            gateway.progress.table = self._statement.table_name()
            if allowed is not None:
                allowed.check_merge(self._statement)
            self._metrics.bind(self._statement.sql_metrics())
        self._report = MergeReport(self._statement, self._metrics, attempt, num_bad_rows)

    def run_merge(self) -> MergeResult:
        """Start a transaction, merge within it and commit, or leave the table as it is."""
        recorded = self._until_source_is_kept(self._run_attempt)
        self._metrics.durations_ms["total"] = self._metrics.elapsed_ms()
        # What an earlier try committed may have come from elsewhere: source and table may be others by now.
        if self._on_lineage is not None and recorded is None:
            with only_logged("The merge is done, but where the target's columns come from could not be found out."):
                self._on_lineage(trace_columns(trees_of(self._gateway, self._statement)))
        return recorded or self._report.result()

    def plan_merge(self, *, explain: bool) -> MergePlan:
        """Find and count what the merge would do, without writing a file or committing.

        :param explain: whether to return Spark's physical plans.
        """
        self._is_dry_run = True
        self._null_keys = replace(self._null_keys, are_refused=False)  # as for guards
        return self._until_source_is_kept(lambda: self._plan_attempt(explain))

    def _until_source_is_kept(self, attempt: Callable[[], _T]) -> _T:
        """Run an attempt; give it up and begin anew when its materialized source gets lost with an executor."""
        attempts = max_attempts(self._gateway)
        shown = shown_in_spark_ui(self._gateway, self._statement, is_dry_run=self._is_dry_run)
        with without_call_sites(), shown:
            self._statement.refuse_streams()
            self._statement.refuse_void_columns()
            while True:
                self._source_attempt += 1
                try:
                    with raises_merge_errors():
                        return attempt()
                except MergeExecutionError as error:
                    self._null_keys.raise_if_met(error)
                    is_last = self._source_attempt >= attempts
                    if not self._is_dry_run:
                        self._record_source_error(error, is_last=is_last)
                    if error.condition != LOST_SOURCE:
                        raise
                    if is_last:
                        raise self._statement.source_lost_error() from error
                    _log.warning("Attempt %d lost parts of the merge's source, trying again.", self._source_attempt)
                    self._metrics.bind(self._statement.sql_metrics())

    def _record_source_error(self, error: MergeExecutionError, *, is_last: bool) -> None:
        is_lost, level = error.condition == LOST_SOURCE, self._report.storage_level
        if level and (is_last or not is_lost):
            record_source_error(
                self._gateway,
                self._statement,
                error,
                is_lost=is_lost,
                attempt=self._source_attempt,
                storage_level=level,
            )

    def _run_attempt(self) -> MergeResult | None:
        """Merge and commit, or return the result that an earlier try of this execution recorded."""
        with recorded_operation(self._gateway, self._statement), self._transaction() as transaction:
            transaction.require_one_writer_each()
            if self._once is not None:
                recorded = self._once.recorded_result(transaction, self._statement.table_name())
                if recorded is not None:
                    return recorded
            if transaction.has_been_executed():
                self._report.reason = (
                    "the session's transaction (txnAppId, txnVersion) was committed before: nothing to do"
                )
                return None
            transaction.prepare()
            started = self._started(transaction)
            if self._options.engine is MergeEngine.BUILTIN:
                self._report.executor = builtin.EXECUTOR
                self._report.materialization = str(self._statement.materialization[1])
                with self._gateway.step("find and write changes"):
                    outcome = builtin.merge_by_builtin(started)
                self._commit(transaction, outcome)
            elif fits := fitting(facts := facts_before(started)):
                self._commit(transaction, self._carried_out(fits, started, facts))
            else:
                with self._read_once(started) as context:
                    facts = facts_after(facts, context)
                    self._commit(transaction, self._carried_out(fitting(facts), context, facts))
            with only_logged("The merge is committed, but Spark could not record Delta's merge statistics."):
                transaction.record_statistics(
                    self._report.version, self._statement.materialization[1], self._source_attempt
                )
        if self._report.version is not None:
            with only_logged("The merge is committed, but Spark could not renew cached plans that read the table."):
                self._statement.recache_target()
        return None

    def _plan_attempt(self, explain: bool) -> MergePlan:
        with self._transaction() as transaction:
            transaction.prepare()
            started = self._started(transaction)
            facts = facts_before(started)
            if fits := fitting(facts):
                return self._previewed(fits, started, facts, explain=explain)
            with self._read_once(started) as context:
                facts = facts_after(facts, context)
                return self._previewed(fitting(facts), context, facts, explain=explain)

    def _carried_out(self, fits: Sequence[tuple[Strategy, str]], merge: StartedMerge, facts: Facts) -> Outcome:
        """What the first of the strategies that holds has written."""
        with self._gateway.step("find and write changes"):
            for strategy, reason in fits:
                self._about(strategy, reason, facts)
                outcome = strategy.run(merge, facts, reason)
                if outcome is not None:
                    return outcome
        raise AssertionError("The last strategy always holds.")

    def _previewed(
        self, fits: Sequence[tuple[Strategy, str]], merge: StartedMerge, facts: Facts, *, explain: bool
    ) -> MergePlan:
        strategy, reason = fits[0]
        self._about(strategy, reason, facts)
        with self._gateway.step("plan"):
            preview = strategy.preview(merge, facts, reason, explain=explain)
        self._report.reason, self._report.num_touched_files = preview.reason, preview.num_touched_files
        return self._report.plan(preview.touched_bytes, preview.spark_plans)

    def _about(self, strategy: Strategy, reason: str, facts: Facts) -> None:
        self._report.executor = strategy.executor
        if not facts.source_is_read:
            _log.info("The source is not kept: %s", reason)
            self._report.storage_level, self._report.materialization = "", NO_MATERIALIZATION_REASON
            self._report.num_null_keys = self._null_keys.refuse_while_read(self._statement)

    @cached_property
    def _settings(self) -> Settings:
        return Settings.of(self._gateway)

    @contextmanager
    def _transaction(self) -> Iterator[MergeTransaction]:
        settings = self._settings
        transaction = MergeTransaction(
            self._gateway, self._statement, use_checksum=settings.use_checksum, list_files=settings.shortcuts
        )
        try:
            self._report.version_read = transaction.version_read
            yield transaction
        finally:
            transaction.close()

    def _started(self, transaction: MergeTransaction) -> StartedMerge:
        return StartedMerge(
            gateway=self._gateway,
            statement=self._statement,
            transaction=transaction,
            names=ColumnNames(),
            metrics=self._metrics,
            settings=self._settings.of_table(transaction.table_property),
            options=self._options,
            source_attempt=self._source_attempt,
        )

    def _read_once(self, started: StartedMerge) -> AbstractContextManager[MergeContext]:
        return read_once(started, self._report, self._null_keys, self._kept_rows, is_dry_run=self._is_dry_run)

    def _commit(self, transaction: MergeTransaction, outcome: Outcome) -> None:
        self._report.reason, self._report.num_touched_files = outcome.reason, outcome.num_touched_files
        _log.info("Ready to commit: %s", self._report.changed_rows())
        self._gateway.progress.step = COMMIT
        with self._metrics.phase("commit"):
            self._metrics.set(executionTimeMs=self._metrics.elapsed_ms())
            if self._once is None:
                self._report.version = transaction.commit(outcome.actions)
                return
            record = self._once.record(self._report.result(), transaction.session_user_metadata)
            self._report.version = transaction.commit(
                outcome.actions, application=self._once.application, user_metadata=record
            )
