"""Sensors and watchers on tables in S3: access by an AWS connection, whose keys stay in it. No Spark anywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred
from deltalake import write_deltalake

from airflow_delta_merge.connections.s3 import S3Access
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
from airflow_delta_merge.triggers.delta_commit import DeltaCommitTrigger
from airflow_delta_merge.triggers.delta_table import DeltaTableTrigger
from tests.airflow.canary import CANARY


@pytest.fixture
def path(bucket: str) -> str:
    """A table in version 0."""
    path = f"s3a://{bucket}/orders"
    write(path)
    return path


def write(path: str) -> None:
    options = S3Access.of("my_lake").storage_options()
    write_deltalake(path, pa.table({"id": [1]}), mode="append", storage_options=options)


def sensor(path: str, **arguments: Any) -> DeltaTableSensor:
    return DeltaTableSensor(task_id="wait", path=path, aws_conn_id="my_lake", **arguments)


def test_a_table(path: str) -> None:
    found = sensor(path).poke({})  # type: ignore[typeddict-item]
    assert (found.is_done, found.xcom_value) == (True, 0)
    assert not sensor(path, version=1).poke({}).is_done  # type: ignore[typeddict-item]
    assert not sensor(f"{path}-of-tomorrow").poke({}).is_done  # type: ignore[typeddict-item]


def test_the_sensor_overrides_the_connection(path: str) -> None:
    nobody = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0"}
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
        sensor(path, storage_options=nobody).poke({})  # type: ignore[typeddict-item]


def test_a_deferred_trigger_holds_no_keys(path: str) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        sensor(path, version=1, deferrable=True, poke_interval=0.1).execute({})  # type: ignore[typeddict-item]
    _, arguments = deferred.value.trigger.serialize()
    assert arguments["condition"]["aws_conn_id"] == "my_lake"
    assert CANARY not in str(arguments)
    write(path)

    async def first_event() -> Any:
        return (await anext(DeltaTableTrigger(**arguments).run())).payload

    assert asyncio.run(first_event()) == {"found": 1}


def test_a_watcher(path: str) -> None:
    watcher = DeltaCommitTrigger(path=path, aws_conn_id="my_lake", poke_interval=0.1)
    _, arguments = watcher.serialize()
    assert CANARY not in str(arguments)

    async def first_event() -> Any:
        events = DeltaCommitTrigger(**arguments).run()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(1)  # it takes the table as it is at first
        assert not waiting.done()
        await asyncio.to_thread(write, path)
        return (await waiting).payload

    found = asyncio.run(asyncio.wait_for(first_event(), 60))
    assert (found["version"], found["previous_version"], found["operations"]) == (1, 0, ["WRITE"])


def test_an_aws_connection_that_cannot_be_followed_fails_at_once(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", '{"conn_type": "aws", "extra": {"verify": "/etc/ssl/lake.pem"}}')
    with pytest.raises(AirflowException, match="has verify set, which Spark's S3A driver doesn't support"):
        sensor(f"s3a://{bucket}/orders").poke({})  # type: ignore[typeddict-item]


def test_it_goes_with_a_path() -> None:
    with pytest.raises(ValueError, match="aws_conn_id needs path"):
        DeltaMergeSensor(task_id="wait", external_task_id="merge", aws_conn_id="my_lake")
