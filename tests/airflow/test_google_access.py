"""What a Google connection says of Cloud Storage, to Spark and to deltalake; which connections are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all
from airflow_delta_merge.connections.google import GoogleAccess
from airflow_delta_merge.connections.spark import ConnectionSettings, find_connection
from airflow_delta_merge.exceptions import StoreAccessError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.runtime.store_drivers import GCS
from airflow_delta_merge.task_exceptions import DeltaMergeException

CONFIG = MergeConfig(target="gs://lake/t", source="s", on=["id"], clauses=[when_matched_update_all()])
KEY = {
    "type": "service_account",
    "client_email": "merges@us.iam.gserviceaccount.com",
    "private_key_id": "canary-id",
    "private_key": "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n",
    "token_uri": "https://oauth2.googleapis.com/token",
}
BY_KEY = {
    "auth.service.account.email": KEY["client_email"],
    "auth.service.account.private.key.id": KEY["private_key_id"],
    "auth.service.account.private.key": KEY["private_key"],
    "token.server.url": KEY["token_uri"],
}
Define = Callable[..., None]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Define the Google connection ``my_lake``, and ``lake``, which names it."""

    def define(extra: dict[str, Any] | None = None, conn_type: str = "google_cloud_platform") -> None:
        connection = {"conn_type": conn_type, "extra": extra or {}}
        monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps(connection))
        of_lake = {"conn_type": "delta_merge", "host": "local[1]", "extra": {"gcp_conn_id": "my_lake"}}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(of_lake))

    return define


CASES = {
    "a key as text": ({"keyfile_dict": json.dumps(KEY)}, BY_KEY),
    "a key as object": ({"keyfile_dict": KEY}, BY_KEY),
    "a key whose lines are written out": (
        {"keyfile_dict": {**KEY, "private_key": KEY["private_key"].replace("\n", "\\n")}},
        BY_KEY,
    ),
    "a key of an old form": ({"extra__google_cloud_platform__keyfile_dict": json.dumps(KEY)}, BY_KEY),
    "a key's path": ({"key_path": "/keys/lake.json"}, {"auth.service.account.json.keyfile": "/keys/lake.json"}),
    "a project": ({"project": "ours"}, {"project.id": "ours"}),
    "an account in whose name": ({"impersonation_chain": "a@b"}, {"auth.impersonation.service.account": "a@b"}),
    "nobody": ({"is_anonymous": True}, {"auth.service.account.enable": "false", "auth.null.enable": "true"}),
    "nothing": ({}, {}),
}


@pytest.mark.parametrize(("extra", "properties"), CASES.values(), ids=CASES.keys())
def test_the_properties_for_spark(define: Define, extra: dict[str, Any], properties: dict[str, str]) -> None:
    define(extra)
    access = GoogleAccess.of("my_lake")
    found = {name.removeprefix("spark.hadoop.fs.gs."): value for name, value in access.spark_properties().items()}
    assert found == {**found, **properties}
    assert found["impl"] == "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
    assert {name for name in found if name.startswith(("auth.", "token.", "project."))} == set(properties)
    assert "canary" not in repr(access)


def test_the_options_for_deltalake(define: Define) -> None:
    define({"keyfile_dict": KEY})
    (option,) = GoogleAccess.of("my_lake").storage_options().items()
    assert (option[0], json.loads(option[1])) == ("google_service_account_key", KEY)
    define({"key_path": "/keys/lake.json"})
    assert GoogleAccess.of("my_lake").storage_options() == {"google_service_account": "/keys/lake.json"}


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"key_secret_name": "s"}, "has a key_secret_name, which Google's driver for Hadoop doesn't support"),
        ({"credential_config_file": "/c.json"}, "has a credential_config_file, which"),
        ({"keyfile_dict": "{"}, "keyfile_dict that is not JSON"),
        ({"keyfile_dict": "[" * 5000}, "keyfile_dict that is not JSON"),
        ({"keyfile_dict": {"type": "authorized_user"}}, "keyfile_dict without client_email"),
        ({"keyfile_dict": KEY, "key_path": "/k.json"}, "both a keyfile_dict and a key_path"),
        ({"key_path": "/k.p12"}, r"key_path that is not a \.json file"),
        ({"impersonation_chain": ["a@b", "c@d"]}, "of several accounts"),
        ({"impersonation_chain": 7}, "has an impersonation_chain that is neither a string nor a list"),
    ],
    ids=[
        "a secret manager",
        "a workload identity pool",
        "a key that is no JSON",
        "a key that nests without end",
        "a person's key",
        "two keys",
        "a key of another format",
        "a chain of accounts",
        "a chain that is a number",
    ],
)
def test_what_is_refused(define: Define, extra: dict[str, Any], sentence: str) -> None:
    define(extra)
    with pytest.raises(StoreAccessError, match=f"connection 'my_lake' .*{sentence}") as caught:
        GoogleAccess.of("my_lake")
    assert "canary" not in str(caught.value)
    with pytest.raises(DeltaMergeException, match=sentence):
        DeltaMergeHook(conn_id="lake").merge(CONFIG)


def test_its_key_is_masked(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.fields.mask_secret", masked.append)
    define({"keyfile_dict": KEY})
    GoogleAccess.of("my_lake")
    assert masked == [KEY["private_key"], KEY["private_key_id"]]


def test_the_driver_goes_along(define: Define) -> None:
    define()
    assert ConnectionSettings.of(find_connection("lake")).store_drivers == (GCS,)
