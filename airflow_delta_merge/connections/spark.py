"""Reads a merge's connection, of Airflow's type ``spark`` or of the type ``delta_merge``."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, Connection

from airflow_delta_merge.config.checks import is_seconds, option_text
from airflow_delta_merge.connections.conf import check_conf
from airflow_delta_merge.connections.fields import existing_connection
from airflow_delta_merge.connections.secrets import mask_secrets
from airflow_delta_merge.connections.stores import StoreConnections
from airflow_delta_merge.exceptions import SparkConnectionError
from airflow_delta_merge.runtime.store_drivers import ABFS, GCS, S3A, StoreDriver

CONNECTION_TYPE = "delta_merge"
DEFAULT_CONNECTION = "spark_default"
LOCAL_MASTER = "local[*]"

#: The fields that name connections to stores, with the drivers for these stores.
_STORES = {"aws_conn_id": S3A, "azure_conn_id": ABFS, "gcp_conn_id": GCS}
# A connection as a URI has only texts.
_FLAGS = {"true": True, "false": False}
_EXTRAS = (
    *("deploy-mode", "jars", "conf", "namespace", "history_server_url", "commit_url"),
    *("result_path", "yarn_resourcemanager_webapp_address"),
    *("allowed_locations", "allowed_conf", *_STORES, *(driver.flag for driver in _STORES.values()), "s3_single_writer"),
    *("keep_warm", "kubernetes_conn_id", "spark_operator"),
)

log = logging.getLogger(__name__)


def find_connection(conn_id: str) -> Connection:
    """Get a connection. A missing ``spark_default`` becomes a connection to this machine.

    :raises SparkConnectionError: when any other connection is missing, or its extra is not a JSON object.
    """
    try:
        connection = existing_connection(
            conn_id, SparkConnectionError, "Create it, or remove conn_id to run Spark on this machine."
        )
    except SparkConnectionError as error:
        if conn_id != DEFAULT_CONNECTION or not isinstance(error.__cause__, AirflowNotFoundException):
            raise
        return Connection(conn_id=conn_id, conn_type="spark", host=LOCAL_MASTER)
    if not connection.conn_type:
        raise SparkConnectionError(
            f"The connection {conn_id!r} has no type. Set its conn_type; a URI begins with delta-merge:// or spark://, "
            "never with an underscore."
        )
    return connection


def as_spark_connection(connection: Connection) -> Connection:
    """A connection for Airflow's Spark hook: one of type ``delta_merge`` is converted to type ``spark``."""
    if connection.conn_type != CONNECTION_TYPE:
        return connection
    extra = connection.extra_dejson
    # Only this field: that hook's namespace is Kubernetes', and ConnectionSettings reads the rest.
    deploy_mode = {"deploy-mode": extra["deploy-mode"]} if extra.get("deploy-mode") else {}
    return Connection(
        conn_id=connection.conn_id,
        conn_type="spark",
        host=connection.host,
        port=connection.port,
        extra=json.dumps(deploy_mode),
    )


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """The settings in a connection's extra; ``conf``, ``jars`` and ``namespace`` only with type ``delta_merge``.

    :param conf: Spark properties.
    :param jars: further jars, comma-separated.
    :param namespace: prefix of the merge's application id, instead of ``[delta_merge] namespace``.
    :param history_server_url: the URL of Spark's history server, e.g. ``http://spark-history:18080``.
    :param commit_url: the URL of a commit, with ``{table}`` and ``{version}`` as placeholders.
    :param stores: the connections that Spark uses for object stores.
    :param store_drivers: the drivers whose jars are shipped with each merge.
    :param s3_single_writer: whether the user guarantees that no two drivers commit to a table in S3 at the same time.
        This allows stores that can't refuse the second writer.
    :param result_path: for deploy mode cluster: the folder for results, as a URI.
    :param keep_warm: for how many seconds Spark stays after a merge to take the next one; 0 ends it with the merge.
    :param resource_manager: for deploy mode cluster on YARN: the URL of the ResourceManager's web application.
    :param kubernetes_conn_id: for Kubernetes: the connection of type ``kubernetes`` for its API; None for
        ``kubernetes_default`` if it exists, else for the access that the worker has by itself.
    :param spark_operator: for deploy mode cluster on Kubernetes: whether the Spark operator runs spark-submit.
    """

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    jars: str | None = None
    namespace: str | None = None
    history_server_url: str | None = None
    commit_url: str | None = None
    stores: StoreConnections = field(default_factory=StoreConnections)
    store_drivers: tuple[StoreDriver, ...] = ()
    s3_single_writer: bool = False
    result_path: str | None = None
    resource_manager: str | None = None
    kubernetes_conn_id: str | None = None
    spark_operator: bool = False
    keep_warm: float = 0.0

    @classmethod
    def of(cls, connection: Connection) -> ConnectionSettings:
        """Read them from a connection, and make Airflow mask the secrets among the Spark properties.

        :raises SparkConnectionError: when the extra has unknown or invalid fields.
        """
        fields = _SparkFields(connection.conn_id, connection.host or "", connection.extra_dejson)
        if fields.extra.get("deploy-mode") not in (None, "", "client", "cluster"):
            raise fields.refused(
                f"the deploy-mode {fields.extra['deploy-mode']!r:.80}. Set it to client or cluster, or remove it."
            )
        stores = {name: fields.text(name) for name in _STORES}
        of_either_type: dict[str, Any] = {
            "history_server_url": fields.web_address("history_server_url"),
            "commit_url": fields.web_address("commit_url"),
            "stores": StoreConnections(**stores),
            "store_drivers": tuple(
                driver for name, driver in _STORES.items() if fields.flag(driver.flag, default=stores[name] is not None)
            ),
            "s3_single_writer": fields.flag("s3_single_writer"),
            "result_path": fields.uri("result_path"),
            "resource_manager": fields.resource_manager(),
            "kubernetes_conn_id": fields.text("kubernetes_conn_id"),
            "spark_operator": fields.spark_operator(),
            "keep_warm": fields.seconds("keep_warm"),
        }
        if connection.conn_type != CONNECTION_TYPE:
            if ignored := [name for name in ("conf", "jars") if fields.extra.get(name)]:
                log.warning(
                    "Ignored in the extra of the connection %r, whose type is %s: %s. Set the type to %s, or remove "
                    "this from the extra.",
                    connection.conn_id,
                    connection.conn_type,
                    ", ".join(ignored),
                    CONNECTION_TYPE,
                )
            return cls(**of_either_type)
        if unknown := sorted(set(fields.extra) - set(_EXTRAS)):
            raise fields.refused(
                f"unknown extras: {', '.join(unknown)}. Known are: {', '.join(_EXTRAS)}. Put other Spark properties "
                "into conf."
            )
        conf, jars = fields.conf(), fields.text("jars")
        mask_secrets(conf, jars)
        return cls(conf=conf, jars=jars, namespace=fields.text("namespace"), **of_either_type)


