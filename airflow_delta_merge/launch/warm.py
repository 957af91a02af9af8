"""The task's side of a merge in a kept Spark: sends the request, logs progress and receives the outcome."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.contract.frames import receive, send
from airflow_delta_merge.contract.outcome import JobOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.launch import waiter
from airflow_delta_merge.launch.keeper import KEEPER_PID
from airflow_delta_merge.launch.kept_spark import MAX_KEPT, KeptSpark, make_room, remove_orphans, user_lock
from airflow_delta_merge.launch.local_application import LocalApplication, isolated
from airflow_delta_merge.launch.preparation import Preparation, WarmPreparation, environment_of_kept
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.launch.staging import Staging, stage

if TYPE_CHECKING:
    from airflow_delta_merge.launch.spark_submit import SparkSubmit

_POLL_SECONDS = 0.05
# A kept Spark may end just when a task finds it. That is unlikely to happen three times in a row.
_MAX_TRIES = 3

log = logging.getLogger(__name__)


class WarmMerge:
    """Runs one request in a kept Spark.

    :param preparation: makes the spark-submits.
    :param request: what to merge, and how.
    :param keep_warm: how many seconds the Spark stays after the merge.
    :param on_application: called when the Spark application is known.
    :ivar killed: whether Airflow has ended the task. Then nothing more is sent to a kept Spark.
    """

    def __init__(
        self,
        preparation: Preparation,
        request: JobRequest,
        keep_warm: float,
        on_application: Callable[[SparkApplication], None] | None = None,
    ) -> None:
        self.killed = False
        self._preparation = preparation
        self._request = request
        self._keep_warm = keep_warm
        self._on_application = on_application
        self._connection: socket.socket | None = None

    def run(self) -> ApplicationEnd | None:
        """Merge in a kept Spark, or start one and keep it.

        :return: how it ended; None if the maximum number of kept Sparks is busy.
        :raises DeltaMergeError: when something that the merge needs is missing.
        """
        prepared = self._preparation.for_warm_merge(self._request, self._on_application)
        accepted = self._accepted(prepared)
        if not isinstance(accepted, socket.socket):
            return accepted
        with accepted:
            try:
                return self._follow(accepted, prepared.submit)
            finally:
                self._connection = None

    def start(self) -> socket.socket | ApplicationEnd | None:
        """Begin to merge in a kept Spark, or in one that this starts and keeps.

        :return: the connection on which it reports and by whose end it is cancelled; how the Spark ended if it can't
            start, or the task was killed; None if the maximum number of kept Sparks is busy.
        :raises DeltaMergeError: when something that the merge needs is missing.
        """
        return self._accepted(self._preparation.for_warm_merge(self._request, self._on_application))

    def _accepted(self, prepared: WarmPreparation) -> socket.socket | ApplicationEnd | None:
        for _ in range(_MAX_TRIES):
            with user_lock():
                remove_orphans()
                if self.killed:
                    break
                started = None
                kept = KeptSpark.find(prepared.kind)
                if kept is None:
                    if not make_room():
                        log.info("All %d kept Sparks are busy, so this merge gets its own Spark", MAX_KEPT)
                        return None
                    kept, started = self._start(prepared.kind, prepared.submit)
            end = self._wait(kept, started)
            if end is not None:
                return end
            connection = self._send(kept, prepared.request)
            if connection is not None:
                return connection
        if self.killed:
            return ApplicationEnd(exit_code=1)
        log.warning("The kept Sparks ended before they accepted this merge, so it gets its own Spark")
        return None

    def on_kill(self) -> None:
        """Disconnect from the kept Spark, which then cancels the merge's jobs."""
        self.killed = True
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _start(self, kind: str, submit: SparkSubmit) -> tuple[KeptSpark, LocalApplication]:
        staging = stage()
        try:
            server = self._preparation.for_kept(staging)
            application = str(staging.write_application("server"))
            kept, started = KeptSpark.make(staging, kind), LocalApplication(staging.folder)
            submit.open_log()
            started.log_to(submit.spark_log, verbose=submit.verbose)
            environment = environment_of_kept(server)
            # The server decides when it ends, so the keeper must not end it when no one follows it.
            options = ["--detach", "--silence-seconds", "inf", "--kept-seconds", "10"]
            started.start_keeper(server.command(application), environment, *options)
        except BaseException:
            LocalApplication(staging.folder).kill()
            raise
        log.info("Starting a Spark that stays for %g s after its last merge (%s)", self._keep_warm, staging.folder)
        return kept, started

    def _wait(self, kept: KeptSpark, started: LocalApplication | None) -> ApplicationEnd | None:
        """Wait until it listens, or has ended.

        :param started: the same application, if this task started it; its output is logged meanwhile.
        :return: how it ended, if it could not start. If the task is killed, the Spark stays, since others may wait too.
        """
        while not kept.socket_path.exists() and not self.killed:
            if started is not None:
                lines, end = started.poll()
                for line in lines:
                    log.info("%s", line)
                if end is not None:
                    started.kill()
                    return end
            elif not kept.takes_merges:
                return None
            time.sleep(_POLL_SECONDS)
        return None

    def _send(self, kept: KeptSpark, request: JobRequest) -> socket.socket | None:
        """Send the request. Returns the connection if it was accepted."""
        with suppress(OSError), ExitStack() as closing:  # it is ending, or didn't answer in time
            self._connection = closing.enter_context(kept.connect())
            if self.killed:  # before on_kill knew the connection
                return None
            send(self._connection, {"request": request.to_json(), "keep_warm": self._keep_warm})
            accepted = receive(self._connection)
            if accepted is not None:
                log.info("Merging in the kept Spark of process %s", accepted.get("accepted"))
                closing.pop_all()
                return self._connection
        self._connection = None
        return None

    def _follow(self, connection: socket.socket, submit: SparkSubmit) -> ApplicationEnd:
        connection.settimeout(None)
        while (message := _next(connection)) is not None:
            if "log" in message:
                submit.log_lines([message["log"]])
            if "outcome" in message:
                outcome = JobOutcome.from_dict(message["outcome"])
                return ApplicationEnd(outcome=outcome, exit_code=0, application=submit.application)
        if self.killed:
            return ApplicationEnd(exit_code=1)
        return ApplicationEnd(error=waiter.WHY_SPARK_ENDED, application=submit.application)


def waiting_command(staging: Staging) -> list[str]:
    """The command that waits for a merge from :meth:`WarmMerge.start` and writes its result into ``staging``.

    Its standard input is the connection.
    """
    return [*isolated(waiter.__file__), str(staging.py_files), str(staging.result), KEEPER_PID]


def _next(connection: socket.socket) -> dict[str, Any] | None:
    try:
        return receive(connection)
    except ConnectionError:
        return None
