"""Links from a merge's task to where a person reads on: its Spark application, its commit.

Airflow asks each link for its address when the task has ended and keeps that as an XCom; an empty address shows no
link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, TaskInstanceKey

    from airflow_delta_merge.hooks.spark_application import SparkApplication
    from airflow_delta_merge.result import MergeResult


class _MergeLink(BaseOperatorLink):
    """A link whose address the operator has learnt while it ran."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The address, or an empty text."""
        addresses: dict[str, str] = getattr(operator, "link_addresses", {})
        return addresses.get(self.xcom_key, "")


class SparkApplicationLink(_MergeLink):
    """The web UI of the Spark application while it runs, then its page on the history server if there is one."""

    name = "Spark application"


class CommitLink(_MergeLink):
    """The commit, by the address that the connection's ``commit_url`` gives to commits."""

    name = "Commit"


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
