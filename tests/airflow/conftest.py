"""An Airflow of the tests' own: its home, SQLite database and DAGs folder, set before anything imports airflow."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(tempfile.mkdtemp(prefix="tests_of_airflow_delta_merge_"))
DAGS = Path(__file__).parent / "dags"

SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "2",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    "AIRFLOW__API_AUTH__JWT_SECRET": "of-the-tests-only-but-long-enough-for-a-signature-0123456789abcdef",
    # Tests that miss the archive of classes shall not make it meanwhile.
    "AIRFLOW__DELTA_MERGE__CLASS_ARCHIVE": "False",
    # What the DAGs of the tests read while they are parsed.
    "DELTA_MERGE_TESTS": str(HOME),
}
# A merge of ten rows is mostly the JVM compiling itself: without its second compiler it takes half the CPU.
SPARK = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.databricks.delta.snapshotPartitions": "1",
}

os.environ.update(SETTINGS)
for variable in [name for name in os.environ if name.startswith("AIRFLOW_CONN_")]:
    del os.environ[variable]


@pytest.fixture(scope="session", autouse=True)
def airflow_home() -> Iterator[Path]:
    """The home, with a migrated database."""
    from airflow.configuration import AIRFLOW_HOME

    assert str(HOME) == AIRFLOW_HOME, f"airflow was imported before tests/airflow/conftest.py, with {AIRFLOW_HOME}"
    from airflow.utils.db import initdb

    initdb()
    yield HOME
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JAVA_HOME whose Java says that it is version 11."""
    java = tmp_path / "java-11" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-11"))
    return java


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH without java, with Python's own folder still on it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
