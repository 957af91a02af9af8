"""The hook that runs merges: starts spark-submit with the job, the engine and Delta's jars, and reads the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import BaseHook, redact

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.connections.conf import check_conf
from airflow_delta_merge.connections.secrets import mask_secrets
from airflow_delta_merge.connections.spark import (
    CONNECTION_TYPE,
    DEFAULT_CONNECTION,
    ConnectionSettings,
)
from airflow_delta_merge.contract.identity import MAX_COMMIT_ATTEMPTS, MergeIdentity
from airflow_delta_merge.contract.lineage import ColumnLineage
from airflow_delta_merge.contract.merge_plan import MergePlan
from airflow_delta_merge.contract.outcome import JobOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import DeltaMergeError, MergeConfigError
from airflow_delta_merge.launch.cluster_driver import follow, submit_application, with_result
from airflow_delta_merge.launch.connection_test import connection_test
from airflow_delta_merge.launch.deferred_start import DeferredStart
from airflow_delta_merge.launch.errors import error_of_exit, raised_for_airflow, target_or_number
from airflow_delta_merge.launch.option_checks import ALL_BUT_CONF, check_option
from airflow_delta_merge.launch.preparation import Preparation
from airflow_delta_merge.launch.results import outcome_of, result_of, results_of
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.staging import Staging, staged
from airflow_delta_merge.launch.started_application import StartedApplication
from airflow_delta_merge.launch.submitted_application import SubmittedApplication
from airflow_delta_merge.launch.warm import WarmMerge

_Running = TypeVar("_Running", SparkSubmit, WarmMerge, DeferredStart)


class DeltaMergeHook(BaseHook):
    """Runs merges with spark-submit. The connection says where Spark runs; without one it runs on this machine.

    With a ``local`` master Spark gets settings for small data, which ``conf`` can override: as many shuffle partitions
    as cores (at least two), two partitions for Delta's snapshots, and no web UI. It then listens only on localhost,
    unless the environment has ``SPARK_LOCAL_IP``.

    :param conn_id: a connection of type ``delta_merge`` or :ref:`spark <howto/connection:spark>`. If the connection
        ``spark_default`` doesn't exist, Spark runs as ``local[*]`` on this machine; any other connection must exist.
        Deploy mode ``cluster``, on YARN and Kubernetes, needs a ``result_path`` in its extra.
    :param conf: Spark properties; they take precedence over the connection's.
    :param keep_warm: how many seconds Spark stays on this machine after a merge to take the next one of the same
        kind. 0 ends it with the merge; None uses the connection's setting.
    :param spark_options: further arguments of Airflow's ``SparkSubmitHook``, as in
        :class:`~airflow_delta_merge.operators.spark_options.SparkOptions`: ``jars`` and ``packages`` beside Delta's own
        jars, ``driver_memory`` (1 GB by default), ``executor_memory``, ``name``, ``verbose`` …
    :ivar preparation: prepares its spark-submits.
    :raises MergeConfigError: when an option has a wrong type, or ``conf`` a name that is not allowed.
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = CONNECTION_TYPE
    hook_name = "Delta Merge"

    def __init__(
        self,
        *,
        conn_id: str = default_conn_name,
        conf: Mapping[str, Any] | None = None,
        keep_warm: float | None = None,
        **spark_options: Any,
    ) -> None:
        super().__init__()
        given = {"conn_id": conn_id, "keep_warm": keep_warm, **spark_options}
        for option in ALL_BUT_CONF:
            if option in given:
                check_option(option, given[option])
        if conf is not None and not isinstance(conf, Mapping):
            raise MergeConfigError("conf must be a dict of Spark's properties.")
        check_conf(dict(conf or {}))
        self.conn_id = conn_id
        self.preparation = Preparation(conn_id, conf or {}, {"name": "delta-merge", **spark_options})
        self._libraries = [spark_options.get("jars"), spark_options.get("packages")]
        self._keep_warm = keep_warm
        self._running: SparkSubmit | WarmMerge | DeferredStart | None = None
        self._killed = False

    @property
    def settings(self) -> ConnectionSettings:
        """The connection's settings other than where Spark runs.

        :raises DeltaMergeException: when the connection does not exist.
        """
        with raised_for_airflow():
            return self.preparation.settings

    def get_conn(self) -> None:
        """Do nothing: each merge starts its own Spark application."""

    def test_connection(self) -> tuple[bool, str]:
        """Check, without starting Spark, that this machine has what a merge needs.

        :return: whether it has everything, and sentences about what was found, is missing, or was not tested.
        """
        return connection_test(self.preparation)

    def merge(
        self,
        config: MergeConfig | MergeStatement,
        *,
        identity: MergeIdentity | None = None,
        max_commit_attempts: int = MAX_COMMIT_ATTEMPTS,
        on_application: Callable[[SparkApplication], None] | None = None,
        on_lineage: Callable[[ColumnLineage], None] | None = None,
    ) -> MergeResult:
        """Run one merge to its end.

        :param config: the merge, as a config or a statement.
        :param identity: identifies the merge in the table's log, so that it is committed once, regardless of the number
            of tries. None commits it at each call.
        :param max_commit_attempts: how often the merge is computed if other writers' commits conflict with it.
        :param on_application: called when the Spark application has started.
        :param on_lineage: called with the lineage of the target's columns, unless an earlier try did the merge.
        :return: the result of the merge, or the one that an earlier try recorded in the table's log.
        :raises DeltaMergeException: when it failed;
            :class:`~airflow_delta_merge.task_exceptions.DeltaMergeFailException` if a retry cannot help.
        """
        request = JobRequest(
            merges=config,
            identity=identity,
            max_commit_attempts=max_commit_attempts,
            lineage=on_lineage is not None,
        )
        return result_of(self._run(request, on_application), on_lineage)

    def merge_all(
        self,
        configs: Sequence[MergeConfig | MergeStatement],
        *,
        identity: MergeIdentity | None = None,
        max_commit_attempts: int = MAX_COMMIT_ATTEMPTS,
        on_application: Callable[[SparkApplication], None] | None = None,
        on_lineage: Callable[[int, ColumnLineage], None] | None = None,
    ) -> list[MergeResult | None]:
        """Run several merges in one Spark application: in parallel, but one after the other into the same target.

        :param configs: the merges, at least one.
        :param identity: as for :meth:`merge`. Each merge gets its own, derived from this one and its target.
        :param max_commit_attempts: as for :meth:`merge`, for each merge.
        :param on_application: called when the Spark application has started.
        :param on_lineage: called with a merge's position, from 0, and the lineage of its target's columns.
        :return: the result of each merge, in the order of ``configs``; None for one that its guards skipped.
        :raises DeltaMergeException: when some failed, after all others are done. With an identity, the next try returns
            what was committed.
        """
        request = JobRequest(
            merges=configs,
            identity=identity,
            max_commit_attempts=max_commit_attempts,
            lineage=on_lineage is not None,
        )
        return results_of(self._run(request, on_application), on_lineage)

    def plan(self, config: MergeConfig | MergeStatement, *, explain: bool = False) -> MergePlan:
        """Count what a merge would do, without committing or leaving a file.

        :param config: the merge.
        :param explain: whether ``spark_plans`` of the plan has Spark's physical plans.
        :raises DeltaMergeException: when it failed, as the merge would.
        """
        (outcome,) = self._run(JobRequest(merges=config, dry_run=True, explain=explain)).merges
        assert outcome.plan is not None
        plan = outcome.plan
        # Plans contain paths, and the caller may store them anywhere.
        return replace(plan, spark_plans={name: str(redact(text)) for name, text in plan.spark_plans.items()})

    def _run(self, request: JobRequest, on_application: Callable[[SparkApplication], None] | None = None) -> JobOutcome:
        self._mask_secrets(request)
        outcome = self._run_warm(request, on_application) if self._seconds_to_keep else None
        if outcome is None:
            outcome = self._run_cold(request, on_application)
        self.preparation.make_class_archive()
        return outcome

    @property
    def _seconds_to_keep(self) -> float:
        return self.settings.keep_warm if self._keep_warm is None else self._keep_warm

    def _run_cold(self, request: JobRequest, on_application: Callable[[SparkApplication], None] | None) -> JobOutcome:
        """Run a request in its own Spark."""
        try:
            with raised_for_airflow(), staged() as staging:
                submit = self._begin(self.preparation.for_merge(staging, request, on_application))
                end = self._end_of(submit, staging)
                return self._outcome_of(end, request, killed=submit.killed)
        finally:
            self._running = None

    def _run_warm(
        self, request: JobRequest, on_application: Callable[[SparkApplication], None] | None
    ) -> JobOutcome | None:
        """Run a request in a kept Spark; None if no further one can be kept."""
        warm = self._begin(WarmMerge(self.preparation, request, self._seconds_to_keep, on_application))
        try:
            with raised_for_airflow():
                end = warm.run()
                return None if end is None else self._outcome_of(end, request, killed=warm.killed)
        finally:
            self._running = None

    def _outcome_of(self, end: ApplicationEnd, request: JobRequest, *, killed: bool) -> JobOutcome:
        exactly_once = request.identity is not None
        return outcome_of(end, _targets(request), killed=killed, exactly_once=exactly_once, conn_id=self.conn_id)

    def _mask_secrets(self, request: JobRequest) -> None:
        """Make Airflow mask the secrets passed to Spark, in case no operator did."""
        mask_secrets([merge.to_dict() for merge in request.each_merge], self.preparation.conf, self._libraries)

    def _end_of(self, submit: SparkSubmit, staging: Staging) -> ApplicationEnd:
        exit_code = submit_application(submit, staging)
        end = ApplicationEnd(exit_code=exit_code, reason=submit.output.reason)
        if submit.cluster_mode is None or submit.killed:
            return replace(end, outcome=staging.read_outcome())
        if not submit.cluster_mode.waits:
            if exit_code != 0:
                return end
            end = follow(submit)
            if submit.killed:
                return end
        return with_result(end, submit, staging, self._begin)

    def start(
        self, request: JobRequest, *, on_application: Callable[[SparkApplication], None] | None = None
    ) -> StartedApplication:
        """Start one or several merges that continue without this process.

        The caller follows the application, passes its end to :meth:`finish`, and passes what that returns to
        :meth:`result_of` or :meth:`results_of`.

        If the driver runs on this machine, this returns an application that an earlier try of the same execution
        started here for the same merge, if that runs or has a result. It ends others of the same application id.

        :param request: the merges and their options.
        :param on_application: called when the Spark application has started, if its driver runs on the cluster.
            Otherwise the process that follows the application learns of it.
        :raises DeltaMergeException: when it can't be started.
        """
        self._mask_secrets(request)
        with raised_for_airflow():
            inspected = self.preparation.for_inspection()
            if inspected.is_cluster:
                if self._seconds_to_keep:
                    self.preparation.check_keep_warm(inspected)
                return self._start_on_cluster(request, on_application)
            # It stays known after this method, so that on_kill ends it until the task is deferred.
            return self._begin(DeferredStart(self.preparation, request, self._seconds_to_keep)).start()

    def _start_on_cluster(
        self, request: JobRequest, on_application: Callable[[SparkApplication], None] | None
    ) -> SubmittedApplication:
        with staged() as staging:
            submit = self._begin(self.preparation.for_merge(staging, request, on_application, waits=False))
            exit_code = submit_application(submit, staging)
        if exit_code != 0:
            details = {"killed": submit.killed, "exactly_once": request.identity is not None}
            raise error_of_exit(exit_code, submit.output.reason, _targets(request), **details, conn_id=self.conn_id)
        assert submit.cluster_mode is not None
        return SubmittedApplication(submit.cluster_mode, submit.application)

    def finish(self, started: StartedApplication, end: ApplicationEnd) -> ApplicationEnd:
        """Fetch the result of an application from :meth:`start`, if it is not there yet, and clean up.

        :param started: the application.
        :param end: how it ended.
        :return: ``end`` with the result.
        :raises DeltaMergeException: when the result can't be read.
        """
        if started.cluster_mode is None:
            try:
                started.kill()
            except DeltaMergeError as error:  # must not hide how it ended
                self.log.warning("Could not clean up after the Spark application: %s", error)
            return end
        if end.timed_out:
            return end
        try:
            with raised_for_airflow(), staged() as staging:
                submit = self.preparation.for_result(staging, started.cluster_mode)
                return with_result(end, submit, staging, self._begin)
        finally:
            self._running = None

    def result_of(
        self,
        end: ApplicationEnd,
        target: str,
        *,
        exactly_once: bool,
        on_lineage: Callable[[ColumnLineage], None] | None = None,
    ) -> MergeResult:
        """The result of a merge from :meth:`start`.

        :param end: how its application ended.
        :param target: the target, as the statement names it.
        :param exactly_once: whether the merge had an identity.
        :param on_lineage: called with the lineage of the target's columns, if the application reports it.
        :raises DeltaMergeException: as for :meth:`merge`.
        """
        outcome = outcome_of(end, target, killed=False, exactly_once=exactly_once, conn_id=self.conn_id)
        return result_of(outcome, on_lineage)

    def results_of(
        self,
        end: ApplicationEnd,
        targets: str,
        *,
        exactly_once: bool,
        on_lineage: Callable[[int, ColumnLineage], None] | None = None,
    ) -> list[MergeResult | None]:
        """The results of several merges from :meth:`start`, like those of :meth:`merge_all`.

        :param end: how their application ended.
        :param targets: their only target or the number of targets, for messages.
        :param exactly_once: whether the merges had an identity.
        :param on_lineage: as for :meth:`merge_all`.
        :raises DeltaMergeException: as for :meth:`merge_all`.
        """
        outcome = outcome_of(end, targets, killed=False, exactly_once=exactly_once, conn_id=self.conn_id)
        return results_of(outcome, on_lineage)

    def on_kill(self) -> None:
        """End the Spark application of the running merge, if there is one. After this the hook starts no other.

        Airflow calls it from a signal handler, and the interrupted code goes on.
        """
        self._killed = True
        if self._running is not None:
            self._running.on_kill()

    def _begin(self, running: _Running) -> _Running:
        """Remember what :meth:`on_kill` ends. If the kill came first, this ends it before it starts."""
        self._running = running
        if self._killed:
            running.on_kill()
        return running


def _targets(request: JobRequest) -> str:
    return target_or_number([merge.target for merge in request.each_merge])
