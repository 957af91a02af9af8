"""What an Azure connection says of a storage account, to Spark and to deltalake; which connections are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all
from airflow_delta_merge.connections.azure import AzureAccess
from airflow_delta_merge.connections.spark import ConnectionSettings, find_connection
from airflow_delta_merge.exceptions import StoreAccessError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.runtime.store_drivers import ABFS
from airflow_delta_merge.task_exceptions import DeltaMergeException

CONFIG = MergeConfig(
    target="abfss://lake@account.dfs.core.windows.net/t", source="s", on=["id"], clauses=[when_matched_update_all()]
)
PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"
BY_KEY = {"account.auth.type": "SharedKey", "account.key": "canary"}
BY_SIGNATURE = {"account.auth.type": "SAS", "sas.fixed.token": "sv=1&sig=canary"}
BY_CLIENT = {
    "account.auth.type": "OAuth",
    "account.oauth.provider.type": f"{PROVIDERS}.ClientCredsTokenProvider",
    "account.oauth2.client.endpoint": "https://login.microsoftonline.com/of-us/oauth2/token",
    "account.oauth2.client.id": "an-application",
    "account.oauth2.client.secret": "canary",
}
Define = Callable[..., None]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Define the Azure connection ``my_lake``, and ``lake``, which names it."""

    def define(extra: dict[str, Any] | None = None, *, conn_type: str = "wasb", **parts: Any) -> None:
        connection = {"conn_type": conn_type, "extra": extra or {}, **parts}
        monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps(connection))
        of_lake = {"conn_type": "delta_merge", "host": "local[1]", "extra": {"azure_conn_id": "my_lake"}}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(of_lake))

    return define


def abfs(properties: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("spark.hadoop.fs.azure."): value for name, value in properties.items()}


SAS = "sv=1&sig=canary"
TEXT = "DefaultEndpointsProtocol=https;AccountName=account;AccountKey=ca==nary;EndpointSuffix=core.windows.net"
CASES = {
    "a key as password": ({"login": "account", "password": "canary"}, "account", BY_KEY),
    "a key as extra": ({"login": "account", "extra": {"account_key": "canary"}}, "account", BY_KEY),
    "a shared access key": ({"login": "account", "extra": {"shared_access_key": "canary"}}, "account", BY_KEY),
    "an address": ({"host": "https://account.blob.core.windows.net/", "password": "canary"}, "account", BY_KEY),
    "an account of type adls": ({"conn_type": "adls", "host": "account", "password": "canary"}, "account", BY_KEY),
    "a field of an old form": (
        {"login": "account", "extra": {"extra__wasb__shared_access_key": "canary"}},
        "account",
        BY_KEY,
    ),
    "a connection string": (
        {"extra": {"connection_string": TEXT}},
        "account",
        {"account.auth.type": "SharedKey", "account.key": "ca==nary"},
    ),
    "a connection string with a signature": (
        {
            "extra": {
                "connection_string": f"BlobEndpoint=https://account.blob.core.windows.net/;SharedAccessSignature={SAS}"
            }
        },
        "account",
        BY_SIGNATURE,
    ),
    "a signature": ({"login": "account", "extra": {"sas_token": f"?{SAS}"}}, "account", BY_SIGNATURE),
    "a signature with its address": (
        {"extra": {"sas_token": f"https://account.blob.core.windows.net/lake?{SAS}"}},
        "account",
        BY_SIGNATURE,
    ),
    "a service principal": (
        {
            "host": "account.blob.core.windows.net",
            "login": "an-application",
            "password": "canary",
            "extra": {"tenant_id": "of-us"},
        },
        "account",
        BY_CLIENT,
    ),
    "a service principal of type adls": (
        {
            "conn_type": "adls",
            "host": "account",
            "login": "an-application",
            "password": "canary",
            "extra": {"tenant_id": "of-us"},
        },
        "account",
        BY_CLIENT,
    ),
    "a managed identity": (
        {"login": "account", "extra": {"managed_identity_client_id": "of-the-machine"}},
        "account",
        {
            "account.auth.type": "OAuth",
            "account.oauth.provider.type": f"{PROVIDERS}.MsiTokenProvider",
            "account.oauth2.client.id": "of-the-machine",
        },
    ),
    "a workload identity": (
        {
            "login": "account",
            "extra": {"managed_identity_client_id": "of-the-pod", "workload_identity_tenant_id": "of-us"},
        },
        "account",
        {
            "account.auth.type": "OAuth",
            "account.oauth.provider.type": f"{PROVIDERS}.WorkloadIdentityTokenProvider",
            "account.oauth2.msi.tenant": "of-us",
            "account.oauth2.client.id": "of-the-pod",
        },
    ),
    "nothing": (
        {},
        None,
        {"account.auth.type": "OAuth", "account.oauth.provider.type": f"{PROVIDERS}.MsiTokenProvider"},
    ),
}


@pytest.mark.parametrize(("parts", "account", "properties"), CASES.values(), ids=CASES.keys())
def test_the_properties_for_spark(
    define: Define, parts: dict[str, Any], account: str | None, properties: dict[str, str]
) -> None:
    define(**parts)
    access = AzureAccess.of("my_lake")
    assert (access.account, abfs(access.spark_properties())) == (account, properties)
    assert "canary" not in repr(access)


def test_the_options_for_deltalake(define: Define) -> None:
    define({"tenant_id": "of-us"}, host="account.blob.core.windows.net", login="an-application", password="canary")
    assert AzureAccess.of("my_lake").storage_options() == {
        "azure_storage_account_name": "account",
        "azure_storage_tenant_id": "of-us",
        "azure_storage_client_id": "an-application",
        "azure_storage_client_secret": "canary",
    }


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"conn_type": "azure"}, "has type 'azure'. It must have type 'wasb' or 'adls'"),
        ({"login": "an-application", "extra": {"tenant_id": "of-us"}}, "but not both the application id"),
        ({"extra": {"connection_string": "AccountName=account"}}, "neither AccountKey nor SharedAccessSignature"),
        ({"extra": {"sas_token": 7}}, "has a sas_token that is not a string"),
        ({"extra": {"workload_identity_tenant_id": "of-us"}}, "but no managed_identity_client_id"),
        ({"host": "https://[account"}, r"has a host that is not a valid URL\."),
        ({"extra": {"sas_token": "https://[account/?sig=canary"}}, "has a sas_token that is not a valid URL"),
        (
            {"extra": {"connection_string": "BlobEndpoint=https://[account;AccountKey=canary"}},
            "has a BlobEndpoint that is not a valid URL",
        ),
    ],
    ids=[
        "another type",
        "no secret",
        "no secret in a connection string",
        "a token that is a number",
        "no client",
        "a broken host",
        "a broken URL of a token",
        "a broken URL in a connection string",
    ],
)
def test_what_is_refused(define: Define, parts: dict[str, Any], sentence: str) -> None:
    define(**parts)
    with pytest.raises(StoreAccessError, match=f"connection 'my_lake'.* {sentence}"):
        AzureAccess.of("my_lake")
    with pytest.raises(DeltaMergeException, match=sentence):
        DeltaMergeHook(conn_id="lake").merge(CONFIG)


def test_its_secrets_are_masked(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.fields.mask_secret", masked.append)
    for parts, _, _ in CASES.values():
        define(**parts)
        AzureAccess.of("my_lake")
    assert set(masked) == {"canary", "ca==nary", SAS}


def test_the_driver_goes_along(define: Define) -> None:
    define()
    assert ConnectionSettings.of(find_connection("lake")).store_drivers == (ABFS,)
