"""Starts a task's merge, and frees the worker while a trigger follows its Spark application."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.links.delta_merge import SparkApplicationLink, address_while_running
from airflow_delta_merge.operators.task_links import link_application
from airflow_delta_merge.triggers.delta_merge import DeltaMergeTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_delta_merge.config import MergeConfig, MergeStatement
    from airflow_delta_merge.contract.identity import MergeIdentity
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

_TIME_FOR_TRIGGER = timedelta(minutes=1)


def start_and_defer(
    operator: DeltaMergeOperator,
    context: Context,
    configs: list[MergeConfig | MergeStatement],
    identity: MergeIdentity | None,
    *,
    lineage: bool,
) -> NoReturn:
    """Start the merge, and leave this worker until it has ended or the task's ``execution_timeout`` has passed.

    :param configs: what is merged; one unless the operator has ``merges``.
    :param identity: identifies the merge in the tables; None to merge each time.
    :param lineage: whether the job reports the lineage of the targets' columns.
    """
    request = JobRequest(
        merges=configs[0] if operator.merges is None else configs,
        identity=identity,
        max_commit_attempts=operator.max_commit_attempts,
        lineage=lineage,
    )
    started = operator.hook.start(request, on_application=partial(link_application, operator, context))
    history_server_url = operator.hook.settings.history_server_url
    if started.application is not None:
        # Airflow stores the links when a task is deferred, too.
        address = address_while_running(history_server_url, started.application)
        operator.link_addresses[SparkApplicationLink().xcom_key] = address
    operator.log.info("%s", started)
    deadline, timeout = None, None
    if operator.execution_timeout is not None:
        ends = (context["ti"].start_date or datetime.now(UTC)) + operator.execution_timeout
        # The trigger ends Spark in time; Airflow's own timeout is for want of a triggerer.
        deadline, timeout = ends.timestamp(), ends - datetime.now(UTC) + _TIME_FOR_TRIGGER
    operator.defer(
        trigger=DeltaMergeTrigger(started=started.to_dict(), deadline=deadline, history_server_url=history_server_url),
        method_name="execute_complete",
        kwargs={
            "started": started.to_dict(),
            "targets": [config.target.to_dict() for config in configs],
            "on_empty_source": configs[0].guards.on_empty_source,
            "exactly_once": identity is not None,
            **operator.arguments_to_resume(),
        },
        timeout=timeout,
    )
