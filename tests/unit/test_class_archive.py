"""The archive of Java classes: where it is, when it is used, and that it is told when it can't be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta_merge import class_archive, jars


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


def test_it_is_told_why_spark_could_not_be_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for jar in map(Path, _real_jars(monkeypatch, folder)):
        (folder / jar.name).symlink_to(jar)
    broken = folder / "bin"
    broken.mkdir()
    (broken / "spark-submit").write_text("#!/bin/sh\necho 'no Spark here' >&2\nexit 3\n")
    (broken / "spark-submit").chmod(0o755)
    monkeypatch.setenv("PATH", str(broken), prepend=":")
    done = subprocess.run(
        [sys.executable, "-m", "airflow_delta_merge.class_archive"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip().splitlines()) == (
        1,
        ["Spark could not be run to load its classes. It said:", "no Spark here"],
    )
    assert not list(folder.glob("*.jsa"))


def _real_jars(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    with monkeypatch.context() as context:
        context.delenv(jars.FOLDER_VARIABLE)
        return jars.delta_jars()
