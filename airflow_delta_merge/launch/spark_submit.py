"""Airflow's ``SparkSubmitHook`` for merges: local by default, and completely ended when killed."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import DEFAULT_SPARK_BINARY, SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, Connection, redact

from airflow_delta_merge.connections.secrets import holds_password
from airflow_delta_merge.connections.spark import as_spark_connection, find_connection
from airflow_delta_merge.exceptions import DeltaMergeError, SparkConnectionError
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.keeper import end_group
from airflow_delta_merge.launch.kubernetes import missing_provider
from airflow_delta_merge.launch.spark_application import SparkApplication
from airflow_delta_merge.launch.spark_log import SparkLog
from airflow_delta_merge.launch.spark_output import SparkOutput
from airflow_delta_merge.runtime.spark_home import SparkHome

if TYPE_CHECKING:
    from subprocess import Popen

    from airflow_delta_merge.launch.staging import Staging

#: The name of a kept Spark application.
KEPT_NAME = "delta-merge"

_SECONDS_TO_CONNECT = 5.0
_SECONDS_TO_CLEAN_UP = 2.5  # it asks YARN each second; Airflow's supervisor gives a killed task five


class SparkSubmit(SparkSubmitHook):
    """Runs one spark-submit in its own process group.

    Differences from its base class:

    - If the connection ``spark_default`` doesn't exist, it runs ``local[*]``. (The base would use YARN.) Any other
      missing connection is an error.
    - If spark-submit isn't on the PATH, it is searched next to the Python that runs Airflow, where pip installs it.
    - The connection may also have type ``delta_merge``.
    - Without a deploy mode in the connection it is ``client``, whatever Spark's properties say.
    - Properties are passed only in a file, and ``spark-defaults.conf`` still applies.
    - Killing it ends the JVM *and* its Python process, and in cluster mode the application on the cluster.
    - The task's log gets only useful lines; a file among Airflow's logs gets all of them.
    """

    _submit_sp: Popen[str] | None

    def __init__(
        self,
        *,
        temporary: str | None = None,
        on_application: Callable[[SparkApplication], None] | None = None,
        **kwargs: Any,
    ) -> None:
        """Find the connection, without starting anything.

        :param temporary: folder for temporary files of the driver's JVM; by default the system's.
        :param on_application: called when the Spark application has started.
        """
        super().__init__(**kwargs)
        self._temporary = temporary
        self._on_application = on_application
        self.java_options: list[str] = []
        #: Jars by which spark-submit itself writes to object stores.
        self.store_jars: list[str] = []
        #: How the driver runs on the cluster; None if it doesn't.
        self.cluster_mode: ClusterMode | None = None
        #: The kubeconfig of spark-submit; None for that of the worker's user.
        self.kube_config: Path | None = None
        self.killed = False
        #: Its output.
        self.output = SparkOutput()
        self.spark_log = SparkLog.of(str(self._name))
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

    def log_lines(self, lines: Sequence[str]) -> None:
        """Process and log output of the application that didn't come through spark-submit."""
        for line in self._process_lines(iter(lines)):
            self.log.info("%s", line)

    def send_to_cluster(self, staging: Staging, cluster_mode: ClusterMode) -> None:
        """Ship the request to a driver on the cluster, which finds it in its working directory."""
        self.cluster_mode = cluster_mode
        self._files = str(staging.request)
        self._application_args = ["--request", staging.request.name, "--result", cluster_mode.result]

    def run(self, application: str) -> int:
        """Run spark-submit to its end, log its output, and return its exit code (negative for a signal)."""
        if self.killed:
            return -signal.SIGTERM
        self.open_log()
        try:
            # A byte that is no text, from Spark or a library, must not end the merge.
            self.submit(application, start_new_session=True, env=self.environment(), errors="replace")
        except AirflowException:
            # The exception only says "Cannot execute" and the command; the result file has the reason.
            if self._submit_sp is None:
                raise
        except BaseException:
            self.on_kill()
            raise
        assert self._submit_sp is not None
        exit_code = self._submit_sp.wait()
        with suppress(ProcessLookupError, PermissionError):
            # A killed JVM leaves its Python process behind for a while.
            os.killpg(self._submit_sp.pid, signal.SIGKILL)
        return exit_code

    @property
    def application(self) -> SparkApplication | None:
        """The Spark application; None until Spark reports it."""
        return self.output.application

    @property
    def verbose(self) -> bool:
        """Whether the task's log gets all lines."""
        return bool(self._verbose)

    def open_log(self) -> None:
        """Create the file for Spark's own log, and log its path."""
        if self.spark_log.open():
            self.log.info("Spark's own log: %s", self.spark_log.path)

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

    def local_copy(self, application_args: Sequence[str]) -> SparkSubmit:
        """A copy that runs an application without a session on this machine, without the cluster driver's settings."""
        here = copy.copy(self)
        here.cluster_mode = here._on_application = here._files = here._submit_sp = None
        here.output = SparkOutput()
        here._connection = {**self._connection, "master": "local[1]", "deploy_mode": "client", "queue": None}
        here._is_yarn = here._is_yarn_cluster_mode = here._is_kubernetes = False
        here._driver_memory = "512m"
        here._application_args = [*application_args]
        # These settings are for the cluster's driver, whose machine has other files.
        paths = ("defaultJavaOptions", "extraJavaOptions", "extraClassPath", "extraLibraryPath")
        here._conf = {f"spark.driver.{name}": "" for name in paths} | {"spark.pyspark.driver.python": sys.executable}
        return here

    def on_kill(self) -> None:
        """End the application on the cluster, if any, and the whole process group of spark-submit."""
        self.killed = True
        reached = self.end_on_cluster()
        if reached:
            self._let_spark_submit_clean_up()
        if self._submit_sp is not None:
            end_group(self._submit_sp)
        if reached:
            self.end_on_cluster()  # again: the application may have been submitted meanwhile
        # Otherwise the base class would run the command `yarn`, or delete the pod through another connection.
        self._yarn_application_id = self._kubernetes_driver_pod = None
        super().on_kill()

    def end_on_cluster(self) -> bool:
        """End the application whose driver runs on the cluster, if any. False if the cluster couldn't be reached."""
        if self.cluster_mode is None:
            return False
        manager = self.cluster_mode.manager
        try:
            if killed := manager.kill(self.cluster_mode.submission):
                self.log.info("Spark application %s on %s was killed", ", ".join(killed), manager.name)
        except DeltaMergeError as error:
            self.log.warning("The Spark application on the cluster could not be ended: %s", error)
            return False
        return True

    def _let_spark_submit_clean_up(self) -> None:
        """Give spark-submit time to notice that its application was killed, so that it removes its uploads."""
        deadline = time.monotonic() + _SECONDS_TO_CLEAN_UP
        while self._submit_sp is not None and self._submit_sp.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def find_binary(self) -> str:
        """The path of spark-submit.

        :raises SparkConnectionError: when it can't be found.
        """
        binary = str(self._connection["spark_binary"] or DEFAULT_SPARK_BINARY)
        found = shutil.which(binary) or shutil.which(binary, path=str(Path(sys.executable).parent))
        if found is None:
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

    def _process_spark_submit_log(self, itr: Iterator[str]) -> None:
        if self.killed:  # while the process started, when on_kill didn't know it yet
            self.on_kill()
        super()._process_spark_submit_log(self._process_lines(itr))

    def _process_lines(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            # Airflow masks the task's log, but not the worker's output or an error that quotes the log.
            masked = str(redact(line))
            self.spark_log.write([masked])
            known = self.application
            is_shown = self.output.read(masked)
            if known is None and self.application is not None:
                self.report_application(self.application)
            if is_shown or self.verbose:
                yield masked

    def report_application(self, application: SparkApplication) -> None:
        """Call ``on_application``, if it is set, with an application that has started."""
        if self._on_application is None:
            return
        try:
            self._on_application(application)
        except Exception:  # a failing callback must not fail the merge
            self.log.warning("The callback for Spark application %s failed.", application.id, exc_info=True)
