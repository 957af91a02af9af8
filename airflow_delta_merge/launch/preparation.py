"""Prepares spark-submit for a merge, from the connection and the hook's arguments."""

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
from dataclasses import asdict, dataclass, replace
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
from airflow_delta_merge.launch.spark_operator import SparkOperatorNamespace
from airflow_delta_merge.launch.spark_operator_submit import SparkOperatorSubmit
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.spark_submit_command import SparkSubmitCommand
from airflow_delta_merge.launch.staging import Staging, travelling_modules
from airflow_delta_merge.launch.yarn import ResourceManager
from airflow_delta_merge.runtime.background_archive import start_making
from airflow_delta_merge.runtime.class_archive import archive_options
from airflow_delta_merge.runtime.jars import delta_jars
from airflow_delta_merge.runtime.java import Java, check_java, takes_option
from airflow_delta_merge.runtime.log_store import LOG_STORE_OF_ALL_SCHEMES, LOG_STORE_PROPERTIES, log_store_jar

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_delta_merge.config.jdbc_access import JdbcAccess
    from airflow_delta_merge.contract.request import JobRequest
    from airflow_delta_merge.launch.cluster_manager import ClusterManager
    from airflow_delta_merge.launch.spark_application import SparkApplication

#: Shorter merges run without Java's second compiler. Measured on two cores: merges of this duration take equally long
#: with and without it; merges of 5 seconds take two thirds of the time without it.
SHORT_SECONDS = 15.0
# A kept Spark shares its cores among its merges, and keeps less data about finished ones. Its pools for stages of
# queries start a thread for each task until they are full, whether others are idle or not: a minute later these end.
# By default up to 1,024 do, two or three for each merge; eight merges at a time need far fewer than 64.
_KEPT_PROPERTIES = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.resultQueryStage.maxThreadThreshold": "64",
    "spark.sql.shuffleExchange.maxThreadThreshold": "64",
}
# An idle Spark collects its garbage. Java then returns memory until 30 % of the heap are free; its default is 70 %.
_KEPT_JAVA_OPTIONS = ("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30")
# Every five seconds it also returns what C's allocator holds and doesn't use: from Java 17.0.9 and 21.0.1 on, on Linux.
_TRIM_NATIVE_MEMORY = "-XX:TrimNativeHeapInterval=5000"
# Environment variables that differ between tasks, shells and traces, or hold Airflow's secrets.
_NOT_INHERITED = re.compile(r"_*AIRFLOW_.*|_|OLDPWD|PWD|SHLVL|COLUMNS|LINES|PYTEST_CURRENT_TEST|TRACEPARENT|TRACESTATE")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmPreparation:
    """What a merge in a kept Spark needs.

    :param kind: identifies the kept Sparks that may run it: a hash of everything that they are started with.
    :param submit: writes the merge's log.
    :param request: the request, with the connection's allowed locations.
    """

    kind: str
    submit: SparkSubmit
    request: JobRequest