@dataclass(frozen=True)
class _SparkFields:
    """Reads the fields of a Spark connection's extra. Each error is a :class:`SparkConnectionError`."""

    conn_id: str
    host: str
    extra: Mapping[str, Any]

    def refused(self, why: str) -> SparkConnectionError:
        return SparkConnectionError(f"The connection {self.conn_id!r} has {why}")

    def conf(self) -> dict[str, str]:
        conf = self.extra.get("conf") or {}
        if not isinstance(conf, dict):
            # Airflow's UI would show a string with all its secrets: it hides values by the names of their keys.
            raise self.refused(
                'a conf that is not a JSON object. Write it as {"spark.some.property": "value"}; in a URI put the '
                "whole extra as JSON into the parameter __extra__."
            )
        where = f" in the extra of the connection {self.conn_id!r}"
        deploy_mode = self.extra.get("deploy-mode") or "client"
        check_conf(conf, where=where, deploy_mode=deploy_mode, error=SparkConnectionError)
        return {name: option_text(value) for name, value in conf.items()}

    def text(self, name: str) -> str | None:
        value = self.extra.get(name)
        if value is not None and not isinstance(value, str):
            raise self.refused(f"a {name} that is not a string.")
        return value.strip() or None if value else None

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.extra.get(name)
        if value in (None, ""):  # left empty in the form
            return default
        if isinstance(value, str):
            value = _FLAGS.get(value.lower())
        if not isinstance(value, bool):
            raise self.refused(f"a {name} that is not a boolean.")
        return value

    def spark_operator(self) -> bool:
        flag = self.flag("spark_operator")
        if flag and (self.extra.get("deploy-mode") != "cluster" or not self.host.startswith("k8s://")):
            raise self.refused(
                "spark_operator, which needs a host k8s://… and deploy mode cluster. Set these, or remove "
                "spark_operator."
            )
        return flag

    def seconds(self, name: str) -> float:
        value = self.extra.get(name)
        if value in (None, ""):  # left empty in the form
            return 0.0
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)
        if not is_seconds(value):
            raise self.refused(f"a {name} that is not a number of seconds ≥ 0.")
        return float(value)

    def uri(self, name: str) -> str | None:
        uri = self.text(name)
        if uri is not None and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s?#]+", uri):
            raise self.refused(
                f"a {name} that is not the URI of a folder. Write it like hdfs:///airflow/results, "
                "s3a://bucket/results or file:///shared/results."
            )
        return uri

    def resource_manager(self) -> str | None:
        """The ResourceManager's URL, with the name and the forms that Airflow's Spark provider uses."""
        name = "yarn_resourcemanager_webapp_address"
        address = self.text(name)
        if address is None:
            return None
        address = address if "://" in address else f"http://{address}"
        if not address.startswith(("http://", "https://")):
            raise self.refused(f"a {name} that is not a web address.")
        if "@" in address:  # it would appear in error messages, and with deferred tasks in Airflow's database
            raise self.refused(
                f"a {name} with a user or password in it, which YARN's REST API doesn't use. Set the bare address, "
                "e.g. http://rm.internal:8088."
            )
        return address.rstrip("/")

    def web_address(self, name: str) -> str | None:
        """A URL for a link. An invalid one gives no link, but must not fail the merge."""
        address = self.extra.get(name)
        if not address:
            return None
        if isinstance(address, str) and address.startswith(("http://", "https://")):
            return address
        log.warning(
            "The connection %r has a %s that doesn't start with http:// or https://. It is ignored.", self.conn_id, name
        )
        return None
