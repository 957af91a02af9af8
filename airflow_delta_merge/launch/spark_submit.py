"""Airflow's ``SparkSubmitHook`` for merges: logs what helps, and is completely ended when killed."""

from __future__ import annotations

import copy
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, redact

from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.launch.keeper import end_group
from airflow_delta_merge.launch.spark_application import SparkApplication
from airflow_delta_merge.launch.spark_log import SparkLog
from airflow_delta_merge.launch.spark_output import SparkOutput
from airflow_delta_merge.launch.spark_submit_command import SparkSubmitCommand

if TYPE_CHECKING:
    from subprocess import Popen

_SECONDS_TO_CLEAN_UP = 2.5  # it asks YARN each second; Airflow's supervisor gives a killed task five


class SparkSubmit(SparkSubmitCommand):
    """Runs one spark-submit in its own process group.

    Killing it ends the JVM *and* its Python process, and in cluster mode the application on the cluster. The task's log
    gets only useful lines; a file among Airflow's logs gets all of them.

    :param on_application: called when the Spark application has started.
    """

    _submit_sp: Popen[str] | None

    def __init__(self, *, on_application: Callable[[SparkApplication], None] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._on_application = on_application
        self.killed = False
        #: Its output.
        self.output = SparkOutput()
        self.spark_log = SparkLog.of(str(self._name))

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

    def log_lines(self, lines: Sequence[str]) -> None:
        """Process and log output of the application that didn't come through spark-submit."""
        for line in self._process_lines(iter(lines)):
            self.log.info("%s", line)

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
