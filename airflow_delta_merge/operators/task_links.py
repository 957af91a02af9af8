"""Links to what a task did: those that it learned while it ran, and its tab in Airflow's UI."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS, AIRFLOW_V_3_1_PLUS

from airflow_delta_merge.links.delta_merge import (
    CommitLink,
    SparkApplicationLink,
    address_while_running,
    commit_address,
    history_page,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_delta_merge.contract.result import MergeResult
    from airflow_delta_merge.launch.spark_application import SparkApplication
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

log = logging.getLogger(__name__)

#: The last part of the URL of a task instance's tab with its merges.
TAB_OF_MERGES = "delta_merge"


def merges_url(context: Context) -> str | None:
    """The URL of the task instance's tab with its merges; None before Airflow 3.1, whose UI has no such tab."""
    log_url = getattr(context.get("ti"), "log_url", None) if AIRFLOW_V_3_1_PLUS else None
    return f"{log_url.partition('?')[0]}/plugin/{TAB_OF_MERGES}" if log_url else None


def link_application(operator: DeltaMergeOperator, context: Context, application: SparkApplication) -> None:
    """Link to the application's own UI now, and from the task's end on to the history server if it has it."""
    keep_history_page(operator, application)
    if address := address_while_running(operator.hook.settings.history_server_url, application):
        context["ti"].xcom_push(key=SparkApplicationLink().xcom_key, value=address)


def keep_history_page(operator: DeltaMergeOperator, application: SparkApplication) -> None:
    """Link to the application's page on the history server from the task's end on; to nothing if there is none."""
    address = history_page(operator.hook.settings.history_server_url, application)
    if address or application.ui_url:  # without either there was no link while it ran
        operator.link_addresses[SparkApplicationLink().xcom_key] = address


def link_commit(operator: DeltaMergeOperator, result: MergeResult) -> None:
    """Link to the merge's commit, if it has a page."""
    if address := commit_address(operator.hook.settings.commit_url, result):
        operator.link_addresses[CommitLink().xcom_key] = address


@contextmanager
def kept_at_the_end(operator: DeltaMergeOperator, context: Context) -> Iterator[None]:
    """Store the links that a task learned, however it ends, and no others.

    :param operator: has the addresses by the links' XCom keys in its ``link_addresses``.
    """
    try:
        yield
    finally:
        known = [link for link in operator.operator_extra_links if link.xcom_key in operator.link_addresses]
        operator.operator_extra_links = known  # Airflow 3 keeps an XCom for each
        if not AIRFLOW_V_3_0_PLUS:
            try:
                for key, address in operator.link_addresses.items():
                    context["ti"].xcom_push(key=key, value=address)
            except Exception:  # a link must not fail the merge
                log.warning("The links of this task could not be stored.", exc_info=True)
