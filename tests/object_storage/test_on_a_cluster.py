"""Merges into S3 on clusters: what runs there gets jars and keys from the worker, and leaves no key behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from tests.airflow.canary import CANARY, Watch
from tests.cluster.standalone import standalone
from tests.cluster.test_standalone import CONF
from tests.cluster.test_yarn import CONF as YARN_CONF
from tests.cluster.yarn import yarn
from tests.object_storage.orders import config, rows
from tests.object_storage.s3_server import S3Server


@pytest.mark.slow
def test_executors_reach_s3(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster").mkdir()
    watch = Watch(Path(tempfile.gettempdir()))
    with standalone(tmp_path / "cluster", workers=1) as cluster:
        host, port = cluster.master.rsplit(":", 1)
        connection = {"conn_type": "spark", "host": host, "port": int(port), "extra": {"aws_conn_id": "my_lake"}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        DeltaMergeHook(conf=CONF).merge(config(bucket, "SELECT id, 'x' AS name FROM range(3)"))
        ran = cluster.ran_executors()
    watch.stop()
    assert rows(bucket) == [(0, "x"), (1, "x"), (2, "x")]
    assert {worker for worker, _ in ran} == {"worker0"}
    # By Spark's own channel and not by command lines, the executors' among them, nor files of the cluster.
    assert {name for name, _ in watch.with_canary} == {"spark.properties"}
    assert watch.with_canary_on_command_line == set()
    left = [path for path in (tmp_path / "cluster").rglob("*") if path.is_file()]
    assert any(path.name.startswith("hadoop-aws-") for path in left)
    assert [path for path in left if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.slow
def test_a_driver_on_yarn_leaves_its_result_in_s3(
    bucket: str, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yarn").mkdir()
    watch = Watch(Path(tempfile.gettempdir()))
    with yarn(tmp_path / "yarn") as cluster:
        extra = {
            "aws_conn_id": "my_lake",
            "deploy-mode": "cluster",
            "result_path": f"s3a://{bucket}/results",
            "yarn_resourcemanager_webapp_address": cluster.web_address,
        }
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf_folder))
        monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        conf = YARN_CONF | {"spark.yarn.stagingDir": (cluster.folder / "staging").as_uri()}
        merging = DeltaMergeHook(conf=conf, name="into S3")
        result = merging.merge(config(bucket, "SELECT id, 'x' AS name FROM range(3)"))
        (application,) = cluster.applications("into S3")
        logs = cluster.logs(application["id"])
    watch.stop()
    assert (result.num_inserted_rows, rows(bucket)) == (3, [(0, "x"), (1, "x"), (2, "x")])
    assert "PUT /" + f"{bucket}/results/" in server.log.read_text(), "the result went this way"
    assert [key for key in server.objects(bucket) if key.startswith("results/") and not key.endswith("/")] == []
    assert {name for name, _ in watch.with_canary} == {"spark.properties"}
    assert watch.with_canary_on_command_line == set()
    assert "Merge: Spark application" in logs
    assert CANARY not in logs
