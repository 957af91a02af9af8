"""The archive of Java classes: where it is, when it is used, and the error when it can't be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta_merge.runtime import class_archive, jars
from airflow_delta_merge.runtime.java import Java

JAVA = Java("/usr/lib/jvm/some/bin/java", 17)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def spark_at(path: Path) -> None:
    (path / "jars").mkdir(parents=True)
    (path / "jars" / "spark-core_2.13-4.2.0.jar").write_text("of Spark")


def test_each_spark_and_java_has_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {class_archive.archive_path(JAVA), class_archive.archive_path(Java("/opt/java/bin/java", 17))}
    spark_at(folder / "opt")
    monkeypatch.setenv("SPARK_HOME", str(folder / "opt"))
    found |= {class_archive.archive_path(JAVA), class_archive.archive_path(Java("/opt/java/bin/java", 21))}
    assert len(found) == 4
    assert {path.parent for path in found} == {folder}


def test_an_update_of_java_spark_or_delta_asks_for_another_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java refuses the one from before, whose path did not tell it: each merge started slowly from then on."""
    spark, java = folder / "spark", folder / "java"
    spark_at(spark)
    java.write_text("Java")
    monkeypatch.setenv("SPARK_HOME", str(spark))
    of_delta = folder / jars.jars_for("4.2")[0].file_name
    of_delta.write_text("Delta")
    found = [class_archive.archive_path(Java(str(java), 17))]
    for file in (java, spark / "jars" / "spark-core_2.13-4.2.0.jar", of_delta):
        assert found[-1] == class_archive.archive_path(Java(str(java), 17)), "it changes without reason"
        os.utime(file, (1_000_000_000, 1_000_000_000))
        found.append(class_archive.archive_path(Java(str(java), 17)))
    (folder / "jars-of-a-store.jar").touch()  # not on the archive's class path
    assert len(set(found)) == 4
    assert found[-1] == class_archive.archive_path(Java(str(java), 17))


def test_an_archive_is_used_if_it_is_there(folder: Path) -> None:
    assert class_archive.archive_options(JAVA) == []
    class_archive.archive_path(JAVA).touch()
    assert class_archive.archive_options(JAVA)[0] == f"-XX:SharedArchiveFile={class_archive.archive_path(JAVA)}"
    assert class_archive.archive_options(Java(JAVA.path, 21)) == []


def test_a_spark_without_delta_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's spark_binary names the Spark that merges use."""
    (folder / "old" / "jars").mkdir(parents=True)
    (folder / "old" / "jars" / "spark-core_2.12-3.1.2.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(folder / "old"))
    assert class_archive.archive_options(JAVA) == []


def test_archives_that_were_not_used_for_a_month_are_removed(folder: Path) -> None:
    used, unused = class_archive.archive_path(JAVA), folder / "classes-java17-of_a_spark_that_is_gone.jsa"
    for archive in (used, unused):
        archive.touch()
        os.utime(archive, (1_000_000_000, 1_000_000_000))
    assert class_archive.archive_options(JAVA)
    class_archive._remove_unused(folder)
    assert (used.exists(), unused.exists()) == (True, False)


def test_java_ignores_an_archive_that_does_not_fit(folder: Path) -> None:
    class_archive.archive_path(JAVA).write_text("no archive")
    done = subprocess.run(
        ["java", *class_archive.archive_options(JAVA), "-version"], capture_output=True, text=True, check=True
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
