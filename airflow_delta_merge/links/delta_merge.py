"""Links from a merge's task to its Spark application and its commit.

Airflow 3 reads each link's URL when the task has ended and stores it as an XCom; for Airflow 2 the operator stores it.
A link without a URL has no XCom. An empty URL shows no link; it replaces a URL that was valid only while Spark ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, TaskInstanceKey

    from airflow_delta_merge.contract.result import MergeResult
    from airflow_delta_merge.launch.spark_application import SparkApplication


class _MergeLink(BaseOperatorLink):
    """A link whose URL the operator learned while it ran."""

    @property
    def xcom_key(self) -> str:
        """The XCom key of the URL; Airflow 2 has no such property."""
        return f"_link_{type(self).__name__}"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The URL, or an empty string. In Airflow 2 the web server calls it, without the operator that ran."""
        addresses: dict[str, str] | None = getattr(operator, "link_addresses", None)
        if addresses is not None:
            return addresses.get(self.xcom_key, "")
        from airflow.providers.common.compat.sdk import XCom

        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or ""


class SparkApplicationLink(_MergeLink):
    """The web UI of the Spark application while it runs, then its page on the history server if there is one."""

    name = "Spark application"


class CommitLink(_MergeLink):
    """The commit, at the URL from the connection's ``commit_url``."""

    name = "Commit"


def history_page(history_server_url: str | None, application: SparkApplication) -> str:
    """The URL of an application on the history server; empty if it has none."""
    if history_server_url is None or not application.event_log:
        return ""
    return f"{history_server_url.rstrip('/')}/history/{quote(application.id, safe='')}"


def address_while_running(history_server_url: str | None, application: SparkApplication) -> str:
    """The URL of a running application: its own UI, or else the history server's; may be empty."""
    return application.ui_url or history_page(history_server_url, application)


def commit_address(commit_url: str | None, result: MergeResult) -> str:
    """The URL of a merge's commit; empty if there is none, or nothing was committed.

    :param commit_url: the pattern; the result's table and version replace ``{table}`` and ``{version}``,
        percent-encoded.
    """
    if commit_url is None or result.version is None:
        return ""
    return commit_url.replace("{table}", quote(result.table, safe="")).replace("{version}", str(result.version))
