"""Links from a merge's task to where a person reads on: its Spark application, its commit.

Airflow 3 asks each link for its address when the task has ended and keeps that as an XCom; for Airflow 2 the operator
keeps it by :func:`kept_at_the_end`. A link without an address has no XCom. An empty address shows no link; it takes the
place of one that led somewhere only as long as Spark ran.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context, TaskInstanceKey

    from airflow_delta_merge.contract.result import MergeResult
    from airflow_delta_merge.launch.spark_application import SparkApplication
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

log = logging.getLogger(__name__)


class _MergeLink(BaseOperatorLink):
    """A link whose address the operator has learnt while it ran."""

    @property
    def xcom_key(self) -> str:
        """Under which the address is kept; Airflow 2 has no such name."""
        return f"_link_{type(self).__name__}"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The address, or an empty text; in Airflow 2 its web server asks, which has no operator that ran."""
        addresses: dict[str, str] | None = getattr(operator, "link_addresses", None)
        if addresses is not None:
            return addresses.get(self.xcom_key, "")
        from airflow.providers.common.compat.sdk import XCom

        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or ""


class SparkApplicationLink(_MergeLink):
    """The web UI of the Spark application while it runs, then its page on the history server if there is one."""

    name = "Spark application"


class CommitLink(_MergeLink):
    """The commit, by the address that the connection's ``commit_url`` gives to commits."""

    name = "Commit"


@contextmanager
def kept_at_the_end(operator: DeltaMergeOperator, context: Context) -> Iterator[None]:
    """Keep what a task learns of its links, however it ends, and nothing of the others.

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
            except Exception:  # a link is no part of the merge
                log.warning("The links of this task could not be kept.", exc_info=True)


def history_page(history_server_url: str | None, application: SparkApplication) -> str:
    """The address of an application on the history server; empty when it isn't there."""
    if history_server_url is None or not application.event_log:
        return ""
    return f"{history_server_url.rstrip('/')}/history/{quote(application.id, safe='')}"


def address_while_running(history_server_url: str | None, application: SparkApplication) -> str:
    """The address of an application that runs: its own UI, or without one the history server's; may be empty."""
    return application.ui_url or history_page(history_server_url, application)


def commit_address(commit_url: str | None, result: MergeResult) -> str:
    """The address of what a merge committed; empty when it has none, or nothing was committed.

    :param commit_url: the pattern; the result's table and version stand percent-encoded for ``{table}`` and
        ``{version}``.
    """
    if commit_url is None or result.version is None:
        return ""
    return commit_url.replace("{table}", quote(result.table, safe="")).replace("{version}", str(result.version))
