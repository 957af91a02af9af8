"""The command that Airflow's ``SparkSubmitHook`` makes of a connection, as merges need it."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import DEFAULT_SPARK_BINARY, SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, Connection

from airflow_delta_merge.connections.secrets import holds_password
from airflow_delta_merge.connections.spark import as_spark_connection, find_connection
from airflow_delta_merge.exceptions import SparkConnectionError
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.kubernetes import missing_provider
from airflow_delta_merge.runtime.spark_home import SparkHome, find_spark_submit

if TYPE_CHECKING:
    from airflow_delta_merge.launch.staging import Staging

#: The name of a kept Spark application.
KEPT_NAME = "delta-merge"

_SECONDS_TO_CONNECT = 5.0


class SparkSubmitCommand(SparkSubmitHook):
    """The command of one spark-submit and its environment; it starts nothing.

    Differences from its base class:

    - If the connection ``spark_default`` doesn't exist, it runs ``local[*]``. (The base would use YARN.) Any other
      missing connection is an error.
    - If spark-submit isn't on the PATH, it is searched next to the Python that runs Airflow, where pip installs it.
    - The connection may also have type ``delta_merge``.
    - Without a deploy mode in the connection it is ``client``, whatever Spark's properties say.
    - 0 executors are passed on: Spark takes them with dynamic allocation, and refuses them otherwise.
    - Properties are passed only in a file, and ``spark-defaults.conf`` still applies.

    :param temporary: folder for temporary files of the driver's JVM; by default the system's.
    """

    def __init__(self, *, temporary: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self._num_executors == 0:  # the base would leave it out
            self._num_executors = "0"  # type: ignore[assignment]
        self._temporary = temporary
        self.java_options: list[str] = []
        #: Jars by which spark-submit itself writes to object stores.
        self.store_jars: list[str] = []
        #: How the driver runs on the cluster; None if it doesn't.
        self.cluster_mode: ClusterMode | None = None
        #: The kubeconfig of spark-submit; None for that of the worker's user.
        self.kube_config: Path | None = None
        self._check_connection()

    @property
    def master(self) -> str:
        """The master that spark-submit gets."""
        return str(self._connection["master"])

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master == "local" or self.master.startswith(("local[", "local-cluster["))

    @property
    def is_on_kubernetes(self) -> bool:
        """Whether executors run on Kubernetes."""
        return self.master.startswith("k8s://")

    @property
    def kubernetes_namespace(self) -> str | None:
        """The namespace for its pods, as far as the connection or its own properties name one."""
        namespace: str | None = self._connection["namespace"]
        return namespace

    @property
    def is_cluster(self) -> bool:
        """Whether the driver runs on the cluster."""
        return bool(self._connection["deploy_mode"] == "cluster")

    @cached_property
    def spark_home(self) -> SparkHome:
        """The Spark that spark-submit starts.

        :raises SparkConnectionError: when spark-submit can't be found.
        """
        return SparkHome.of(self.find_binary())

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        """Get the connection. A missing ``spark_default`` becomes a connection to this machine."""
        return as_spark_connection(find_connection(conn_id))

    def _resolve_connection(self) -> dict[str, Any]:
        try:
            connection: dict[str, Any] = super()._resolve_connection()
        except (ValueError, RuntimeError) as error:
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} has an invalid extra: {error}. Correct it."
            ) from error
        if "k8s" in connection["master"] and getattr(spark_submit, "kube_client", None) is None:
            raise missing_provider()  # the base would fail with a NameError
        # An option, so that no spark.submit.deployMode in a property or in spark-defaults.conf decides.
        return {**connection, "deploy_mode": connection["deploy_mode"] or "client"}

    def _create_keytab_path_from_base64_keytab(self, base64_keytab: str, principal: str | None) -> str:
        """Save the connection's keytab for this user only; the base lets each user of the machine read it."""
        before = os.umask(0o077)
        try:
            path: str = super()._create_keytab_path_from_base64_keytab(base64_keytab, principal)
        except AirflowException as error:  # the base would go on without it
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} has a keytab that is not base 64, or it can't be saved in "
                f"{tempfile.gettempdir()}. Correct it, or set keytab to a file."
            ) from error
        finally:
            os.umask(before)
        with suppress(OSError):  # an earlier task, maybe of another user, may have saved it
            os.chmod(path, 0o600)
        return path

    def _check_connection(self) -> None:
        if self.master == "spark://":
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} has no master. Set its host, e.g. to local[*], yarn or "
                "spark://host:7077."
            )
        if self.master.startswith("sc://"):
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} points to a Spark Connect server, which gives no access to "
                "Delta's classes. Set its host to the master of that cluster (yarn, spark://…, k8s://…). The merge "
                "then runs there as its own application."
            )

    def check_master(self) -> None:
        """Fail immediately if no standalone master answers; Spark itself would retry for a minute.

        :raises SparkConnectionError: when none of the addresses accepts a connection.
        """
        if not self.master.startswith("spark://"):
            return
        reasons = []
        for address in self.master.removeprefix("spark://").split(","):
            host, _, port = address.rpartition(":")
            try:
                with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_CONNECT):
                    return
            except (OSError, ValueError) as error:
                reasons.append(f"{address}: {error}")
        raise SparkConnectionError(
            f"No Spark master answers at {self.master} ({'; '.join(reasons)}). Check the host and port in the Airflow "
            f"connection {self._conn_id!r}, and that the master is running and reachable from this worker."
        )

    def add_jars(self, jars: Sequence[str], *, on_class_path: bool = True) -> None:
        """Add these jars to driver and executors.

        :param on_class_path: whether a local driver gets them on its class path.
        """
        if self.is_local and on_class_path:
            # On the class path they are used in place; --jars would copy them at each start.
            self._driver_class_path = ":".join(filter(None, [*jars, self._driver_class_path]))
        else:
            self._jars = ",".join(filter(None, [*jars, self._jars]))

    def set_properties(self, staging: Staging, properties: Mapping[str, Any]) -> None:
        """Set the Spark properties."""
        staging.write_properties(properties)

    def use_staged_files(self, staging: Staging, parent: str) -> None:
        """Make a local driver use the staged files in place, and end with the process ``parent``."""
        self._application_args = [
            *("--request", str(staging.request)),
            *("--result", str(staging.result)),
            *("--parent-pid", parent),
            *("--staging-folder", str(staging.folder)),
        ]

    def take_secret_jars(self) -> dict[str, str]:
        """The property for the jars if a URL among them has a password, which the process list would show."""
        if not self._jars or not holds_password(self._jars):
            return {}
        jars, self._jars = self._jars, None
        return {"spark.jars": jars}

    def keep_warm(self, staging: Staging, parent: str) -> None:
        """Make the driver a server for merges that ends with the process ``parent``."""
        self._name = KEPT_NAME  # it merges for several tasks
        self._application_args = [
            *("--folder", str(staging.folder)),
            *("--properties", staging.properties.name),
            *("--result", str(staging.result)),
            *("--parent-pid", parent),
        ]

    @property
    def arguments(self) -> list[str]:
        """The command line of spark-submit, without the application and the application's arguments."""
        return [self.find_binary(), *map(str, self._build_spark_common_args())]

    def send_to_cluster(self, staging: Staging, cluster_mode: ClusterMode) -> None:
        """Ship the request to a driver on the cluster, which finds it in its working directory."""
        self.cluster_mode = cluster_mode
        self._files = str(staging.request)
        self._application_args = ["--request", staging.request.name, "--result", cluster_mode.result]

    def command(self, application: str) -> list[str]:
        """The command for another process to run spark-submit, in :meth:`environment`."""
        return [str(part) for part in self._build_spark_submit_command(application)]

    def environment(self) -> dict[str, str]:
        """The environment for spark-submit."""
        env = dict(os.environ)
        if env.get("LC_ALL") in ("C", "POSIX"):
            env["LC_ALL"] = "C.UTF-8"  # otherwise Java can't open files whose names aren't ASCII
        if "PYSPARK_PYTHON" not in env and not self.is_cluster:
            # The driver runs here, so it uses this Python, even if no virtual environment is activated.
            env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if Path(self.find_binary()).parent == Path(sys.executable).parent and self.spark_home.path is not None:
            # Pip's spark-submit would ask the Python of PYSPARK_PYTHON for it, which may be there only on the cluster.
            env.setdefault("SPARK_HOME", str(self.spark_home.path))
        if self.is_cluster and self.is_on_kubernetes and self.store_jars:
            # It uploads the merge's files to result_path, and --jars are only for the driver.
            others = [env["SPARK_DIST_CLASSPATH"]] if env.get("SPARK_DIST_CLASSPATH") else []
            env["SPARK_DIST_CLASSPATH"] = os.pathsep.join([*self.store_jars, *others])
        if self.kube_config is not None:
            env["KUBECONFIG"] = str(self.kube_config)
        if self.is_local:
            env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # no other machine needs to reach it
        temporary = [f"-Djava.io.tmpdir={self._temporary}"] if self._temporary is not None else []
        if options := [*self.java_options, *temporary]:
            quoted = [f'"{option}"' for option in options]
            env["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, [env.get("SPARK_SUBMIT_OPTS"), *quoted]))
        return env

    def find_binary(self) -> str:
        """The path of spark-submit.

        :raises SparkConnectionError: when it can't be found.
        """
        binary = str(self._connection["spark_binary"] or DEFAULT_SPARK_BINARY)
        if (found := find_spark_submit(binary)) is None:
            raise SparkConnectionError(
                f"{binary} was not found on the PATH or next to {sys.executable}. Install pyspark for this Python, or "
                "set spark_binary to its path."
            )
        return found

    def _get_spark_binary_path(self) -> list[str]:
        return [self.find_binary()]

    def _build_spark_common_args(self) -> list[str]:
        # A properties file alone would disable spark-defaults.conf.
        return [*super()._build_spark_common_args(), *self._with_defaults]

    @property
    def _with_defaults(self) -> list[str]:
        """The option that applies spark-defaults.conf in addition to a properties file; Spark 3.5 has none."""
        return [] if (self.spark_home.version or "").startswith("3.") else ["--load-spark-defaults"]
