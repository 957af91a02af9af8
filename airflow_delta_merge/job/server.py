"""The PySpark application of a kept Spark: takes merges over a Unix socket until it has been idle for long enough.

Each merge has its own session, job group and JVM thread. Its task keeps the connection open. When the connection
closes, the merge's jobs are cancelled, and other merges continue. This process ends with its keeper, which started it.
"""

from __future__ import annotations

import argparse
import contextvars
import fcntl
import logging
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.contract.frames import KIND, SERVER_LOCK, SOCKET, peer_uid, receive, send
from airflow_delta_merge.contract.outcome import JobError, JobOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.job.application import EXPLAINED, Merges, log_progress, merges_at_once, write_outcome
from airflow_delta_merge.job.process import end_with
from airflow_delta_merge.job.session import describe_application, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Limits after which a new Spark starts, because installed files may change, logins expire and memory leak. A restart
# every six hours or thousand merges costs little.
_MAX_AGE_SECONDS = 6 * 3600.0
_MAX_MERGES = 1000
# Beyond its heap, which has its own limit, Java needs about 400 MB for classes, compiled code and threads, and this
# process 60 MB. More than a gigabyte points to a leak.
_MAX_BYTES_BEYOND_HEAP = 1 << 30

_POLL_SECONDS = 0.2
_SECONDS_FOR_FIRST_MERGE = 60.0
_SECONDS_BEFORE_GC = 5.0
_SOCKET_TIMEOUT_SECONDS = 60.0
_SECONDS_TO_CANCEL = 60.0
_SECONDS_TO_STOP = 30.0

log = logging.getLogger("airflow_delta_merge.job")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the end. Returns 0, or 1 if Spark did not start, with the reason in the outcome."""
    options = _parse(arguments)
    end_with(options.parent_pid, str(options.folder))
    try:
        spark = start_session()
    except Exception as error:
        write_outcome(str(options.result), JobOutcome(error=JobError.of(error)))
        if not isinstance(error, DeltaMergeError):
            traceback.print_exc()
        return 1
    try:
        (options.folder / options.properties).unlink(missing_ok=True)  # Spark has read it, and it holds secrets
        with (options.folder / SERVER_LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            print(os.getpid(), file=lock, flush=True)
            why = Server(spark, options.folder).serve()
            print(f"The kept Spark ends: {why}.", file=sys.stderr, flush=True)
    finally:
        _end_within(_SECONDS_TO_STOP)
        spark.stop()
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="airflow_delta_merge_server", description="Take merges over a socket.")
    parser.add_argument("--folder", required=True, type=Path, help="private folder for the socket")
    parser.add_argument("--properties", required=True, help="name of the properties file there, which is removed")
    parser.add_argument("--result", required=True, type=Path, help="path to write the reason to if Spark can't start")
    parser.add_argument("--parent-pid", required=True, type=int, help="end when this process ends")
    return parser.parse_args(arguments)


def _end_within(seconds: float) -> None:
    """Kill this whole application if Spark doesn't stop in time."""
    timer = threading.Timer(seconds, os.killpg, (os.getpgid(0), signal.SIGKILL))
    timer.daemon = True
    timer.start()


class _Client:
    """The task at the other end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        with self._lock, suppress(OSError):  # the thread that waits for the merge notices it
            send(self.connection, message)

    def log(self, text: str) -> None:
        for line in text.splitlines():
            self.send({"log": line})

    def has_left(self) -> bool:
        # A task sends nothing after its request, so anything to read is the end of the connection.
        return bool(select.select([self.connection], [], [], 0)[0])


#: The client of the merge that a thread runs.
_CLIENT: contextvars.ContextVar[_Client | None] = contextvars.ContextVar("client", default=None)


class _ClientLogHandler(logging.Handler):
    """Sends each merge's log to its own task."""

    def emit(self, record: logging.LogRecord) -> None:
        client = _CLIENT.get()
        if client is None:
            print(self.format(record), file=sys.stderr, flush=True)
        else:
            client.log(self.format(record))


