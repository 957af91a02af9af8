"""The PySpark application of a kept Spark: takes merges over a Unix socket until it has been idle for long enough.

Each merge has its own session, its own job group and its own thread of the JVM. Its task holds the connection: when
that closes, the merge's jobs are cancelled and the others go on. Everything else ends by itself: the process that
started this one is its keeper, with which it ends.
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
from airflow_delta_merge.job.application import Merges, log_progress, merges_at_once, write_outcome
from airflow_delta_merge.job.process import end_with
from airflow_delta_merge.job.session import describe_application, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A greatest age, so that renewed files of the installation, expired logins and whatever grows unnoticed are left behind
# some time. Starting anew every six hours costs nothing that anybody notices; nor does each thousandth merge.
_GREATEST_AGE_SECONDS = 6 * 3600.0
_MOST_MERGES = 1000
# Beside its heap, which has a limit of its own, Java takes some 400 MB for classes, compiled code and threads, and this
# process 60 MB. Something is wrong with one that takes a gigabyte.
_MOST_BYTES_BESIDE_HEAP = 1 << 30

_POLL_SECONDS = 0.2
_SECONDS_FOR_THE_FIRST = 60.0
_SECONDS_BEFORE_COLLECTING = 5.0
_SECONDS_TO_TALK = 60.0
_SECONDS_TO_CANCEL = 60.0
_SECONDS_TO_STOP = 30.0

log = logging.getLogger("airflow_delta_merge.job")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the end. Returns 0, or 1 if Spark did not start, with an outcome that says why."""
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
    parser.add_argument("--folder", required=True, type=Path, help="private folder, where the socket is made")
    parser.add_argument("--properties", required=True, help="the file of Spark properties there, which is removed")
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
        self._sending = threading.Lock()

    def tell(self, message: dict[str, Any]) -> None:
        with self._sending, suppress(OSError):  # who waits for the merge notices that the task is gone
            send(self.connection, message)

    def log(self, text: str) -> None:
        for line in text.splitlines():
            self.tell({"log": line})

    def has_left(self) -> bool:
        # A task says nothing after its request: what there is to read is the end.
        return bool(select.select([self.connection], [], [], 0)[0])


#: Whose merge a thread runs.
_CLIENT: contextvars.ContextVar[_Client | None] = contextvars.ContextVar("client", default=None)


class _LogOfEach(logging.Handler):
    """Sends each merge's log to its own task."""

    def emit(self, record: logging.LogRecord) -> None:
        client = _CLIENT.get()
        if client is None:
            print(self.format(record), file=sys.stderr, flush=True)
        else:
            client.log(self.format(record))


@dataclass
class _Merge:
    """One request, in a thread of its own.

    :param spark: the session from which it makes its own.
    :param request: what to do.
    :param client: who waits for it.
    :param group: the group of its Spark jobs.
    :param pool: the pool of Spark's fair scheduler that it runs in.
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
            if not isinstance(error, (DeltaMergeError, NotImplementedError)):
                self.client.log(traceback.format_exc())
            self.client.log(f"The merge failed: {self.outcome.errors[0].message}")

    def cancel(self) -> None:
        """Cancel its jobs. It may start another one before it notices, so this is called until it has ended."""
        with suppress(Exception):  # Spark is gone, and the merge with it
            self.spark.sparkContext.cancelJobGroup(self.group)


class Server:
    """Takes merges.

    :param spark: the session from which each merge makes its own.
    :param folder: the private folder of the socket.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._changed = threading.Condition()
        self._open = 0
        self._merges = 0
        self._started = time.monotonic()
        self._idle_since = self._started
        self._kept_until: float | None = None  # nobody knows before the first merge
        self._has_collected = False
        self._why: str | None = None
        self._places: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(merges_at_once(spark)):
            self._places.put(place)
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        self._most_bytes = int(runtime.maxMemory()) + _MOST_BYTES_BESIDE_HEAP

    def serve(self) -> str:
        """Take merges until the end, and return why it came. Merges that run by then are completed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # It gets its name when it can be connected to.
            listener.bind(str(self._folder / f".{SOCKET}"))
            listener.listen(128)
            listener.settimeout(_POLL_SECONDS)
            os.rename(self._folder / f".{SOCKET}", self._folder / SOCKET)
            while (why := self._why_to_end()) is None:
                self._collect_garbage()
                with suppress(TimeoutError):
                    self._take(listener.accept()[0])
            (self._folder / KIND).unlink(missing_ok=True)
            (self._folder / SOCKET).unlink(missing_ok=True)
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0)
        return why

    def _why_to_end(self) -> str | None:
        now = time.monotonic()
        with self._changed:
            if self._why is not None:
                return self._why
            if self._open == 0 and now > (self._kept_until or self._started + _SECONDS_FOR_THE_FIRST):
                return f"no merge came for {now - self._idle_since:.0f} s"
            if self._merges >= _MOST_MERGES:
                return f"it has run {self._merges} merges"
        if now - self._started > _GREATEST_AGE_SECONDS:
            return f"it has run for {(now - self._started) / 3600:.1f} hours"
        if not (self._folder / SOCKET).exists():
            return "its socket was removed"
        return None

    def _collect_garbage(self) -> None:
        """Give memory back to the system once no merge follows at once."""
        with self._changed:
            idle = self._open == 0 and time.monotonic() - self._idle_since > _SECONDS_BEFORE_COLLECTING
            if not idle or self._has_collected:
                return
            self._has_collected = True
        self._spark.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]

    def _take(self, connection: socket.socket) -> None:
        from pyspark import InheritableThread

        with self._changed:
            self._open += 1
        connection.settimeout(_SECONDS_TO_TALK)
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
                self._open -= 1
                self._idle_since = time.monotonic()
                self._changed.notify_all()

    def _end_if_idle(self) -> bool:
        with self._changed:
            if self._open == 1:  # the connection that asks
                self._why = self._why or "another one needs its memory"
            return self._why is not None

    def _merge(self, client: _Client, message: dict[str, Any]) -> None:
        from pyspark import InheritableThread

        client.tell({"accepted": os.getpid()})
        place = self._place(client)
        if place is None:
            return
        with self._changed:
            self._merges += 1
            self._has_collected = False
            group = f"merge-{self._merges}"
        merge = _Merge(self._spark, message["request"], client, group, f"merges-{place}")
        thread = InheritableThread(target=merge.run, daemon=True)
        thread.start()
        try:
            self._wait(merge, thread)
        finally:
            with self._changed:
                self._kept_until = max(self._kept_until or 0.0, time.monotonic() + float(message["keep_warm"]))
                if self._why is None and _resident_bytes() > self._most_bytes:
                    self._why = f"it takes more memory than {self._most_bytes >> 20} MB"
        if not thread.is_alive():
            self._places.put(place)
        if merge.outcome is not None:
            client.tell({"outcome": merge.outcome.to_dict()})

    def _place(self, client: _Client) -> int | None:
        """A place among those that merge at once; None if the task left before there was one."""
        is_told = False
        while not client.has_left():
            with suppress(queue.Empty):
                return self._places.get(timeout=_POLL_SECONDS if is_told else 0)
            if not is_told:
                client.log("Merge: Waiting, because this Spark runs as many merges as it takes at once")
            is_told = True
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
                self._why = self._why or "a merge could not be cancelled"


def _resident_bytes() -> int:
    """What this process and Java, which started it, hold in memory; 0 where the system doesn't tell."""
    pages = 0
    with suppress(OSError, ValueError):
        for pid in (os.getpid(), os.getppid()):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    log_progress(_LogOfEach())
    sys.exit(main())
