"""Ends the job's process when the process that started it ends for any reason."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_POLL_SECONDS = 1.0
_MAX_REMOVALS = 50


def end_with(pid: int, staging_folder: str | None = None) -> None:
    """End this whole Spark application (our process group: the JVM and this process) once process ``pid`` is gone.

    Normally the process that started us kills us and removes our staged files. This covers the case that it was itself
    killed.
    """

    def watch() -> None:
        while is_alive(pid):
            time.sleep(_POLL_SECONDS)
        with suppress(OSError):  # that process may have held the other end of the pipe
            print(f"Process {pid}, which started this merge, is gone. Ending.", file=sys.stderr, flush=True)
        _end_group(staging_folder)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def _end_group(staging_folder: str | None) -> None:
    """Kill our process group and then remove the folder, in a child process outside the group.

    If the folder were removed first, the JVM could still write into it.
    """
    group = os.getpgid(0)
    try:
        is_parent = os.fork() > 0
    except OSError:  # no memory for another process: the folder stays
        os.killpg(group, signal.SIGKILL)
        return
    if is_parent:
        return
    try:
        os.setsid()
        os.killpg(group, signal.SIGKILL)
        for _ in range(_MAX_REMOVALS):
            if not staging_folder or not Path(staging_folder).exists():
                break
            shutil.rmtree(staging_folder, ignore_errors=True)
            time.sleep(0.1)  # a killed process may not have ended yet
    finally:
        os._exit(0)


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that has ended may stay as a zombie where nobody reaps it, e.g. in a container."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # this system doesn't show it
        return True
    return status.rpartition(")")[2].split()[0] not in "ZX"
