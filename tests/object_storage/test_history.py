"""The history of a table in S3: access by a connection to the store, by the merges' own, or by a file. No Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta_merge.connections.s3 import S3Access
from tests.airflow.canary import CANARY
from tests.history.command import run


@pytest.fixture
def path(bucket: str) -> str:
    """A table in version 11."""
    path, options = f"s3a://{bucket}/orders", S3Access.of("my_lake").storage_options()
    for _ in range(12):
        write_deltalake(path, pa.table({"id": [1]}), mode="append", storage_options=options)
    return path


@pytest.mark.parametrize("conn_id", ["my_lake", "spark_default"], ids=["the store's", "the merges'"])
def test_access_by_a_connection(path: str, conn_id: str) -> None:
    done = run("history", path, "--conn-id", conn_id, "--limit", "10")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert [(each["version"], each["rows"]["inserted"]) for each in output["commits"]] == [
        (version, 1) for version in range(11, 1, -1)
    ]
    assert CANARY not in done.stdout + done.stderr
    older = json.loads(run("history", path, "--conn-id", conn_id, "--before", str(output["older"])).stdout)
    assert [each["version"] for each in older["commits"]] == [1, 0]


def test_access_by_a_file(path: str, tmp_path: Path) -> None:
    options = tmp_path / "options.json"
    options.write_text(json.dumps(S3Access.of("my_lake").storage_options()))
    output = json.loads(run("show", path, "11", "--storage-options", options).stdout)
    assert output["commit"]["files"]["added"] == 1
    options.write_text('{"AWS_REGION": 1}')
    done = run("show", path, "11", "--storage-options", options)
    assert (done.returncode, done.stderr.strip().endswith("must be a JSON object of strings.")) == (1, True)


def test_a_connection_that_leads_to_no_store(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WEB", '{"conn_type": "http", "host": "example.org"}')
    done = run("history", path, "--conn-id", "web")
    assert done.returncode == 1
    assert "has type 'http', which is not for a store" in done.stderr
    assert "Traceback" not in done.stderr
    done = run("history", path, "--conn-id", "nobody")
    assert (done.returncode, "There is no Airflow connection 'nobody'. Create it" in done.stderr) == (1, True)


def test_a_table_that_is_not_there_and_a_store_that_is_gone(path: str, tmp_path: Path) -> None:
    done = run("history", f"{path}-of-tomorrow", "--conn-id", "my_lake")
    assert (done.returncode, "There is no Delta table at" in done.stderr) == (1, True)
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}))
    done = run("history", path, "--conn-id", "my_lake", "--storage-options", options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "can't be read: Generic S3 error: " in done.stderr
    assert CANARY not in done.stderr
