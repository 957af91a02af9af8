"""Looking for Java where spark-submit does, and what is said when it isn't there or isn't the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta_merge.exceptions import JavaError
from airflow_delta_merge.runtime.java import check_java, takes_option


def java_in(folder: Path, script: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("21.0.2+13-LTS", 21)])
def test_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int) -> None:
    java = java_in(tmp_path, says(version))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java() == (str(java), major)


def test_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = java_in(tmp_path, says("17.0.1"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))
    assert check_java() == (str(java), 17)


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2", "25"])
def test_wrong_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java_in(tmp_path, says(version))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    number = version.removeprefix("1.").split(".")[0]
    with pytest.raises(JavaError, match=f"needs Java 17 or 21, but .* is Java {number}. Install Java 17 or 21"):
        check_java()


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match=r"JAVA_HOME is not set.*Install Java"):
        check_java()


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"JAVA_HOME is .* no executable .*Install Java"):
        check_java()


@pytest.mark.parametrize("script", ["exit 3", "echo something else"])
def test_java_that_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    java_in(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"(does not start|does not report its version).*Install Java"):
        check_java()


@pytest.mark.parametrize(
    ("script", "takes"),
    [
        (says("21.0.1"), True),
        ("echo \"Unrecognized VM option 'Trim=1'\" >&2; exit 1", False),
        (f"echo 'OpenJDK VM warning: not supported on this platform'; {says('21.0.1')}", False),
    ],
    ids=["starts", "unknown", "without effect"],
)
def test_options_of_some_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, takes: bool) -> None:
    java_in(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert takes_option("-XX:Trim=1") is takes


def test_an_option_that_could_not_be_tried_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_in(tmp_path, "sleep 30")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("airflow_delta_merge.runtime.java._SECONDS_TO_ANSWER", 0.1)
    assert not takes_option("-XX:Trim=1")
    with pytest.raises(JavaError, match="does not start"):
        check_java()
