"""Airflow's ``SparkSubmitHook``, as a merge needs it: local without a connection, and gone entirely when killed."""

from __future__ import annotations

import copy
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import DEFAULT_SPARK_BINARY, SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, Connection, redact

from airflow_delta_merge.connections.spark import as_spark_connection, find_connection
from airflow_delta_merge.exceptions import ResourceManagerError, SparkConnectionError
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.keeper import end_group
from airflow_delta_merge.launch.spark_application import SparkApplication
from airflow_delta_merge.launch.spark_log import SparkLog
from airflow_delta_merge.launch.spark_output import SparkOutput
from airflow_delta_merge.runtime.spark_home import SparkHome

if TYPE_CHECKING:
    from subprocess import Popen

    from airflow_delta_merge.launch.staging import Staging

_SECONDS_TO_CONNECT = 5.0
_SECONDS_TO_CLEAN_UP = 2.5  # it asks YARN each second; Airflow's supervisor gives a killed task five
_SECONDS_TO_KILL_A_POD = 30.0


class SparkSubmit(SparkSubmitHook):
    """Runs one spark-submit in a process group of its own.

    Differs from its base in this:

    - Without the connection ``spark_default`` it runs ``local[*]``. (The base would go to YARN.) Any other connection
      that isn't there is an error: whoever names one doesn't mean this machine.
    - A spark-submit that isn't on the PATH is looked for beside the Python that runs Airflow, where pip puts it.
    - The connection may be one of type ``delta_merge``, too.
    - Properties come by file only, and ``spark-defaults.conf`` still counts.
    - Killing it ends the JVM *and* the Python process under it, and in cluster mode the application on the cluster.
    - The task's log gets the lines that help a person, a file beside Airflow's logs gets all of them.
    """

    _submit_sp: Popen[str] | None

    def __init__(
        self,
        *,
        temporary: str | None = None,
        on_application: Callable[[SparkApplication], None] | None = None,
        **kwargs: Any,
    ) -> None:
        """Find the connection, but start nothing yet.

        :param temporary: folder for temporary files of the driver's JVM; by default the system's.
        :param on_application: called when the Spark application has started.
        """
        super().__init__(**kwargs)
        self._temporary = temporary
        self._on_application = on_application
        self.java_options: list[str] = []
        #: What belongs to an application whose driver runs on the cluster; None for any other.
        self.cluster_mode: ClusterMode | None = None
        self.killed = False
        #: What it has printed.
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
    def local_cores(self) -> int:
        """The cores of a local master: ``local`` has one, ``local[4]`` and ``local[4,2]`` four, ``local[*]`` all."""
        found = re.match(r"local\[(\d+)", self.master)
        if found:
            return int(found[1])
        if self.master == "local":
            return 1
        with suppress(AttributeError):  # not on macOS
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    @property
    def is_cluster(self) -> bool:
        """Whether the driver is to run on the cluster."""
        return bool(self._connection["deploy_mode"] == "cluster")

    @cached_property
    def spark_home(self) -> SparkHome:
        """The Spark that spark-submit starts.

        :raises SparkConnectionError: when spark-submit isn't there.
        """
        return SparkHome.of(self.find_binary())

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        """Get the connection, or for a ``spark_default`` that isn't there one to this machine."""
        return as_spark_connection(find_connection(conn_id))

    def _resolve_connection(self) -> dict[str, Any]:
        connection: dict[str, Any] = super()._resolve_connection()
        if "k8s" in connection["master"] and getattr(spark_submit, "kube_client", None) is None:
            # The base would fail with a NameError.
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} points to Kubernetes, for which Airflow's Spark provider "
                "needs the provider apache-airflow-providers-cncf-kubernetes: install it."
            )
        return connection

    def _check_connection(self) -> None:
        if self.master == "spark://":
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} names no master: put one into its host, e.g. local[*], yarn "
                "or spark://host:7077."
            )
        if self.master.startswith("sc://"):
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} points to a Spark Connect server, over which Delta's classes "
                "cannot be reached: let it name the master of that cluster (yarn, spark://…, k8s://…), where the merge "
                "then runs as an application of its own."
            )

    def check_master(self) -> None:
        """Fail at once where Spark would try for a minute: when no standalone master answers.

        :raises SparkConnectionError: when none of the addresses takes a connection.
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
            f"No Spark master answers at {self.master} ({'; '.join(reasons)}): check the host and port in the Airflow "
            f"connection {self._conn_id!r}, and that the master runs and can be reached from this worker."
        )

    def add_jars(self, jars: Sequence[str], *, on_class_path: bool = True) -> None:
        """Give these jars to driver and executors.

        :param on_class_path: whether they go on the class path of a local driver.
        """
        if self.is_local and on_class_path:
            # On the class path they are used where they lie; by --jars they would be copied at each start.
            self._driver_class_path = ":".join(filter(None, [*jars, self._driver_class_path]))
        else:
            self._jars = ",".join(filter(None, [*jars, self._jars]))

    def keep_here(self, staging: Staging, parent: str) -> None:
        """Have the driver read and write the staged files where they are, and end with the process ``parent``."""
        self._application_args = [
            *("--request", str(staging.request)),
            *("--result", str(staging.result)),
            *("--parent-pid", parent),
            *("--staging-folder", str(staging.folder)),
        ]

    def send(self, staging: Staging, cluster_mode: ClusterMode) -> None:
        """Have the request travel to a driver on the cluster, which finds it in the folder where it starts."""
        self.cluster_mode = cluster_mode
        self._files = str(staging.request)
        self._application_args = ["--request", staging.request.name, "--result", cluster_mode.result]

    def run(self, application: str) -> int:
        """Run spark-submit to its end, its output into the log, and return its exit code (negative: a signal)."""
        self.open_log()
        try:
            self.submit(application, start_new_session=True, env=self.environment())
        except AirflowException:
            # It says "Cannot execute" and the command; the caller knows more from the result file.
            if self._submit_sp is None:
                raise
        except BaseException:
            self.on_kill()
            raise
        assert self._submit_sp is not None
        exit_code = self._submit_sp.wait()
        with suppress(ProcessLookupError, PermissionError):
            # A JVM that was killed leaves its Python process behind for a while.
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
        """Make the file for Spark's own log, and name it in the task's."""
        if self.spark_log.open():
            self.log.info("Spark's own log: %s", self.spark_log.path)

    def command(self, application: str) -> list[str]:
        """The command by which somebody else runs spark-submit, in :meth:`environment`."""
        return [str(part) for part in self._build_spark_submit_command(application)]

    def environment(self) -> dict[str, str]:
        """The environment for spark-submit."""
        env = dict(os.environ)
        if "PYSPARK_PYTHON" not in env:
            if not self.is_cluster:
                # The driver runs here, so with this Python, also when no virtual environment is activated.
                env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            elif Path(self.find_binary()).parent == Path(sys.executable).parent:
                # Spark would take that variable to the cluster, where this Python isn't; pip's needs it for this.
                env.setdefault("SPARK_HOME", str(self.spark_home.path))
        if self.is_local:
            env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody else has business with it
        temporary = [f"-Djava.io.tmpdir={self._temporary}"] if self._temporary is not None else []
        if options := [*self.java_options, *temporary]:
            quoted = [f'"{option}"' for option in options]
            env["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, [env.get("SPARK_SUBMIT_OPTS"), *quoted]))
        return env

    def on_this_machine(self, application_args: Sequence[str]) -> SparkSubmit:
        """The same for an application without a session that runs here, whatever the driver on the cluster needs."""
        here = copy.copy(self)
        here.cluster_mode = here._on_application = here._files = here._submit_sp = None
        here.output = SparkOutput()
        here._connection = {**self._connection, "master": "local[1]", "deploy_mode": "client", "queue": None}
        here._is_yarn = here._is_yarn_cluster_mode = here._is_kubernetes = False
        here._driver_memory = "512m"
        here._application_args = [*application_args]
        # Of the driver, whose machine has other files.
        paths = ("defaultJavaOptions", "extraJavaOptions", "extraClassPath", "extraLibraryPath")
        here._conf = {f"spark.driver.{name}": "" for name in paths} | {"spark.pyspark.driver.python": sys.executable}
        return here

    def on_kill(self) -> None:
        """End the application on the cluster, if it is there, and the whole process group of spark-submit."""
        self.killed = True
        on_yarn = self.cluster_mode is not None and self.cluster_mode.resource_manager is not None
        reached = on_yarn and self.end_on_cluster()
        if reached:
            self._let_spark_submit_clean_up()
        if self._submit_sp is not None:
            end_group(self._submit_sp)
        if reached or not on_yarn:
            self.end_on_cluster()  # on YARN once more: it may have been submitted meanwhile
        self._yarn_application_id = self._kubernetes_driver_pod = None  # else the base looks for a command `yarn`
        super().on_kill()

    def end_on_cluster(self) -> bool:
        """End the application whose driver runs on the cluster, if there is one; False when nobody could be asked."""
        if self.cluster_mode is None:
            return False
        try:
            if self.cluster_mode.resource_manager is None:
                self._kill_driver_pod(self.cluster_mode.driver_pod)
            elif killed := self.cluster_mode.resource_manager.kill(self.cluster_mode.submission):
                self.log.info("Spark application %s on YARN was killed", ", ".join(killed))
        except (ResourceManagerError, OSError, subprocess.SubprocessError) as error:
            self.log.warning("The Spark application on the cluster could not be ended: %s", error)
            return False
        return True

    def _let_spark_submit_clean_up(self) -> None:
        """Give spark-submit the time to hear that its application was killed: then it removes what it has uploaded."""
        deadline = time.monotonic() + _SECONDS_TO_CLEAN_UP
        while self._submit_sp is not None and self._submit_sp.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def _kill_driver_pod(self, pod: str) -> None:
        name = ":".join(filter(None, [self._connection["namespace"], pod]))
        properties = ["--properties-file", str(self._properties_file), *self._with_defaults]
        command = [self.find_binary(), "--master", self.master, *properties, "--kill", name]
        # In a session of its own: it takes some seconds, and shall go on should this process be killed meanwhile.
        subprocess.run(
            command, check=False, capture_output=True, timeout=_SECONDS_TO_KILL_A_POD, start_new_session=True
        )

    def find_binary(self) -> str:
        """The path of spark-submit.

        :raises SparkConnectionError: when it isn't there.
        """
        binary = str(self._connection["spark_binary"] or DEFAULT_SPARK_BINARY)
        found = shutil.which(binary) or shutil.which(binary, path=str(Path(sys.executable).parent))
        if found is None:
            raise SparkConnectionError(
                f"There is no {binary} on the PATH nor beside {sys.executable}: install pyspark for this Python, or "
                "give its path as spark_binary."
            )
        return found

    def _get_spark_binary_path(self) -> list[str]:
        return [self.find_binary()]

    def _build_spark_common_args(self) -> list[str]:
        # A properties file would by itself switch spark-defaults.conf off.
        return [*super()._build_spark_common_args(), *self._with_defaults]

    @property
    def _with_defaults(self) -> list[str]:
        """What lets spark-defaults.conf count beside a properties file; Spark 3.5 has nothing of the kind."""
        return [] if (self.spark_home.version or "").startswith("3.") else ["--load-spark-defaults"]

    def _process_spark_submit_log(self, itr: Iterator[str]) -> None:
        super()._process_spark_submit_log(self._remember(itr))

    def _remember(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            # Airflow masks the task's log, but not what its workers print of it, nor an error that quotes it.
            masked = str(redact(line))
            self.spark_log.write([masked])
            known = self.application
            is_shown = self.output.read(masked)
            if known is None:
                self._tell_application()
            if is_shown or self.verbose:
                yield masked

    def _tell_application(self) -> None:
        if self.application is None or self._on_application is None:
            return
        try:
            self._on_application(self.application)
        except Exception:  # whoever wants to know is no part of the merge
            self.log.warning("Nobody could be told of Spark application %s.", self.application.id, exc_info=True)
