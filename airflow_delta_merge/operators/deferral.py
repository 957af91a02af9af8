"""Frees a task's worker while a trigger follows its Spark application."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_delta_merge.links.delta_merge import SparkApplicationLink, address_while_running
from airflow_delta_merge.triggers.delta_merge import DeltaMergeTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_delta_merge.launch.started_application import StartedApplication
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

_TIME_FOR_TRIGGER = timedelta(minutes=1)


def defer_until_end(
    operator: DeltaMergeOperator, context: Context, started: StartedApplication, **details: Any
) -> NoReturn:
    """Defer a task until its application has ended, or until its ``execution_timeout``.

    :param started: the application.
    :param details: further arguments of ``execute_complete``.
    """
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
        kwargs={"started": started.to_dict(), **details},
        timeout=timeout,
    )
