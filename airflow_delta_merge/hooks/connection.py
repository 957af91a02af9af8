"""What a merge takes from an Airflow connection beside what Airflow's own Spark hook reads there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection

from airflow_delta_merge.exceptions import DeltaMergeError

DEFAULT_CONNECTION = "spark_default"
LOCAL_MASTER = "local[*]"

log = logging.getLogger(__name__)


class SparkConnectionError(DeltaMergeError):
    """The Spark connection is missing, can't be used for a merge, or its master does not answer."""


def find_connection(conn_id: str) -> Connection:
    """Get a connection, or for a ``spark_default`` that isn't there one to this machine.

    :raises SparkConnectionError: when any other connection isn't there.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        if conn_id != DEFAULT_CONNECTION:
            # Not an AirflowException, which Airflow's Spark hook would take for leave to use YARN.
            raise SparkConnectionError(
                f"There is no Airflow connection {conn_id!r}: create it, or leave conn_id away to run Spark on "
                "this machine."
            ) from error
        return Connection(conn_id=conn_id, conn_type="spark", host=LOCAL_MASTER)


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """What the extra of a connection says to a merge.

    :param history_server_url: where Spark's history server is, e.g. ``http://spark-history:18080``.
    :param commit_url: the address of a commit, with ``{table}`` and ``{version}`` in it.
    """

    history_server_url: str | None = None
    commit_url: str | None = None

    @classmethod
    def of(cls, connection: Connection) -> ConnectionSettings:
        """Read them from a connection."""
        extra = connection.extra_dejson
        return cls(
            history_server_url=_web_address(connection, extra, "history_server_url"),
            commit_url=_web_address(connection, extra, "commit_url"),
        )


def _web_address(connection: Connection, extra: Mapping[str, Any], name: str) -> str | None:
    """An address for a link; a wrong one gives no link, but is no reason for a merge to fail."""
    address = extra.get(name)
    if not address:
        return None
    if isinstance(address, str) and address.startswith(("http://", "https://")):
        return address
    log.warning(
        "The connection %r has a %s that doesn't begin with http:// or https://, so it is left unused.",
        connection.conn_id,
        name,
    )
    return None