class Preparation:
    """Prepares each :class:`~airflow_delta_merge.launch.spark_submit.SparkSubmit` of one hook.

    :param conn_id: the Spark connection.
    :param conf: Spark properties; they take precedence over the connection's.
    :param arguments: arguments of :class:`~airflow_delta_merge.launch.spark_submit.SparkSubmit`.
    :ivar databases: the databases that the prepared merge reads, by connection.
    :ivar expected_seconds: expected duration of the next merge, without Spark's start; None if unknown.
    """

    def __init__(self, conn_id: str, conf: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        self.conn_id = conn_id
        self.conf = dict(conf)
        self.expected_seconds: float | None = None
        self.databases: Mapping[str, JdbcAccess] = {}
        self._arguments = {**arguments, "conn_id": conn_id}
        self._java_without_archive: Java | None = None

    @cached_property
    def _connection(self) -> Connection:
        # Each lookup is a request to Airflow's API server.
        return find_connection(self.conn_id)

    @cached_property
    def policy(self) -> ConnectionPolicy:
        """What the connection allows merges to do.

        :raises ConnectionPolicyError: when that can't be read.
        """
        return ConnectionPolicy.of(self.conn_id, self._connection.extra_dejson)

    @cached_property
    def settings(self) -> ConnectionSettings:
        """The connection's settings other than where Spark runs.

        :raises SparkConnectionError: when there is no such connection, or it has an invalid setting.
        """
        return ConnectionSettings.of(self._connection)

    @cached_property
    def store_properties(self) -> dict[str, str]:
        """The Spark properties of object stores, including keys: for the private properties file only.

        :raises StoreAccessError: when a connection that has them can't be used.
        """
        return self.settings.stores.spark_properties()

    def user_properties(self) -> list[dict[str, Any]]:
        """The user's Spark properties, including secrets. Later ones take precedence."""
        return [self.store_properties, dict(self.settings.conf), self.conf]

    def for_inspection(self) -> SparkSubmitCommand:
        """A command to read settings from."""
        return SparkSubmitCommand(**self._arguments)

    def for_merge(
        self,
        staging: Staging,
        request: JobRequest,
        on_application: Callable[[SparkApplication], None] | None = None,
        *,
        parent: str | None = None,
        waits: bool = True,
    ) -> SparkSubmit:
        """A SparkSubmit that runs a merge.

        :param staging: the merge's files; the request and properties are added.
        :param request: the request, to which the connection's allowed locations are added.
        :param on_application: called when the Spark application has started.
        :param parent: the process with which a local job ends; by default this one.
        :param waits: whether spark-submit waits for the end of an application whose driver runs on the cluster.
        :raises DeltaMergeError: when something that the merge needs is missing.
        """
        submit = self._new(staging, on_application)
        self.databases = databases_of(request.each_merge)
        staging.write_request(replace(request, allowed_locations=self.policy.allowed_locations))
        if submit.is_cluster:
            check_cluster_mode(self.conn_id, submit.master, self.settings)
            manager = self._cluster_manager(submit)
            waits = waits and not submit.is_on_kubernetes  # its API reports more than spark-submit
            cluster_mode = ClusterMode.of(self.settings, staging, request.identity, manager, waits=waits)
            submit.send_to_cluster(staging, cluster_mode)
        else:
            submit.use_staged_files(staging, parent or str(os.getpid()))
        self._configure(submit, staging, self._properties(submit, staging), self._compiler_options())
        return submit

    def check_cluster(self, submit: SparkSubmitCommand) -> None:
        """Check that the API of the cluster on which the driver runs answers.

        :raises DeltaMergeError: when it doesn't, or refuses.
        """
        self._cluster_manager(submit).find("none")

    def _cluster_manager(self, submit: SparkSubmitCommand) -> ClusterManager:
        if not submit.is_on_kubernetes:
            return ResourceManager(self.settings.resource_manager or "")
        namespace = self._kubernetes_properties(submit)["spark.kubernetes.namespace"]
        kind = SparkOperatorNamespace if self.settings.spark_operator else KubernetesNamespace
        return kind(namespace=namespace, conn_id=self.settings.kubernetes_conn_id)

    def _kubernetes_properties(self, submit: SparkSubmitCommand) -> dict[str, str]:
        """How Spark reaches Kubernetes, and where its pods run."""
        named = [properties.get("spark.kubernetes.namespace") for properties in reversed(self.user_properties())]
        access = self._kubernetes_access
        others = [submit.kubernetes_namespace, access and access.namespace, own_namespace(), "default"]
        namespace = str(next(filter(None, [*named, *others])))
        properties = {"spark.kubernetes.namespace": namespace}
        if access is not None and access.context is not None:
            properties["spark.kubernetes.context"] = access.context
        if not submit.is_cluster:
            # Executors can't resolve the names of other pods. Kubernetes deletes executors with the named pod.
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
        """Prepare a merge in a kept Spark, without staging files.

        :param request: as for :meth:`for_merge`.
        :param on_application: as for :meth:`for_merge`.
        :raises DeltaMergeError: when the connection forbids a property of the merge, or the driver runs on the cluster.
        """
        staging = Staging(Path("/staging"))  # a placeholder: its paths must not make kinds differ
        submit = self._new(staging, on_application)
        self.check_keep_warm(submit)
        submit.keep_warm(staging, KEEPER_PID)
        self.databases = databases_of(request.each_merge)
        access = self._kubernetes_access if submit.is_on_kubernetes else None
        parts: list[Any] = [
            access and asdict(access),
            *(os.getuid(), os.getcwd(), self.conn_id, sys.executable, code_digest()),
            *(submit.spark_home.version, shutil.which("java"), submit.arguments),
            sorted(environment_of_kept(submit).items()),
            sorted((name, option_text(value)) for name, value in self._kept_properties(submit, staging).items()),
        ]
        kind = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return WarmPreparation(kind, submit, replace(request, allowed_locations=self.policy.allowed_locations))

    def for_kept(self, staging: Staging) -> SparkSubmit:
        """A SparkSubmit that starts a kept Spark.

        :param staging: its files; the properties are added.
        :raises DeltaMergeError: when something that Spark needs is missing.
        """
        submit = self._new(staging)
        submit.keep_warm(staging, KEEPER_PID)
        submit.java_options += _KEPT_JAVA_OPTIONS
        # It lives long, so Java's second compiler pays off.
        self._configure(submit, staging, self._kept_properties(submit, staging), [])
        if takes_option(_TRIM_NATIVE_MEMORY):
            submit.java_options += [_TRIM_NATIVE_MEMORY]
        return submit

    def _kept_properties(self, submit: SparkSubmit, staging: Staging) -> dict[str, Any]:
        return _KEPT_PROPERTIES | self._properties(submit, staging)

    def check_keep_warm(self, submit: SparkSubmitCommand) -> None:
        """Check that Spark can be kept.

        :raises KeptSparkError: when the driver runs on the cluster, or this machine has no Linux.
        """
        if submit.is_cluster:
            raise KeptSparkError(
                f"keep_warm is not available with deploy mode cluster, which the Spark connection {self.conn_id!r} "
                "has. Remove keep_warm, or use deploy mode client."
            )
        if not hasattr(socket, "SO_PEERCRED"):
            raise KeptSparkError(f"keep_warm is only available on Linux, not on {sys.platform}. Remove keep_warm.")

    def for_result(self, staging: Staging, cluster_mode: ClusterMode) -> SparkSubmit:
        """A SparkSubmit that fetches a merge's result, with the merge's properties and jars.

        :raises DeltaMergeError: as :meth:`for_merge`.
        """
        submit = self._new(staging)
        submit.cluster_mode = cluster_mode
        self._configure(submit, staging, self._properties(submit, staging), [])
        return submit

    def _new(self, staging: Staging, on_application: Callable[[SparkApplication], None] | None = None) -> SparkSubmit:
        self.policy.check_conf(self._property_names())
        kind = SparkOperatorSubmit if self.settings.spark_operator else SparkSubmit
        return kind(
            **self._arguments | {"jars": self._additional_jars()},
            py_files=str(staging.py_files),
            properties_file=str(staging.properties),
            temporary=str(staging.temporary),
            on_application=on_application,
        )

    def _configure(
        self, submit: SparkSubmit, staging: Staging, properties: Mapping[str, Any], java_options: Sequence[str]
    ) -> None:
        """Set its Java options, properties and jars."""
        java = check_java()
        submit.check_master()
        access = self._kubernetes_access if submit.is_on_kubernetes else None
        if access is not None and access.config is not None:
            staging.write("kubeconfig", access.config)
            submit.kube_config = staging.folder / "kubeconfig"
        elif access is not None and access.config_path is not None:
            submit.kube_config = Path(access.config_path)
        submit.add_jars(delta_jars(submit.spark_home))
        if submit.is_local:  # the archive only fits the class path of a local driver
            archive = archive_options(java)
            self._java_without_archive = None if archive else java
            submit.java_options += [*archive, *java_options]
        submit.add_jars([log_store_jar()], on_class_path=False)
        for driver in self.settings.store_drivers:
            # Not on the class path, because the archive is for a class path without them.
            jars = driver.fetched(submit.spark_home)
            submit.add_jars(jars, on_class_path=False)
            submit.store_jars += jars
        submit.set_properties(staging, {**properties, **submit.take_secret_jars()})

    def make_class_archive(self) -> None:
        """Start making the class archive if the prepared merge had none, unless Airflow's configuration disables it."""
        if self._java_without_archive is not None and airflow_conf.getboolean(
            "delta_merge", "class_archive", fallback=True
        ):
            start_making(self._java_without_archive)

    def _compiler_options(self) -> list[str]:
        """Turn off Java's second compiler for short merges, which end before it pays off."""
        if self.expected_seconds is None:
            return []
        short = self.expected_seconds <= SHORT_SECONDS
        how = "without" if short else "with"
        log.info("The last run merged in %.1f s, so Java runs %s its second compiler", self.expected_seconds, how)
        # By default the first compiler alone gets a fifth of the usual code cache and stops when that is full. Then a
        # merge that takes long after all would stay slow.
        return ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"] if short else []

    def _property_names(self) -> list[str]:
        """The properties that this merge sets, including arguments that load code or set the user."""
        by_argument = {
            "jars": "spark.jars",
            "packages": "spark.jars.packages",
            "yarn_queue": "spark.yarn.queue",
            "keytab": "spark.kerberos.keytab",
            "principal": "spark.kerberos.principal",
            "proxy_user": "proxy_user",  # has no property
        }
        return [*self.conf, *(name for argument, name in by_argument.items() if self._arguments.get(argument))]

    def _additional_jars(self) -> str | None:
        return ",".join(filter(None, [self.settings.jars, self._arguments.get("jars")])) or None

    def _properties(self, submit: SparkSubmit, staging: Staging) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "spark.log.level": "WARN",
            # Otherwise Spark substitutes environment variables in SQL: '${env:PASSWORD}', also in paths and quotes.
            "spark.sql.variable.substitute": "false",
            # Spark's default, and the names of storage drivers' keys. `verbose` prints properties that don't match.
            "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|account[.]?key|private[.]?key|[.]sas[.]",
            # Each kind of merge compiles some twenty classes. Of Spark's default, 100, a few kinds leave nothing.
            "spark.sql.codegen.cache.maxEntries": 1000,
        }
        if not submit.is_cluster:
            # Threads of storage drivers, such as ABFS's, may keep Java alive for ever. Spark 3.5 ignores this property.
            # Not for a driver on the cluster: spark-submit would exit before it logs why the driver didn't start.
            defaults["spark.submit.callSystemExitOnMainExit"] = "true"
        if submit.is_local:
            defaults |= {
                "spark.ui.enabled": "false",
                "spark.databricks.delta.snapshotPartitions": 2,
                # Otherwise Spark creates this folder in the worker's working directory.
                "spark.sql.warehouse.dir": staging.folder / "warehouse",
            }
        if submit.is_on_kubernetes:
            defaults |= self._kubernetes_properties(submit)
        given = {name: value for properties in self.user_properties() for name, value in properties.items()}
        if self.settings.s3_single_writer:
            defaults["spark.deltaMerge.s3SingleWriter.enabled"] = "true"
        elif LOG_STORE_OF_ALL_SCHEMES not in given:
            defaults |= LOG_STORE_PROPERTIES
        properties, mode = defaults | given, submit.cluster_mode
        of_cluster = properties if mode is None else mode.properties(properties)
        return of_cluster | spark_properties(self.databases)


def environment_of_kept(submit: SparkSubmit) -> dict[str, str]:
    """The environment of a kept Spark, without variables that differ between tasks. It is part of the kind."""
    return {name: value for name, value in submit.environment().items() if not _NOT_INHERITED.fullmatch(name)}


def code_digest() -> str:
    """A hash of the parts of this package that run inside Spark."""
    digest = hashlib.sha256()
    for module in travelling_modules():
        digest.update(module.read_bytes())
    return digest.hexdigest()
