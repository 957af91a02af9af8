"""Drivers that merge into one table in a store at a time, beside ``deltalake``: no row is lost, and none doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_delta_merge.connections.azure import AzureAccess
from airflow_delta_merge.connections.google import GoogleAccess
from airflow_delta_merge.connections.s3 import S3Access
from airflow_delta_merge.runtime.jars import delta_jars
from airflow_delta_merge.runtime.log_store import LOG_STORE_PROPERTIES, log_store_jar
from airflow_delta_merge.runtime.store_drivers import ABFS, GCS, S3A
from tests.faults.writers import SHARED
from tests.object_storage import azurite, fake_gcs
from tests.object_storage.conftest import RUN_ON
from tests.object_storage.s3_server import KEYS
from tests.object_storage.s3proxy import VERSION as S3PROXY_VERSION
from tests.object_storage.s3proxy import s3proxy
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
COLUMNS = pa.schema([("part", pa.string()), ("id", pa.string()), ("n", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class Store:
    """Where an empty table is.

    :param path: for Spark.
    :param properties: by which Spark reaches it, jars among them.
    :param uri: for ``deltalake``.
    :param options: by which ``deltalake`` reaches it.
    """

    path: str
    properties: Mapping[str, str]
    uri: str
    options: dict[str, str]

    def append(self, rows: list[dict[str, object]]) -> None:
        table = pa.Table.from_pylist(rows, COLUMNS)
        write_deltalake(self.uri, table, mode="append", storage_options=self.options)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=self.options)


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]) -> Iterator[Store]:
    record_property(RUN_ON, f"S3Proxy {S3PROXY_VERSION}")
    with s3proxy(tmp_path, "lake") as address:
        extra = {"endpoint_url": address, "region_name": "us-east-1"}
        monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps({"conn_type": "aws", "extra": extra, **KEYS}))
        access = S3Access.of("my_lake")
        jars = {"spark.jars": ",".join([*delta_jars(), *S3A.fetched(), log_store_jar()])}
        yield Store(
            path="s3a://lake/orders",
            properties={**jars, **access.spark_properties(), **LOG_STORE_PROPERTIES},
            uri="s3a://lake/orders",
            options=access.storage_options(),
        )


@pytest.fixture
def azure(tmp_path: Path, record_property: Callable[..., None]) -> Iterator[Store]:
    record_property(RUN_ON, f"Azurite {azurite.VERSION}")
    access = AzureAccess(account=azurite.ACCOUNT, account_key=azurite.KEY)
    jars = {"spark.jars": ",".join([*delta_jars(), *ABFS.fetched()])}
    with azurite.azurite(tmp_path, "lake") as port:
        yield Store(
            path=f"abfs://lake@{azurite.ACCOUNT}.dfs.core.windows.net/orders",
            properties={**jars, **access.spark_properties(), **azurite.spark_properties(port)},
            uri="az://lake/orders",
            options={**access.storage_options(), **azurite.storage_options(port)},
        )


@pytest.fixture
def google(tmp_path: Path, record_property: Callable[..., None]) -> Iterator[Store]:
    record_property(RUN_ON, f"fake-gcs-server {fake_gcs.VERSION}")
    jars = {"spark.jars": ",".join([*delta_jars(), *GCS.fetched()])}
    # Without the pause writers seldom meet, be the server's conditions heeded or not.
    with fake_gcs.fake_gcs(tmp_path, "lake", seconds_of_a_commit=1) as (port, key):
        access = GoogleAccess(key=key)
        yield Store(
            path="gs://lake/orders",
            properties={**jars, **access.spark_properties(), **fake_gcs.spark_properties(port)},
            uri="gs://lake/orders",
            options={**access.storage_options(), **fake_gcs.storage_options(port)},
        )


# While a commit is made in Azurite, `deltalake` 1.6.6 fails to read the table ("Invalid table version"): it comes last.
@pytest.mark.parametrize(
    ("kind", "drivers", "merges", "appends"),
    [("s3", 8, 10, 10), ("azure", 3, 5, 0), ("google", 3, 5, 3)],
    ids=["S3", "Azure", "Google"],
)
def test_none_is_lost(kind: str, drivers: int, merges: int, appends: int, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue(kind)
    store.append([])
    command = [sys.executable, "-m", "tests.faults.writers", store.path]
    properties = json.dumps({**store.properties, "spark.driver.memory": "700m"})
    environment = {**os.environ, "SPARK_PROPERTIES": properties}
    started = [
        subprocess.Popen(
            [*command, str(number), "1", str(merges)], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        )
        for number in range(drivers)
    ]
    try:
        for number in range(appends):
            merged = store.table.version()
            wait_until(lambda merged=merged: store.table.version() > merged, 400)
            store.append([{"part": "deltalake", "id": f"row {number}", "n": 1}])
        failures = [driver.communicate()[1] for driver in started]
    finally:
        for driver in started:
            driver.kill()
    assert [text[-500:] for driver, text in zip(started, failures, strict=True) if driver.returncode] == []
    found = sorted((row["id"], row["n"]) for row in store.table.to_pyarrow_table().to_pylist())
    expected = [(f"writer {number}", merges - merges // 2) for number in range(drivers)]
    expected += [(f"row {number}", 1) for number in range(appends)]
    assert found == sorted([*expected, (SHARED, drivers * (merges // 2))])
    assert store.table.version() == appends + drivers * merges
