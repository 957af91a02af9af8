"""Makes the archive of Java classes once, in the background, after an installation's first merge without it.

It never fails a merge: a process of its own makes it with low priority, which is nobody's child and ends by itself. It
tries once a day at most, whether it succeeds or not.
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
from airflow_delta_merge.runtime.java import check_java

_SECONDS_BETWEEN_TRIES = 24 * 3600.0
#: Longer than it takes to make one: what is left of a try that was killed is older.
_SECONDS_TO_MAKE = 3600.0

log = logging.getLogger(__name__)


def start_making(java_version: int) -> bool:
    """Start to make the archive if there is none, it can be stored, and nobody has tried lately.

    :param java_version: the major version of Java that it is for.
    :return: whether that was started.
    """
    path = archive_path(java_version)
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
        log.info("Making an archive of Java classes in the background, from which Spark starts sooner (%s)", path)
        return True
    return False


def main() -> int:
    """Make the archive with low priority, unless another process does. Returns 1 if it could not be made."""
    os.nice(19)
    try:
        path = archive_path(check_java()[1])
        if path.is_file() or _was_tried(path):
            return 0
        with _lock_of(path).open("w") as lock:  # by which everybody knows that it was tried
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            _remove_what_was_left(path)
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


def _remove_what_was_left(path: Path) -> None:
    for folder in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if folder.is_dir() and time.time() - folder.stat().st_mtime > _SECONDS_TO_MAKE:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if os.fork() > 0:  # nobody waits for this one, so it shall be nobody's child
        os._exit(0)
    sys.exit(main())
