"""Makes the archive of Java classes in the background, after a merge that ran without it.

A detached process with low priority does this, so it cannot fail a merge. If it fails, it tries again after a day at
the earliest.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.runtime.class_archive import archive_path, make_archive
from airflow_delta_merge.runtime.java import Java, check_java

_SECONDS_BETWEEN_TRIES = 24 * 3600.0
#: Longer than it takes to make an archive. Older temporary folders are leftovers of a killed try.
_SECONDS_TO_MAKE = 3600.0

log = logging.getLogger(__name__)


def start_making(java: Java) -> bool:
    """Start making the archive if it doesn't exist, can be stored, and wasn't tried in the last day.

    :param java: the Java to make it for.
    :return: whether this was started.
    """
    path = archive_path(java)
    with suppress(OSError):
        if path.is_file() or not os.access(path.parent, os.W_OK) or _was_tried(path):
            return False
        # -P: modules in the working folder must not shadow Python's own.
        subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        log.info("Making an archive of Java classes in the background, so that Spark starts faster (%s)", path)
        return True
    return False


def main() -> int:
    """Make the archive with low priority, unless another process does. Returns 1 if it could not be made."""
    os.nice(19)
    try:
        path = archive_path(check_java())
        if path.is_file() or _was_tried(path):
            return 0
        with _lock_of(path).open("w") as lock:  # its age shows other processes when this was tried
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            _remove_leftovers(path.parent)
            try:
                make_archive()
            except DeltaMergeError as error:
                print(error, file=lock, flush=True)
                return 1
            _lock_of(path).unlink(missing_ok=True)
    except (DeltaMergeError, OSError):
        return 1
    return 0


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _was_tried(path: Path) -> bool:
    try:
        return time.time() - _lock_of(path).stat().st_mtime < _SECONDS_BETWEEN_TRIES
    except FileNotFoundError:
        return False


def _remove_leftovers(folder: Path) -> None:
    for left in folder.glob(".classes-java*.jsa.*"):
        with suppress(OSError):
            if left.is_dir() and time.time() - left.stat().st_mtime > _SECONDS_TO_MAKE:
                shutil.rmtree(left, ignore_errors=True)


if __name__ == "__main__":
    if os.fork() > 0:  # detach, because no process waits for this one
        os._exit(0)
    sys.exit(main())
