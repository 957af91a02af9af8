"""Merges and sensors on tables in Azure's and Google's storage, by connections of Airflow's own kinds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from deltalake import DeltaTable

from airflow_delta_merge.connections.stores import StoreConnections
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
from tests.airflow.canary import Watch
from tests.airflow.conftest import SPARK
from tests.object_storage import azurite, fake_gcs
from tests.object_storage.conftest import RUN_ON
from tests.object_storage.orders import config_at
from tests.session import COPIED_WHATEVER_THE_SIZE

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Store:
    """A store that runs, with an empty bucket.

    :param connection: of the type that Airflow's own provider has for it.
    :param of_nobody: one that the store doesn't let in.
    :param parameter: the parameter that names the connection.
    :param path: where a table goes.
    :param secret: a text of the connection that must be found nowhere else.
    :param conf: how Spark finds a server that isn't the cloud's own.
    :param storage_options: how ``deltalake`` finds it.
    """

    connection: dict[str, object] = field(repr=False)
    of_nobody: dict[str, object] = field(repr=False)
    parameter: str
    path: str
    secret: str = field(repr=False)
    conf: dict[str, str]
    storage_options: dict[str, str]

    def sensor(self, **arguments: object) -> DeltaTableSensor:
        return DeltaTableSensor(
            task_id="wait",
            path=self.path,
            storage_options=self.storage_options,
            **{self.parameter: "my_lake", **arguments},  # type: ignore[arg-type]
        )


@pytest.fixture
def azure(tmp_path: Path, record_property: Callable[..., None]) -> Iterator[Store]:
    record_property(RUN_ON, f"Azurite {azurite.VERSION}")
    with azurite.azurite(tmp_path, "lake") as port:
        yield Store(
            connection={"conn_type": "wasb", "login": azurite.ACCOUNT, "password": azurite.KEY},
            of_nobody={"conn_type": "wasb", "login": azurite.ACCOUNT, "password": azurite.OTHER_KEY},
            parameter="azure_conn_id",
            path=f"abfs://lake@{azurite.ACCOUNT}.dfs.core.windows.net/orders",
            secret=azurite.KEY,
            conf=azurite.spark_properties(port),
            storage_options=azurite.storage_options(port),
        )


@pytest.fixture
def azure_by_signature(azure: Store) -> Store:
    token = azurite.sas_token()
    connection = {"conn_type": "wasb", "login": azurite.ACCOUNT, "extra": {"sas_token": token}}
    return replace(azure, connection=connection, secret=token.rpartition("sig=")[2])


@pytest.fixture
def google(tmp_path: Path, record_property: Callable[..., None]) -> Iterator[Store]:
    record_property(RUN_ON, f"fake-gcs-server {fake_gcs.VERSION}")
    with fake_gcs.fake_gcs(tmp_path, "lake") as (port, key):
        yield Store(
            connection={"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": json.dumps(key)}},
            of_nobody={"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": fake_gcs.other_key(key)}},
            parameter="gcp_conn_id",
            path="gs://lake/orders",
            secret=key["private_key"].splitlines()[1],
            conf=fake_gcs.spark_properties(port),
            storage_options=fake_gcs.storage_options(port),
        )


@pytest.fixture(params=["azure", "azure_by_signature", "google"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    store: Store = request.getfixturevalue(request.param)
    spark = {"conn_type": "delta_merge", "host": "local[2]", "extra": {store.parameter: "my_lake"}}
    monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps(store.connection))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    return store


def test_a_merge_its_retry_and_sensors(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    config = config_at(store.path, "SELECT id, 'x' AS name FROM range(3)")
    who = MergeIdentity(application_id="me", generation=1)
    watch = Watch(Path(tempfile.gettempdir()), store.secret)
    try:
        first, second = (DeltaMergeHook(conf={**SPARK, **store.conf}).merge(config, identity=who) for _ in range(2))
    finally:
        watch.stop()
    said = "".join(capfd.readouterr())
    assert (first.num_inserted_rows, first.version, first.already_committed) == (3, 1, False)
    assert (second.num_inserted_rows, second.version, second.already_committed) == (3, 1, True)
    # The key was on its way by one private file, and is nowhere else.
    assert watch.with_canary == {("spark.properties", 0o100600)}
    assert watch.with_canary_on_command_line == set()
    assert store.secret not in said + str(first.to_dict())

    found = store.sensor(version=1).poke({})  # type: ignore[typeddict-item]
    assert (found.is_done, found.xcom_value) == (True, 1)
    with pytest.raises(TaskDeferred) as deferred:
        store.sensor(version=2, deferrable=True).execute({})  # type: ignore[typeddict-item]
    _, arguments = deferred.value.trigger.serialize()
    assert arguments["condition"][store.parameter] == "my_lake"
    assert store.secret not in str(arguments)


def test_touched_files_are_fetched_copied_and_put_back(store: Store) -> None:
    config = config_at(store.path, "SELECT id, 'old' AS name FROM range(100)")
    hook = DeltaMergeHook(conf={**SPARK, **store.conf, **COPIED_WHATEVER_THE_SIZE})
    hook.merge(config)
    changed = hook.merge(replace(config, source="SELECT 7L AS id, 'new' AS name"))
    assert "which are copied without these rows" in changed.executor_reason
    credentials = StoreConnections(**{store.parameter: "my_lake"}).deltalake_options()
    table = DeltaTable(store.path, storage_options={**credentials, **store.storage_options})
    rows = sorted((row["id"], row["name"]) for row in table.to_pyarrow_table().to_pylist())
    assert rows == [(number, "new" if number == 7 else "old") for number in range(100)]


def test_wrong_credentials_fail_with_a_sentence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps(store.of_nobody))
    with pytest.raises(OSError, match=r"403 Forbidden|401 Unauthorized"):
        store.sensor(version=1).poke({})  # type: ignore[typeddict-item]
