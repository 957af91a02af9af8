"""When the archive of Java classes is made in the background, and when not; real processes, without Spark."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from airflow_delta_merge.runtime import background_archive, class_archive, jars
from tests.waiting import wait_until

TRY = [sys.executable, "-P", "-m", "airflow_delta_merge.runtime.background_archive"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jars, with a spark-submit on the PATH that notes its priority and fails."""
    for jar in map(Path, jars.delta_jars()):
        (tmp_path / jar.name).symlink_to(jar)
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path))
    (tmp_path / "bin").mkdir()
    binary = tmp_path / "bin" / "spark-submit"
    binary.write_text(f"#!/bin/sh\nnice >> {tmp_path}/tries\nsleep 1\nexit 3\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return tmp_path


def archive() -> Path:
    return class_archive.archive_path(class_archive.check_java())


def makers(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        of_this = (process.info["environ"] or {}).get(jars.FOLDER_VARIABLE) == str(folder)
        if of_this and process.info["status"] != psutil.STATUS_ZOMBIE and TRY[-1] in (process.info["cmdline"] or []):
            found.append(process)
    return found


def wait_for(folder: Path) -> None:
    wait_until(lambda: (folder / "tries").exists() and not makers(folder), 60)


def test_a_failed_try_leaves_its_reason_and_is_not_repeated_at_once(folder: Path) -> None:
    java = class_archive.check_java()
    assert background_archive.start_making(java)
    wait_for(folder)
    assert (folder / "tries").read_text() == "19\n", "spark-submit runs once, with the lowest priority"
    lock = background_archive._lock_of(archive())
    assert "Spark could not be run to load its classes" in lock.read_text()
    assert not background_archive.start_making(java)
    # Nor is anything else left.
    assert {path.name for path in folder.iterdir() if path.suffix != ".jar"} == {"bin", "tries", lock.name}
    a_day_ago = time.time() - 25 * 3600
    os.utime(lock, (a_day_ago, a_day_ago))
    assert background_archive.start_making(java)
    while len((folder / "tries").read_text().split()) < 2:
        time.sleep(0.1)
    wait_for(folder)


def test_an_archive_that_is_there_is_not_made_again(folder: Path) -> None:
    archive().touch()
    assert not background_archive.start_making(class_archive.check_java())


def test_two_do_not_make_it_at_once(folder: Path) -> None:
    lock = background_archive._lock_of(archive())
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        a_day_ago = time.time() - 25 * 3600
        os.utime(lock, (a_day_ago, a_day_ago))
        subprocess.run(TRY, check=True)
        while makers(folder):
            time.sleep(0.1)
    assert not (folder / "tries").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_nothing_happens_where_it_cannot_be_stored(folder: Path) -> None:
    folder.chmod(0o500)
    assert not background_archive.start_making(class_archive.check_java())


def test_what_a_killed_try_left_is_removed(folder: Path) -> None:
    left, of_now = folder / ".classes-java17-of_before_an_update.jsa.left", folder / f".{archive().name}.of_now"
    for each in (left, of_now):
        each.mkdir()
    two_hours_ago = time.time() - 7200
    os.utime(left, (two_hours_ago, two_hours_ago))
    background_archive._remove_leftovers(folder)
    assert (left.exists(), of_now.exists()) == (False, True)
