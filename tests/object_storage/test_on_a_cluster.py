"""A merge into S3 on a standalone cluster: its executors get the driver's jars and keys, and leave no key behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from tests.airflow.canary import CANARY, Watch
from tests.cluster.standalone import standalone
from tests.cluster.test_standalone import CONF
from tests.object_storage.orders import config, rows


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
