"""Airflow's ``SparkSubmitHook``, as a merge needs it: local without a connection, and gone entirely when killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import DEFAULT_SPARK_BINARY, SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, Connection, redact

from airflow_delta_merge.hooks.application_keeper import end_group
from airflow_delta_merge.hooks.connection import SparkConnectionError, as_spark_connection, find_connection
from airflow_delta_merge.hooks.spark_application import SparkApplication

if TYPE_CHECKING:
    from subprocess import Popen

_SECONDS_TO_CONNECT = 5.0


class SparkSubmit(SparkSubmitHook):
    """Runs one spark-submit in a process group of its own.

    Differs from its base in this:

    - Without the connection ``spark_default`` it runs ``local[*]``. (The base would go to YARN.) Any other connection
      that isn't there is an error: whoever names one doesn't mean this machine.
    - A spark-submit that isn't on the PATH is looked for beside the Python that runs Airflow, where pip puts it.
    - The connection may be one of type ``delta_merge``, too.
    - Properties come by file only, and ``spark-defaults.conf`` still counts.
    - Killing it ends the JVM *and* the Python process under it.
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
        self.killed = False
        self.last_line = ""
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

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        """Get the connection, or for a ``spark_default`` that isn't there one to this machine."""
        return as_spark_connection(find_connection(conn_id))

    def _check_connection(self) -> None:
        if self.master == "spark://":
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} names no master: put one into its host, e.g. local[*], yarn "
                "or spark://host:7077."
            )
        if self._connection["deploy_mode"] == "cluster":
            why = "from where a merge's result cannot be read back yet"
            if self.master.startswith("spark://"):
                why = "in which Spark takes no Python application on a standalone cluster"
            raise SparkConnectionError(
                f"The Spark connection {self._conn_id!r} has deploy mode cluster, {why}: use deploy mode client."
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

    def run(self, application: str) -> int:
        """Run spark-submit to its end, its output into the log, and return its exit code (negative: a signal)."""
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

    def command(self, application: str) -> list[str]:
        """The command by which somebody else runs spark-submit, in :meth:`environment`."""
        return [str(part) for part in self._build_spark_submit_command(application)]

    def environment(self) -> dict[str, str]:
        """The environment for spark-submit."""
        env = dict(os.environ)
        if "PYSPARK_PYTHON" not in env:
            # The driver runs here, so with this Python, also when no virtual environment is activated.
            env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if self.is_local:
            env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody else has business with it
        temporary = [f"-Djava.io.tmpdir={self._temporary}"] if self._temporary is not None else []
        if options := [*self.java_options, *temporary]:
            quoted = [f'"{option}"' for option in options]
            env["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, [env.get("SPARK_SUBMIT_OPTS"), *quoted]))
        return env

    def on_kill(self) -> None:
        """End the whole process group of spark-submit, first politely."""
        self.killed = True
        if self._submit_sp is not None:
            end_group(self._submit_sp)
        super().on_kill()

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
        return [*super()._build_spark_common_args(), "--load-spark-defaults"]

    def _process_spark_submit_log(self, itr: Iterator[str]) -> None:
        super()._process_spark_submit_log(self._remember(itr))

    def _remember(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            # Airflow masks the task's log, but not what its workers print of it, nor an error that quotes it.
            masked = str(redact(line))
            self.last_line = masked.strip() or self.last_line
            self._notice_application(masked)
            yield masked

    def _notice_application(self, line: str) -> None:
        if self._on_application is None:
            return
        application = SparkApplication.told_by(line)
        if application is None:
            return
        try:
            self._on_application(application)
        except Exception:  # whoever wants to know is no part of the merge
            self.log.warning("Nobody could be told of Spark application %s.", application.id, exc_info=True)
        self._on_application = None
