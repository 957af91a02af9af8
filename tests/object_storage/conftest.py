"""The tests' Airflow, as in ``tests/airflow``, one S3 server for all tests, and connections to it."""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.canary import CANARY
from tests.airflow.conftest import airflow_home
from tests.object_storage.s3_server import KEYS, S3Server, s3_server

__all__ = ["airflow_home"]

#: The property by which a test tells the server that it ran on.
RUN_ON = "run on"

TOKEN = {"aws_session_token": f"{CANARY}-token"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(autouse=True)
def connections(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections to S3 and, with it, to Spark, and a folder for temporary files of this test's own."""
    extra = {"endpoint_url": server.endpoint_url, "region_name": "eu-central-1", **TOKEN}
    monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps({"conn_type": "aws", "extra": extra, **KEYS}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark_connection())
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    # What earlier tests saw of a store must not count: a later one may listen on the same port.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def spark_connection(**extra: object) -> str:
    spark = {"conn_type": "delta_merge", "host": "local[2]", "extra": {"aws_conn_id": "my_lake", **extra}}
    return json.dumps(spark)


def promise_one_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the Spark connection promise that one driver writes to a table at a time."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark_connection(s3_single_writer=True))


def seen_stores(tmp_path: Path) -> Path:
    """The folder in which the log store keeps which stores refuse a second writer."""
    return tmp_path / "cache" / "airflow_delta_merge" / "conditional_writes"


@pytest.fixture
def bucket(server: S3Server, request: pytest.FixtureRequest, record_property: Callable[..., None]) -> str:
    """An empty bucket of this test's own."""
    record_property(RUN_ON, f"moto {version('moto')}")
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[-63:].strip("-")
    server.client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    return str(name)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which server the tests ran on, and how often."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: {"passed": 0, "failed": 0})
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, server in report.user_properties:
                if name == RUN_ON and report.when == "call":
                    counts[server][outcome] += 1
    for server, of_server in sorted(counts.items()):
        terminalreporter.line(f"on {server}: {of_server['passed']} tests passed, {of_server['failed']} failed")
