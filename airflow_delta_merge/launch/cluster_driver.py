"""A driver on a cluster, seen from the task that waits for it: submits it, follows it, and fetches its result."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from airflow.providers.common.compat.sdk import redact

from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.shared_folder import fetch, local_path
from airflow_delta_merge.launch.spark_application import ApplicationEnd
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.staging import Staging
from airflow_delta_merge.launch.submitted_application import SubmittedApplication

_POLL_SECONDS = 1.0

log = logging.getLogger(__name__)


def submit_application(submit: SparkSubmit, staging: Staging) -> int:
    """End earlier tries on the cluster, run spark-submit, and return its exit code."""
    mode = submit.cluster_mode
    if mode is not None and (ended := mode.manager.end(mode.application)):
        log.info("Ended Spark application %s of an earlier try", ", ".join(ended))
    exit_code = submit.run(str(staging.application))
    if exit_code != 0 and mode is not None and not mode.waits:
        submit.end_on_cluster()  # the cluster may have accepted it nevertheless
    return exit_code


def follow(submit: SparkSubmit) -> ApplicationEnd:
    """Follow an application on the cluster to its end, or until Airflow kills it."""
    try:
        return _followed(submit)
    except BaseException:  # the task's execution_timeout: Airflow calls on_kill only when the hook has let go of it
        submit.end_on_cluster()
        raise


def _followed(submit: SparkSubmit) -> ApplicationEnd:
    assert submit.cluster_mode is not None
    application = SubmittedApplication(submit.cluster_mode, submit.application, shows_all=True)
    while not submit.killed:
        known = application.application
        lines, end = application.poll()
        for line in lines:
            log.info("%s", line)
        if application.application is not None and application.application != known:
            submit.report_application(application.application)
        if end is not None:
            return end
        time.sleep(_POLL_SECONDS)
    return ApplicationEnd(application=application.application)


def with_result(
    end: ApplicationEnd, submit: SparkSubmit, staging: Staging, begin: Callable[[SparkSubmit], SparkSubmit]
) -> ApplicationEnd:
    """Add the fetched result to an application's end, or the reason why there is none.

    :param submit: the application's spark-submit.
    :param begin: called with another spark-submit that is about to run, which Airflow must be able to kill.
    """
    failure = _fetch(submit, staging, begin)
    outcome = staging.read_outcome()
    if outcome is not None:
        return replace(end, outcome=outcome, error=None)
    error = failure or end.error or "Spark left no result. Its driver's log on the cluster has the reason."
    return replace(end, error=str(redact(error)))


def _fetch(submit: SparkSubmit, staging: Staging, begin: Callable[[SparkSubmit], SparkSubmit]) -> str | None:
    """Fetch the result that the driver on the cluster wrote. Returns a sentence if that isn't possible."""
    cluster_mode = submit.cluster_mode
    assert cluster_mode is not None
    submit.end_on_cluster()  # only needed if spark-submit was killed, or the driver can't start
    here = local_path(cluster_mode.result)
    failure = _fetch_by_spark(submit, cluster_mode, staging, begin) if here is None else fetch(here, staging)
    if staging.result.exists():
        _clean_up(cluster_mode)
    return None if failure is None else f"its result could not be fetched from {cluster_mode.result}: {failure}"


def _fetch_by_spark(
    submit: SparkSubmit, cluster_mode: ClusterMode, staging: Staging, begin: Callable[[SparkSubmit], SparkSubmit]
) -> str | None:
    uris = ["--uri", cluster_mode.result, "--folder", cluster_mode.result_folder]
    fetching = begin(submit.local_copy([*uris, "--result", str(staging.result)]))
    exit_code = fetching.run(str(staging.write_application("fetch_result")))
    return None if exit_code == 0 else fetching.output.reason


def _clean_up(cluster_mode: ClusterMode) -> None:
    try:
        cluster_mode.manager.clean_up(cluster_mode.submission)
    except DeltaMergeError as error:  # must not fail the merge, since the result was fetched
        log.warning("Could not clean up after the Spark application on the cluster: %s", error)
