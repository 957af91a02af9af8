"""A deferred merge into S3 and a deferred sensor, by a real Airflow that has the connections in its database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tests.airflow.canary import CANARY, Watch
from tests.airflow.once import Once, running
from tests.object_storage.conftest import KEYS, TOKEN
from tests.object_storage.orders import table
from tests.object_storage.s3_server import S3Server

DAG_ID, RUN_ID = "once_s3_deferred", "r"


@pytest.mark.slow
def test_the_triggerer_reaches_s3_and_no_key_is_anywhere(server: S3Server, bucket: str, tmp_path: Path) -> None:
    folder = tmp_path / "once"
    folder.mkdir()
    # Else the database would have the connections' keys as they are.
    with running(folder, {"core": {"fernet_key": Fernet.generate_key().decode()}}) as airflow:
        connect(airflow, server)
        airflow.start("triggerer --skip-serve-logs")
        watch = Watch(airflow.temporary)
        airflow.trigger(DAG_ID, RUN_ID, bucket=bucket)
        airflow.run_ended(DAG_ID, RUN_ID)
        watch.stop()
    assert "spark.hadoop.fs.s3a.secret.key" in airflow.logged(DAG_ID, RUN_ID), "spark-submit printed its arguments"
    assert sorted(row["id"] for row in table(bucket).to_pyarrow_table().to_pylist()) == [0, 1, 2]
    logs = [path for path in folder.rglob(f"dag_id={DAG_ID}/**/*.log*") if "trigger" in path.name]
    assert {path.parent.name for path in logs} == {"task_id=merge", "task_id=table"}, "both waited in the triggerer"
    # Beside Spark's properties there is a list of what to mask, for the triggerer.
    assert {name for name, _ in watch.with_canary} == {"spark.properties", "secrets.json"}
    assert {mode & 0o077 for _, mode in watch.with_canary} == {0}
    assert watch.with_canary_on_command_line == set()
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert {"airflow.db", "log"} <= {path.name for path in kept}
    assert [path for path in kept if CANARY.encode() in path.read_bytes()] == []


def connect(airflow: Once, server: S3Server) -> None:
    # Not as login, which Airflow keeps as it is, also in its log of who did what.
    keys = {"aws_access_key_id": KEYS["login"], "aws_secret_access_key": KEYS["password"], **TOKEN}
    extra = {"endpoint_url": server.endpoint_url, "region_name": "eu-central-1", **keys}
    aws = {"connection_id": "my_lake", "conn_type": "aws", "extra": json.dumps(extra)}
    on_spark = json.dumps({"aws_conn_id": "my_lake"})
    spark = {"connection_id": "spark_default", "conn_type": "delta_merge", "host": "local[2]", "extra": on_spark}
    for connection in (aws, spark):
        airflow.call("/api/v2/connections", connection)