@dataclass
class _Merge:
    """One request, in its own thread.

    :param spark: the session from which it creates its own.
    :param request: the request, as JSON.
    :param client: the task that waits for it.
    :param group: the group of its Spark jobs.
    :param pool: its pool of Spark's fair scheduler.
    """

    spark: SparkSession
    request: str
    client: _Client
    group: str
    pool: str
    outcome: JobOutcome | None = field(default=None)

    def run(self) -> None:
        _CLIENT.set(self.client)
        threading.current_thread().name = "Merge"
        context = self.spark.sparkContext
        try:
            context.setJobGroup(self.group, self.group, interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", self.pool)
            log.info("%s", describe_application(self.spark))
            self.outcome = Merges(self.spark.newSession(), JobRequest.from_json(self.request)).run()
        except Exception as error:
            self.outcome = JobOutcome(error=JobError.of(error))
            if not isinstance(error, EXPLAINED):
                self.client.log(traceback.format_exc())
            self.client.log(f"The merge failed: {self.outcome.errors[0].message}")

    @property
    def shows_a_sound_spark(self) -> bool:
        """Whether one of its merges succeeded, or failed in a way that no other Spark can help."""
        if self.outcome is None:
            return False
        errors = [each.error for each in self.outcome.merges] or [self.outcome.error]
        return any(error is None or not error.another_try_helps for error in errors)

    def cancel(self) -> None:
        """Cancel its jobs. It may start another job before it notices, so call this until it has ended."""
        with suppress(Exception):  # Spark is gone, and so is the merge
            self.spark.sparkContext.cancelJobGroup(self.group)


class Server:
    """Accepts connections and runs their merges.

    :param spark: the session from which each merge creates its own.
    :param folder: the private folder of the socket.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._context = spark.sparkContext._jsc.sc()  # Java's, which is asked often
        self._folder = folder
        self._changed = threading.Condition()
        self._connections = 0
        self._merges = 0
        self._started = time.monotonic()
        self._idle_since = self._started
        self._succeeded = self._started  # the last time that a merge did
        self._kept_until: float | None = None  # unknown before the first such merge
        self._has_collected = False
        self._end_reason: str | None = None
        self._free_slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(merges_at_once(spark)):
            self._free_slots.put(slot)
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        self._max_bytes = int(runtime.maxMemory()) + self._bytes_off_heap() + _MAX_BYTES_BEYOND_HEAP

    def _bytes_off_heap(self) -> int:
        """What Spark itself may take beside Java's heap."""
        conf = self._context.conf()
        if not conf.getBoolean("spark.memory.offHeap.enabled", False):
            return 0
        return int(conf.getSizeAsBytes("spark.memory.offHeap.size", "0"))

    def serve(self) -> str:
        """Take merges until there is a reason to end, complete running merges, and return the reason."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # It gets its final name once it accepts connections.
            listener.bind(str(self._folder / f".{SOCKET}"))
            listener.listen(128)
            listener.settimeout(_POLL_SECONDS)
            os.rename(self._folder / f".{SOCKET}", self._folder / SOCKET)
            while (why := self._reason_to_end()) is None:
                self._collect_garbage()
                with suppress(TimeoutError):
                    self._accept(listener.accept()[0])
            self._hide()
        with self._changed:
            self._changed.wait_for(lambda: self._connections == 0)
        return why

    def _hide(self) -> None:
        """Let no further task find this Spark."""
        (self._folder / KIND).unlink(missing_ok=True)
        (self._folder / SOCKET).unlink(missing_ok=True)

    def _reason_to_end(self) -> str | None:
        now = time.monotonic()
        with self._changed:
            if self._end_reason is not None:
                return self._end_reason
            if self._connections == 0 and now > (self._kept_until or self._started + _SECONDS_FOR_FIRST_MERGE):
                return f"no merge has succeeded for {now - self._succeeded:.0f} s"
            if self._merges >= _MAX_MERGES:
                return f"it has run {self._merges} merges"
        if now - self._started > _MAX_AGE_SECONDS:
            return f"it has run for {(now - self._started) / 3600:.1f} hours"
        if self._has_stopped():
            return "its SparkContext has stopped"
        if not (self._folder / SOCKET).exists():
            return "its socket was removed"
        return None

    def _has_stopped(self) -> bool:
        """Whether Spark has stopped itself, e.g. because its master or its application on YARN is gone."""
        try:
            return bool(self._context.isStopped())
        except Exception:  # so is Java
            return True

    def _collect_garbage(self) -> None:
        """Return memory to the system if no merge follows within seconds."""
        with self._changed:
            idle = self._connections == 0 and time.monotonic() - self._idle_since > _SECONDS_BEFORE_GC
            if not idle or self._has_collected:
                return
            self._has_collected = True
        self._spark.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]

    def _accept(self, connection: socket.socket) -> None:
        from pyspark import InheritableThread

        with self._changed:
            self._connections += 1
        connection.settimeout(_SOCKET_TIMEOUT_SECONDS)
        InheritableThread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection:
                if peer_uid(connection) == os.getuid():
                    message = receive(connection)
                    if message is not None and "end" in message:
                        send(connection, {"ends": self._end_if_idle()})
                    elif message is not None:
                        self._merge(_Client(connection), message)
                else:
                    print("Another user's process was refused.", file=sys.stderr, flush=True)
        except (OSError, ValueError, KeyError) as error:
            print(f"A connection broke: {error!r}", file=sys.stderr, flush=True)
        finally:
            with self._changed:
                self._connections -= 1
                self._idle_since = time.monotonic()
                self._changed.notify_all()

    def _end_if_idle(self) -> bool:
        with self._changed:
            if self._connections == 1:  # the one that asks
                self._end_reason = self._end_reason or "another one needs its memory"
            return self._end_reason is not None

    def _merge(self, client: _Client, message: dict[str, Any]) -> None:
        from pyspark import InheritableThread

        if self._has_stopped():
            self._hide()
            return
        client.send({"accepted": os.getpid()})
        slot = self._wait_for_slot(client)
        if slot is None:
            return
        with self._changed:
            self._merges += 1
            self._has_collected = False
            group = f"merge-{self._merges}"
        merge = _Merge(self._spark, message["request"], client, group, f"merges-{slot}")
        thread = InheritableThread(target=merge.run, daemon=True)
        thread.start()
        try:
            self._wait(merge, thread)
        finally:
            with self._changed:
                if merge.shows_a_sound_spark:
                    self._succeeded = time.monotonic()
                    self._kept_until = max(self._kept_until or 0.0, self._succeeded + float(message["keep_warm"]))
                if self._end_reason is None and _resident_bytes() > self._max_bytes:
                    self._end_reason = f"it takes more memory than {self._max_bytes >> 20} MB"
        if not thread.is_alive():
            self._free_slots.put(slot)
        if merge.outcome is not None:
            client.send({"outcome": merge.outcome.to_dict()})

    def _wait_for_slot(self, client: _Client) -> int | None:
        """A slot to merge in; None if the task left before one was free."""
        has_logged = False
        while not client.has_left():
            with suppress(queue.Empty):
                return self._free_slots.get(timeout=_POLL_SECONDS if has_logged else 0)
            if not has_logged:
                client.log("Merge: Waiting, because this Spark already runs its maximum number of merges")
            has_logged = True
        return None

    def _wait(self, merge: _Merge, thread: threading.Thread) -> None:
        """Wait for a merge's end, and cancel it if its task has left."""
        while thread.is_alive() and not merge.client.has_left():
            thread.join(_POLL_SECONDS)
        if thread.is_alive():
            print(f"Cancelling {merge.group}, because its task has left.", file=sys.stderr, flush=True)
        deadline = time.monotonic() + _SECONDS_TO_CANCEL
        while thread.is_alive() and time.monotonic() < deadline:
            merge.cancel()
            thread.join(_POLL_SECONDS)
        print(f"{merge.group} has {'not ' if thread.is_alive() else ''}ended.", file=sys.stderr, flush=True)
        if thread.is_alive():
            with self._changed:
                self._end_reason = self._end_reason or "a merge could not be cancelled"


def _resident_bytes() -> int:
    """Memory of this process and of Java, which started it; 0 if the system doesn't report it."""
    pages = 0
    with suppress(OSError, ValueError):
        for pid in (os.getpid(), os.getppid()):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    log_progress(_ClientLogHandler())
    sys.exit(main())
