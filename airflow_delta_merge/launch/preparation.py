"""What spark-submit is given for a merge, by the connection and by the hook's arguments."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf as airflow_conf

from airflow_delta_merge.config.checks import option_text
from airflow_delta_merge.connections.jdbc import databases_of, spark_properties
from airflow_delta_merge.connections.kubernetes import KubernetesAccess, own_address, own_namespace, own_pod
from airflow_delta_merge.connections.policy import ConnectionPolicy
from airflow_delta_merge.connections.spark import ConnectionSettings, find_connection
from airflow_delta_merge.exceptions import KeptSparkError
from airflow_delta_merge.launch.cluster_mode import ClusterMode, check_cluster_mode
from airflow_delta_merge.launch.keeper import KEEPER_PID
from airflow_delta_merge.launch.kubernetes import KubernetesNamespace
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.staging import Staging, travelling_modules
from airflow_delta_merge.launch.yarn import ResourceManager
from airflow_delta_merge.runtime.background_archive import start_making
from airflow_delta_merge.runtime.class_archive import archive_options
from airflow_delta_merge.runtime.jars import delta_jars
from airflow_delta_merge.runtime.java import check_java
from airflow_delta_merge.runtime.log_store import LOG_STORE_OF_ALL_SCHEMES, LOG_STORE_PROPERTIES, log_store_jar

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_delta_merge.config.jdbc_access import JdbcAccess
    from airflow_delta_merge.contract.request import JobRequest
    from airflow_delta_merge.launch.cluster_manager import ClusterManager
    from airflow_delta_merge.launch.spark_application import SparkApplication

#: On two cores, tasks whose merge takes so long are done as soon with Java's second compiler as without it; shorter
#: ones, be they of 5 seconds, in two thirds of the time without it.
SHORT_SECONDS = 15.0
# A kept Spark shares its cores among the merges, and remembers less of those that are done.
_KEPT_PROPERTIES = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
}
# What Airflow says of one task or keeps secret, and what a shell or a tracer says of itself.
_NOT_KEPT = re.compile(r"_?AIRFLOW_.*|_|OLDPWD|PWD|SHLVL|COLUMNS|LINES|PYTEST_CURRENT_TEST|TRACEPARENT|TRACESTATE")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmPreparation:
    """What a merge needs to be handed to a kept Spark.

    :param kind: identifies the Sparks that may run it: a hash of all that they are started with.
    :param submit: where Spark runs; for the merge's log.
    :param request: what to do, with the connection's allowed locations.
    """

    kind: str
    submit: SparkSubmit
    request: JobRequest


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
        self._java_without_archive: int | None = None

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
            manager = self._cluster_manager(submit)
            waits = waits and not submit.is_on_kubernetes  # its API tells more than spark-submit
            submit.send(staging, ClusterMode.of(self.settings, staging, request.identity, manager, waits=waits))
        else:
            submit.keep_here(staging, parent or str(os.getpid()))
        properties = self._properties(submit, staging) | spark_properties(self.databases)
        self._equip(submit, staging, properties, self._compiler_options())
        return submit

    def check_cluster(self, submit: SparkSubmit) -> bool:
        """Check that the cluster lets this package ask for applications whose drivers run there.

        :return: whether there was a cluster to ask.
        :raises DeltaMergeError: when it doesn't answer or refuses, or the connection lacks what that deploy mode needs.
        """
        if not submit.is_cluster:
            return False
        check_cluster_mode(self.conn_id, submit.master, self.settings)
        self._cluster_manager(submit).find("none")
        return True

    def _cluster_manager(self, submit: SparkSubmit) -> ClusterManager:
        if not submit.is_on_kubernetes:
            return ResourceManager(self.settings.resource_manager or "")
        namespace = self._kubernetes_properties(submit)["spark.kubernetes.namespace"]
        return KubernetesNamespace(namespace=namespace, conn_id=self.settings.kubernetes_conn_id)

    def _kubernetes_properties(self, submit: SparkSubmit) -> dict[str, str]:
        """How Spark reaches Kubernetes, and where its pods run."""
        named = [properties.get("spark.kubernetes.namespace") for properties in reversed(self.given_properties())]
        access = self._kubernetes_access
        others = [submit.kubernetes_namespace, access and access.namespace, own_namespace(), "default"]
        namespace = str(next(filter(None, [*named, *others])))
        properties = {"spark.kubernetes.namespace": namespace}
        if access is not None and access.context is not None:
            properties["spark.kubernetes.context"] = access.context
        if not submit.is_cluster:
            # Executors can't resolve the names of other pods, and are to go with the driver's pod.
            properties["spark.driver.host"] = own_address(submit.master)
            if namespace == own_namespace() and (pod := own_pod()) is not None:
                properties["spark.kubernetes.driver.pod.name"] = pod
        return properties

    @cached_property
    def _kubernetes_access(self) -> KubernetesAccess | None:
        conn_id = self.settings.kubernetes_conn_id
        return None if conn_id is None else KubernetesAccess.of(conn_id)

    def for_warm_merge(
        self, request: JobRequest, on_application: Callable[[SparkApplication], None] | None = None
    ) -> WarmPreparation:
        """What a merge in a kept Spark needs, without staging anything.

        :param request: as for :meth:`for_merge`.
        :param on_application: as for :meth:`for_merge`.
        :raises DeltaMergeError: when the merge may not set what it sets, or Spark doesn't run on this machine.
        """
        staging = Staging(Path("/staging"))  # only its paths, which are the same for each of a kind
        submit = self._new(staging, on_application)
        self._require_local(submit)
        submit.keep_warm(staging, KEEPER_PID)
        self.databases = databases_of(request.each_merge)
        parts: list[Any] = [
            *(os.getuid(), os.getcwd(), self.conn_id, sys.executable, code_digest()),
            *(submit.spark_home.version, shutil.which("java"), submit.arguments),
            sorted(environment_of_kept(submit).items()),
            sorted((name, option_text(value)) for name, value in self._kept_properties(submit, staging).items()),
        ]
        kind = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return WarmPreparation(kind, submit, replace(request, allowed_locations=self._policy.allowed_locations))

    def for_kept(self, staging: Staging) -> SparkSubmit:
        """One that starts a kept Spark.

        :param staging: its files; the properties are added to them.
        :raises DeltaMergeError: when anything is missing that it needs.
        """
        submit = self._new(staging)
        submit.keep_warm(staging, KEEPER_PID)
        # It lives long, so Java's second compiler pays off.
        self._equip(submit, staging, self._kept_properties(submit, staging), [])
        return submit

    def _kept_properties(self, submit: SparkSubmit, staging: Staging) -> dict[str, Any]:
        return _KEPT_PROPERTIES | self._properties(submit, staging) | spark_properties(self.databases)

    def _require_local(self, submit: SparkSubmit) -> None:
        if submit.is_cluster:
            raise KeptSparkError(
                f"The Spark connection {self.conn_id!r} has deploy mode cluster, with which keep_warm is not "
                "available. Remove keep_warm, or use deploy mode client with a local master."
            )
        if not submit.is_local:
            raise KeptSparkError(
                f"The Spark connection {self.conn_id!r} has the master {submit.master}, with which keep_warm is not "
                "available. Remove keep_warm, or use a local master."
            )
        if not hasattr(socket, "SO_PEERCRED"):
            raise KeptSparkError(f"keep_warm is only available on Linux, not on {sys.platform}. Remove it.")

    def for_result(self, staging: Staging, cluster_mode: ClusterMode) -> SparkSubmit:
        """One that has what the merge had whose result it is to fetch.

        :raises DeltaMergeError: as :meth:`for_merge`.
        """
        submit = self._new(staging)
        submit.cluster_mode = cluster_mode
        self._equip(submit, staging, self._properties(submit, staging) | spark_properties(self.databases), [])
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

    def _equip(
        self, submit: SparkSubmit, staging: Staging, properties: Mapping[str, Any], java_options: Sequence[str]
    ) -> None:
        """Give it Java, properties and jars."""
        _, java_version = check_java()
        submit.check_master()
        access = self._kubernetes_access if submit.is_on_kubernetes else None
        if access is not None and access.config is not None:
            staging.write("kubeconfig", access.config)
            submit.kube_config = staging.folder / "kubeconfig"
        elif access is not None and access.config_path is not None:
            submit.kube_config = Path(access.config_path)
        staging.write_properties(properties)
        submit.add_jars(delta_jars(submit.spark_home))
        if submit.is_local:  # elsewhere Delta's jars are not on the class path for which the archive is made
            archive = archive_options(java_version)
            self._java_without_archive = None if archive else java_version
            submit.java_options += [*archive, *java_options]
        submit.add_jars([log_store_jar()], on_class_path=False)
        for driver in self.settings.store_drivers:
            # Not on the class path: the archive is for one without them.
            submit.add_jars(driver.fetched(submit.spark_home), on_class_path=False)

    def make_class_archive(self) -> None:
        """Start to make the archive of classes that the prepared merge lacked, unless the configuration forbids it."""
        if self._java_without_archive is not None and airflow_conf.getboolean(
            "delta_merge", "class_archive", fallback=True
        ):
            start_making(self._java_without_archive)

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
        if submit.is_on_kubernetes:
            defaults |= self._kubernetes_properties(submit)
        given = {name: value for properties in self.given_properties() for name, value in properties.items()}
        if self.settings.s3_single_writer:
            defaults["spark.deltaMerge.s3SingleWriter.enabled"] = "true"
        elif LOG_STORE_OF_ALL_SCHEMES not in given:
            defaults |= LOG_STORE_PROPERTIES
        properties = defaults | given
        return properties if submit.cluster_mode is None else submit.cluster_mode.properties(properties)


def environment_of_kept(submit: SparkSubmit) -> dict[str, str]:
    """The environment of a kept Spark, which is part of its kind: without what differs from task to task."""
    return {name: value for name, value in submit.environment().items() if not _NOT_KEPT.fullmatch(name)}


def code_digest() -> str:
    """A hash of what of this package runs inside Spark."""
    digest = hashlib.sha256()
    for module in travelling_modules():
        digest.update(module.read_bytes())
    return digest.hexdigest()
