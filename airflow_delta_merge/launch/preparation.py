"""What spark-submit is given for a merge, by the connection and by the hook's arguments."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.connections.jdbc import databases_of, spark_properties
from airflow_delta_merge.connections.policy import ConnectionPolicy
from airflow_delta_merge.connections.spark import ConnectionSettings, find_connection
from airflow_delta_merge.launch.cluster_mode import ClusterMode, check_cluster_mode, check_deferrable
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.runtime.class_archive import archive_options
from airflow_delta_merge.runtime.jars import delta_jars
from airflow_delta_merge.runtime.java import check_java
from airflow_delta_merge.runtime.log_store import LOG_STORE_OF_ALL_SCHEMES, LOG_STORE_PROPERTIES, log_store_jar

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_delta_merge.config.jdbc_access import JdbcAccess
    from airflow_delta_merge.contract.request import JobRequest
    from airflow_delta_merge.launch.spark_application import SparkApplication
    from airflow_delta_merge.launch.staging import Staging

#: On two cores, tasks whose merge takes so long are done as soon with Java's second compiler as without it; shorter
#: ones, be they of 5 seconds, in two thirds of the time without it.
SHORT_SECONDS = 15.0

log = logging.getLogger(__name__)


class Preparation:
    """Makes the spark-submits of one hook.

    :param conn_id: the connection.
    :param conf: Spark properties; they go before the connection's.
    :param arguments: those of :class:`~airflow_delta_merge.launch.spark_submit.SparkSubmit`.
    :ivar databases: by connection, the databases of the sources of the merge that is prepared.
    :ivar expected_seconds: how long what is merged next will take about, without Spark's start; None if nobody knows.
    """

    def __init__(self, conn_id: str, conf: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        self.conn_id = conn_id
        self.conf = dict(conf)
        self.expected_seconds: float | None = None
        self.databases: Mapping[str, JdbcAccess] = {}
        self._arguments = {**arguments, "conn_id": conn_id}

    @cached_property
    def _connection(self) -> Connection:
        # Each look goes to Airflow's API server.
        return find_connection(self.conn_id)

    @cached_property
    def _policy(self) -> ConnectionPolicy:
        return ConnectionPolicy.of(self.conn_id, self._connection.extra_dejson)

    @cached_property
    def settings(self) -> ConnectionSettings:
        """What the connection says beside where Spark runs.

        :raises SparkConnectionError: when there is no such connection, or it says what isn't understood.
        """
        return ConnectionSettings.of(self._connection)

    @cached_property
    def store_properties(self) -> dict[str, str]:
        """The Spark properties of object stores, including keys: for the private properties file only.

        :raises StoreAccessError: when a connection that has them can't be used.
        """
        return self.settings.stores.spark_properties()

    def given_properties(self) -> list[dict[str, Any]]:
        """The Spark properties that whoever merges has given, secrets among them; the last ones go before."""
        return [self.store_properties, dict(self.settings.conf), self.conf]

    def unprepared(self) -> SparkSubmit:
        """One that only knows where Spark runs."""
        return SparkSubmit(**self._arguments)

    def for_merge(
        self,
        staging: Staging,
        request: JobRequest,
        on_application: Callable[[SparkApplication], None] | None = None,
        *,
        parent: str | None = None,
        waits: bool = True,
    ) -> SparkSubmit:
        """One that merges.

        :param staging: the merge's files; the request and properties are added to them.
        :param request: what the job does, to which the connection's allowed locations are added.
        :param on_application: called when the Spark application has started.
        :param parent: the process with which the job ends, if it runs here; this one by default.
        :param waits: whether it waits for the end of an application whose driver runs on the cluster.
        :raises DeltaMergeError: when anything is missing that it needs.
        """
        submit = self._new(staging, on_application)
        self.databases = databases_of(request.each_merge)
        staging.write_request(replace(request, allowed_locations=self._policy.allowed_locations))
        if submit.is_cluster:
            check_cluster_mode(self.conn_id, submit.master, self.settings)
            if not waits:
                check_deferrable(self.conn_id, submit.master)
            on_yarn = submit.master.startswith("yarn")
            cluster_mode = ClusterMode.of(self.settings, staging, request.identity, on_yarn=on_yarn, waits=waits)
            submit.send(staging, cluster_mode)
        else:
            submit.keep_here(staging, parent or str(os.getpid()))
        self._equip(submit, staging)
        return submit

    def for_result(self, staging: Staging, cluster_mode: ClusterMode) -> SparkSubmit:
        """One that has what the merge had whose result it is to fetch.

        :raises DeltaMergeError: as :meth:`for_merge`.
        """
        submit = self._new(staging)
        submit.cluster_mode = cluster_mode
        self._equip(submit, staging)
        return submit

    def _new(self, staging: Staging, on_application: Callable[[SparkApplication], None] | None = None) -> SparkSubmit:
        self._policy.check_conf(self._property_names())
        return SparkSubmit(
            **self._arguments | {"jars": self._further_jars()},
            py_files=str(staging.py_files),
            properties_file=str(staging.properties),
            temporary=str(staging.temporary),
            on_application=on_application,
        )

    def _equip(self, submit: SparkSubmit, staging: Staging) -> None:
        """Give it Java, properties and jars."""
        _, java_version = check_java()
        submit.check_master()
        staging.write_properties(self._properties(submit, staging) | spark_properties(self.databases))
        submit.add_jars(delta_jars(submit.spark_home))
        if submit.is_local:  # elsewhere Delta's jars are not on the class path for which the archive is made
            submit.java_options += [*archive_options(java_version), *self._compiler_options()]
        submit.add_jars([log_store_jar()], on_class_path=False)
        for driver in self.settings.store_drivers:
            # Not on the class path: the archive is for one without them.
            submit.add_jars(driver.fetched(submit.spark_home), on_class_path=False)

    def _compiler_options(self) -> list[str]:
        """Java's second compiler makes long work fast; what is short ends before that pays off."""
        if self.expected_seconds is None:
            return []
        short = self.expected_seconds <= SHORT_SECONDS
        how = "without" if short else "with"
        log.info("The last run merged in %.1f s: Java runs %s its second compiler", self.expected_seconds, how)
        # The first compiler alone gets a fifth of the usual room for code, and compiles no more once that is full: a
        # merge that is long after all would stay slow.
        return ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"] if short else []

    def _property_names(self) -> list[str]:
        """The properties that this merge sets by itself, also by arguments of other names that load code or say who."""
        by_argument = {
            "jars": "spark.jars",
            "packages": "spark.jars.packages",
            "yarn_queue": "spark.yarn.queue",
            "keytab": "spark.kerberos.keytab",
            "principal": "spark.kerberos.principal",
            "proxy_user": "proxy_user",  # there is no property of the kind
        }
        return [*self.conf, *(name for argument, name in by_argument.items() if self._arguments.get(argument))]

    def _further_jars(self) -> str | None:
        return ",".join(filter(None, [self.settings.jars, self._arguments.get("jars")])) or None

    def _properties(self, submit: SparkSubmit, staging: Staging) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "spark.log.level": "WARN",
            # Else Spark puts environment variables into SQL: '${env:PASSWORD}', also inside paths and quotes.
            "spark.sql.variable.substitute": "false",
            # Spark's default, and the names that storage drivers give to their keys: `verbose` prints all others.
            "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|account[.]?key|private[.]?key|[.]sas[.]",
        }
        if not submit.is_cluster:
            # A storage driver may leave threads that keep Java alive for ever: ABFS's do. Spark 3.5 doesn't know this.
            # Not where the driver is elsewhere: spark-submit would end before it has told why it could not start it.
            defaults["spark.submit.callSystemExitOnMainExit"] = "true"
        if submit.is_local:
            defaults |= {
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": max(2, submit.local_cores),
                "spark.databricks.delta.snapshotPartitions": 2,
                # A merge creates no table, but Spark would leave this folder in whatever folder the worker runs.
                "spark.sql.warehouse.dir": staging.folder / "warehouse",
            }
        given = {name: value for properties in self.given_properties() for name, value in properties.items()}
        if self.settings.s3_single_writer:
            defaults["spark.deltaMerge.s3SingleWriter.enabled"] = "true"
        elif LOG_STORE_OF_ALL_SCHEMES not in given:
            defaults |= LOG_STORE_PROPERTIES
        properties = defaults | given
        return properties if submit.cluster_mode is None else submit.cluster_mode.properties(properties)
