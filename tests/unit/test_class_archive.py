"""The archive of Java classes: where it is, when it is used, and the error when it can't be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta_merge.runtime import class_archive, jars


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_each_spark_and_java_has_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = class_archive.archive_path(17)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    there = class_archive.archive_path(17)
    assert len({here, there, class_archive.archive_path(21)}) == 3
    assert {here.parent, there.parent} == {folder}


def test_an_archive_is_used_if_it_is_there(folder: Path) -> None:
    assert class_archive.archive_options(17) == []
    class_archive.archive_path(17).touch()
    assert class_archive.archive_options(17)[0] == f"-XX:SharedArchiveFile={class_archive.archive_path(17)}"
    assert class_archive.archive_options(21) == []


def test_java_ignores_an_archive_that_does_not_fit(folder: Path) -> None:
    class_archive.archive_path(17).write_text("no archive")
    done = subprocess.run(
        ["java", *class_archive.archive_options(17), "-version"], capture_output=True, text=True, check=True
    )
    assert "version" in done.stderr
    assert "rchive" not in done.stdout + done.stderr


def test_the_error_has_the_end_of_sparks_output(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for jar in map(Path, _real_jars(monkeypatch, folder)):
        (folder / jar.name).symlink_to(jar)
    broken = folder / "bin"
    broken.mkdir()
    (broken / "spark-submit").write_text("#!/bin/sh\necho 'no Spark here' >&2\nexit 3\n")
    (broken / "spark-submit").chmod(0o755)
    monkeypatch.setenv("PATH", str(broken), prepend=":")
    command = [sys.executable, "-m", "airflow_delta_merge.command_line", "class-archive"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-2:] == [
        "airflow-delta-merge: Spark could not be run to load its classes. Its output ends with:",
        "no Spark here",
    ]
    assert not list(folder.glob("*.jsa"))


def test_progress_is_logged_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes on only when its first line was logged."""
    progress: list[str] = []

    def tell(_: str, seconds: float, what: str) -> None:
        progress.append(what)
        (tmp_path / "progress").touch()

    monkeypatch.setattr(class_archive.log, "info", tell)
    monkeypatch.setattr(class_archive, "_SECONDS_TO_MAKE", 20)
    script = "echo 'Progress: One.'; while [ ! -e $0/progress ]; do sleep .1; done; echo 'Progress: Two.'; exit 3"
    command = ["sh", "-c", script, str(tmp_path)]
    assert class_archive._run_logging_progress(command, {"PATH": "/usr/bin:/bin"})[0] == 3
    assert progress == ["One.", "Two."]


def test_one_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_SECONDS_TO_MAKE", 0.2)
    exit_code, _ = class_archive._run_logging_progress(["sleep", "100"], {"PATH": "/usr/bin:/bin"})
    assert exit_code == -9


def _real_jars(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    with monkeypatch.context() as context:
        context.delenv(jars.FOLDER_VARIABLE)
        return jars.delta_jars()
