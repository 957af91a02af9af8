"""A process that runs the Spark application of a deferred task: starts it, records how it ended, and ends it in time.

The task's own process exits while Spark runs, and the triggerer may be restarted. So this process sits between them and
spark-submit. They communicate only through one folder:

- ``keeper.lock`` is locked while this process is alive, and holds its process id.
- ``output`` has the output of spark-submit and the job.
- ``followed`` is rewritten by the process that follows the application. If it isn't for ``--silence-seconds``, the
  application is ended, since no one would see its result.
- ``exit.json`` appears when spark-submit has ended, with its exit code.
- ``end`` appears when the application shall end. SIGTERM means the same, but reaches no other container.

This process removes the folder when it exits. If no one reads the result of an ended application, it exits after a
while. The folder is private, so its files need not be.

It is started as a script without site-packages, so it imports only the standard library.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LOCK = "keeper.lock"
OUTPUT = "output"
FOLLOWED = "followed"
EXIT = "exit.json"
END = "end"
#: Placeholder for this process's id in a command's arguments.
KEEPER_PID = "@keeper-pid@"
#: How long an application runs without a follower: longer than another triggerer takes to take over (30 s and more).
SILENCE_SECONDS = 300.0
#: How long the result of an application without a follower is kept.
KEPT_SECONDS = 3600.0

_POLL_SECONDS = 0.2
_SECONDS_TO_END = 3.0  # Airflow's supervisor gives a killed task five
_NOT_STARTED = 127  # a shell's exit code for a command that can't be started


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one application until it has ended and its folder was removed."""
    parser = argparse.ArgumentParser(prog="application_keeper", description="Keep one Spark application.")
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--silence-seconds", type=float, default=SILENCE_SECONDS)
    parser.add_argument("--kept-seconds", type=float, default=KEPT_SECONDS)
    parser.add_argument("--detach", action="store_true", help="run in a process without a parent that waits for it")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    if options.detach and os.fork() > 0:
        os._exit(0)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(os.getpid(), file=lock, flush=True)
        silence = _Silence(folder / FOLLOWED)

        def is_asked() -> bool:
            return bool(asked) or (folder / END).exists() or not folder.exists()

        def shall_end() -> bool:
            return is_asked() or silence.is_over(options.silence_seconds)

        exit_code = _run(options.command, folder / OUTPUT, shall_end)
        if exit_code is not None:
            _write_exit(folder, exit_code)
            while not is_asked() and not silence.is_over(options.kept_seconds):
                time.sleep(_POLL_SECONDS)
        remove_folder(folder)


def _run(command: Sequence[str], output: Path, shall_end: Callable[[], bool]) -> int | None:
    """Run a command to its end, and return its exit code; None if it was ended early."""
    own = [str(os.getpid()) if argument == KEEPER_PID else argument for argument in command]
    with output.open("wb") as out:
        try:
            process = subprocess.Popen(own, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            out.write(f"{error}\n".encode())
            return _NOT_STARTED
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # a connection must end with the command that uses it
    while process.poll() is None:
        if shall_end():
            end_group(process)
            return None
        time.sleep(_POLL_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        # A killed JVM leaves its Python process behind for a while.
        os.killpg(process.pid, signal.SIGKILL)
    return process.returncode


class _Silence:
    """How long a file has not been rewritten, by a monotonic clock that stops while the machine sleeps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._modified: int | None = None
        self._since = time.monotonic()

    def is_over(self, seconds: float) -> bool:
        modified = None
        with suppress(OSError):
            modified = self._path.stat().st_mtime_ns
        if modified != self._modified:
            self._modified, self._since = modified, time.monotonic()
        return time.monotonic() - self._since > seconds


def end_group(leader: subprocess.Popen[Any]) -> None:
    """Terminate every process of a group, and kill them after a few seconds.

    This also runs inside Airflow's signal handler, while the interrupted code may hold the Popen's lock, so it only
    polls.
    """
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal a group of zombies
        os.killpg(leader.pid, signal.SIGTERM)
        deadline = time.monotonic() + _SECONDS_TO_END
        while time.monotonic() < deadline:
            leader.poll()
            os.killpg(leader.pid, 0)
            time.sleep(0.05)
        os.killpg(leader.pid, signal.SIGKILL)


def _write_exit(folder: Path, exit_code: int) -> None:
    temporary = folder / f".{EXIT}"
    with suppress(OSError):  # the folder was removed, or the disk is full: releasing the lock is enough
        temporary.write_text(json.dumps({"exit_code": exit_code}))
        temporary.replace(folder / EXIT)


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock on a file, if there is one. The lock ends with the process, however that ends."""
    with suppress(FileNotFoundError), path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def works_in(pid: int, folder: Path) -> bool:
    """Whether a process has a folder among its arguments. Containers that share a folder don't share process ids."""
    with suppress(OSError):
        if Path("/proc/self").exists():
            shown = Path(f"/proc/{pid}/cmdline").read_bytes()
        else:  # macOS
            shown = subprocess.run(
                ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
            ).stdout
        return os.fsencode(folder) in shown
    return False


def remove_folder(folder: Path) -> None:
    """Remove a folder, even if a killed process still writes into it for a moment."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
