"""What an AWS connection says of S3, to Spark and to deltalake; which connections are refused; where keys go."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all
from airflow_delta_merge.connections.s3 import S3Access
from airflow_delta_merge.connections.spark import ConnectionSettings, find_connection
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import DeltaJarsError, SparkConnectionError, StoreAccessError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.staging import staged
from airflow_delta_merge.runtime.log_store import LOG_STORE, log_store_jar
from airflow_delta_merge.runtime.spark_home import SparkHome
from airflow_delta_merge.runtime.store_drivers import S3A, StoreDriver
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.readable_ids import readable

CONFIG = MergeConfig(target="s3a://lake/t", source="s", on=["id"], clauses=[when_matched_update_all()])
KEYS = {"login": "canary-access", "password": "canary/secret+"}
TOKEN = {"aws_session_token": "canary-token"}
MINIO = {"endpoint_url": "http://minio:9000"}
Define = Callable[..., None]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Define the AWS connection ``my_lake``, and ``lake``, which names it."""

    def define(extra: dict[str, Any] | None = None, lake: dict[str, Any] | None = None, **parts: Any) -> None:
        connection = {"conn_type": "aws", "extra": extra or {}, **parts}
        monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps(connection))
        of_lake = {"conn_type": "delta_merge", "host": "local[1]", "extra": {"aws_conn_id": "my_lake"}, **(lake or {})}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(of_lake))

    return define


def s3a(properties: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in properties.items()}


PROVIDERS = "org.apache.hadoop.fs.s3a."
OF_KEYS = {"access.key": "canary-access", "secret.key": "canary/secret+"}


@pytest.mark.parametrize(
    ("parts", "properties"),
    [
        (KEYS, {**OF_KEYS, "aws.credentials.provider": f"{PROVIDERS}SimpleAWSCredentialsProvider"}),
        (
            {"extra": {"aws_access_key_id": "canary-access", "aws_secret_access_key": "canary/secret+"}},
            {**OF_KEYS, "aws.credentials.provider": f"{PROVIDERS}SimpleAWSCredentialsProvider"},
        ),
        (
            {**KEYS, "extra": TOKEN},
            {
                **OF_KEYS,
                "session.token": "canary-token",
                "aws.credentials.provider": f"{PROVIDERS}TemporaryAWSCredentialsProvider",
            },
        ),
        ({"extra": {"region_name": "eu-central-1"}}, {"endpoint.region": "eu-central-1"}),
        ({"extra": MINIO}, {"endpoint": "http://minio:9000", "path.style.access": "true"}),
        (
            {"extra": {"endpoint_url": "http://all:1", "service_config": {"s3": {"endpoint_url": "http://of-s3:2"}}}},
            {"endpoint": "http://of-s3:2", "path.style.access": "true"},
        ),
        ({"extra": {"role_arn": "", "verify": True, "session_kwargs": {}}}, {}),
        ({"extra": {"role_arn": None, "verify": "", "config_kwargs": None, "service_config": {"s3": None}}}, {}),
        ({}, {}),
    ],
    ids=[
        "keys as login and password",
        "keys as extra",
        "keys and a session token",
        "a region",
        "an endpoint",
        "an endpoint for S3 alone",
        "empty settings that need no Spark property",
        "settings of None",
        "an empty connection",
    ],
)
def test_the_properties_for_spark(define: Define, parts: dict[str, Any], properties: dict[str, str]) -> None:
    define(**parts)
    assert s3a(S3Access.of("my_lake").spark_properties()) == {"path.style.access": "false", **properties}


@pytest.mark.parametrize("endpoint", [None, "http://minio:9000"])
@pytest.mark.parametrize("style", [None, "auto", "path", "virtual"])
def test_the_path_style_is_that_of_botocore(define: Define, endpoint: str | None, style: str | None) -> None:
    """Which Airflow's own hooks use: so one connection means one thing."""
    import boto3
    from botocore.config import Config

    config = {"s3": {"addressing_style": style}} if style else {}
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-central-1"}
    client = boto3.client("s3", endpoint_url=endpoint, config=Config(**config), **keys)
    address = client.generate_presigned_url("get_object", {"Bucket": "lake", "Key": "k"})
    define(extra={"endpoint_url": endpoint, "config_kwargs": config})
    assert S3Access.of("my_lake").path_style == (not address.split("/")[2].startswith("lake."))


OF_ROLE = {
    "assumed.role.arn": "arn:aws:iam::1:role/r",
    "assumed.role.session.name": "Airflow_my_lake",
    "assumed.role.sts.endpoint": "sts.amazonaws.com",
    "assumed.role.sts.endpoint.region": "us-east-1",
    "aws.credentials.provider": f"{PROVIDERS}auth.AssumedRoleCredentialProvider",
}


@pytest.mark.parametrize(
    ("parts", "properties"),
    [
        (KEYS, {**OF_KEYS, "assumed.role.credentials.provider": f"{PROVIDERS}SimpleAWSCredentialsProvider"}),
        (
            {},
            {
                "assumed.role.credentials.provider": "software.amazon.awssdk.auth.credentials."
                f"EnvironmentVariableCredentialsProvider,{PROVIDERS}auth.IAMInstanceCredentialsProvider"
            },
        ),
        (
            {
                **KEYS,
                "extra": {
                    "region_name": "cn-north-1",
                    "assume_role_kwargs": {
                        "ExternalId": "e",
                        "DurationSeconds": 7200,
                        "RoleSessionName": "s",
                        "Policy": "{}",
                    },
                },
            },
            {
                **OF_KEYS,
                "endpoint.region": "cn-north-1",
                "assumed.role.credentials.provider": f"{PROVIDERS}SimpleAWSCredentialsProvider",
                "assumed.role.external.id": "e",
                "assumed.role.session.duration": "7200s",
                "assumed.role.session.name": "s",
                "assumed.role.policy": "{}",
                "assumed.role.sts.endpoint": "sts.cn-north-1.amazonaws.com.cn",
                "assumed.role.sts.endpoint.region": "cn-north-1",
            },
        ),
        (
            {**KEYS, "extra": {"service_config": {"sts": {"endpoint_url": "https://sts.internal"}}}},
            {
                **OF_KEYS,
                "assumed.role.credentials.provider": f"{PROVIDERS}SimpleAWSCredentialsProvider",
                "assumed.role.sts.endpoint": "sts.internal",
            },
        ),
    ],
    ids=["by keys", "by the machine", "with all that can be said of it", "at an address of one's own"],
)
def test_s3a_assumes_a_role_by_itself(define: Define, parts: dict[str, Any], properties: dict[str, str]) -> None:
    extra = {"role_arn": "arn:aws:iam::1:role/r", **parts.get("extra", {})}
    define(**{**parts, "extra": extra})
    found = s3a(S3Access.of("my_lake", assumes_role=True).spark_properties())
    assert found == {"path.style.access": "false", **OF_ROLE, **properties}


@pytest.mark.parametrize(
    "extra",
    [
        {"assume_role_method": "assume_role_with_saml"},
        {"profile_name": "p"},
        {"session_kwargs": {"profile_name": "p"}},
        {"assume_role_kwargs": {"Tags": []}},
        {"service_config": {"sts": {"endpoint_url": "http://sts.internal"}}},
        {"service_config": {"sts": {"endpoint_url": "https://sts.internal:8443"}}},
    ],
    ids=["by SAML", "by a profile", "by a session", "with tags", "by STS without TLS", "by STS at another port"],
)
def test_other_roles_sign_in_by_the_amazon_provider(
    define: Define, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)  # as where it is missing
    define(extra={"role_arn": "arn:aws:iam::1:role/r", **extra}, **KEYS)
    with pytest.raises(StoreAccessError, match="which needs Airflow's Amazon provider"):
        S3Access.of("my_lake", assumes_role=True)


def test_the_options_for_deltalake(define: Define) -> None:
    define({**TOKEN, **MINIO, "region_name": "eu-central-1"}, **KEYS)
    assert S3Access.of("my_lake").storage_options() == {
        "AWS_ACCESS_KEY_ID": "canary-access",
        "AWS_SECRET_ACCESS_KEY": "canary/secret+",
        "AWS_SESSION_TOKEN": "canary-token",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    define(extra={"region_name": "eu-central-1"})
    of_the_machine = {"AWS_REGION": "eu-central-1", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    assert S3Access.of("my_lake").storage_options() == of_the_machine


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"conn_type": "http"}, "has type 'http'. It must have type 'aws'"),
        (
            {"extra": {"role_arn": "arn:aws:iam::1:role/r", "assume_role_method": "assume_role_with_saml"}},
            "has a role_arn, .* Install apache-airflow-providers-amazon",
        ),
        ({"extra": {"session_kwargs": {"profile_name": "p"}}}, "has a session_kwargs, which needs Airflow's"),
        ({"extra": {"profile_name": "p"}}, "has a profile_name, which"),
        ({"extra": {"verify": False}}, "has verify set"),
        ({"extra": {"verify": "/ca.pem"}}, "has verify set"),
        ({"extra": {"config_kwargs": {"signature_version": "unsigned"}}}, "has a signature_version"),
        ({"extra": {"config_kwargs": {"s3": {"addressing_style": "other"}}}}, "is not auto, path or virtual"),
        ({"extra": {"config_kwargs": "{}"}}, "config_kwargs that is not a JSON object"),
        ({"extra": {"endpoint_url": "minio:9000"}}, "doesn't start with http://"),
        ({"extra": {"region_name": 7}}, "region_name that is not a string"),
        ({"login": "canary-access"}, "only some of its keys"),
        ({"password": "canary/secret+"}, "only some of its keys"),
        ({"extra": TOKEN}, "only some of its keys"),
    ],
    ids=[
        "another connection type",
        "a role by SAML",
        "a profile of a session",
        "a profile",
        "unverified TLS",
        "a certificate bundle",
        "unsigned requests",
        "an unknown addressing style",
        "extra as text",
        "an endpoint without a scheme",
        "a region that is a number",
        "a login alone",
        "a password alone",
        "a session token alone",
    ],
)
def test_what_is_refused(define: Define, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], sentence: str) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)  # as where it is missing
    define(**parts)
    with pytest.raises(StoreAccessError, match=f"connection 'my_lake'.* {sentence}") as caught:
        S3Access.of("my_lake")
    assert "canary" not in str(caught.value)
    with pytest.raises(DeltaMergeException, match=sentence):
        DeltaMergeHook(conn_id="lake").merge(CONFIG)


def test_a_connection_that_is_not_there(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    define()
    monkeypatch.delenv("AIRFLOW_CONN_MY_LAKE")
    with pytest.raises(DeltaMergeException, match=r"Airflow connection 'my_lake'.*correct aws_conn_id"):
        DeltaMergeHook(conn_id="lake").merge(CONFIG)


def test_its_keys_are_masked(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.fields.mask_secret", masked.append)
    define(TOKEN, **KEYS)
    assert "canary" not in repr(S3Access.of("my_lake"))
    assert masked == ["canary-access", "canary/secret+", "canary-token"]


@pytest.mark.parametrize("conn_type", ["delta_merge", "spark"])
def test_keys_travel_by_the_private_file_only(define: Define, monkeypatch: pytest.MonkeyPatch, conn_type: str) -> None:
    monkeypatch.setattr(StoreDriver, "fetched", lambda driver, spark: ["/of/hadoop-aws.jar", "/of/s3.jar"])
    define({**TOKEN, **MINIO}, {"conn_type": conn_type}, **KEYS)
    hook = DeltaMergeHook(conn_id="lake", jars="/of/task.jar", conf={"spark.hadoop.fs.s3a.endpoint": "http://task"})
    with staged() as staging:
        submit = hook.preparation.for_merge(staging, JobRequest(merges=CONFIG))
        command = " ".join(submit._build_spark_submit_command(str(staging.application)))
        properties = staging.properties.read_text().splitlines()
        files = [path for path in staging.folder.iterdir() if path.is_file()]
        with_keys = {path.name for path in files if b"canary" in path.read_bytes()}
        mode = staging.properties.stat().st_mode & 0o777
        environment = set(submit.environment().items()) - set(os.environ.items())
    assert f"--jars /of/hadoop-aws.jar,/of/s3.jar,{log_store_jar()},/of/task.jar" in command
    assert "canary" not in command + str(environment)
    assert {
        "spark.hadoop.fs.s3a.access.key=canary-access",
        "spark.hadoop.fs.s3a.secret.key=canary/secret+",
        "spark.hadoop.fs.s3a.session.token=canary-token",
        "spark.hadoop.fs.s3a.endpoint=http\\://task",
    } <= set(properties), "and what the task says goes before"
    assert (with_keys, mode) == ({"spark.properties"}, 0o600)


OF_SPARK = "spark.delta.logStore.s3a.impl="


@pytest.mark.parametrize(
    ("extra", "conf", "line"),
    [
        ({}, {}, f"{OF_SPARK}{LOG_STORE}"),
        ({"s3_single_writer": True}, {}, "spark.deltaMerge.s3SingleWriter.enabled=true"),
        (
            {},
            {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"},
            f"{OF_SPARK}io.delta.storage.S3Dyn",
        ),
        ({}, {"spark.delta.logStore.class": "my.LogStore"}, "spark.delta.logStore.class=my.LogStore"),
    ],
    ids=["by default", "one writer is promised", "one's own for S3", "one's own for all"],
)
def test_the_log_store_of_merges(define: Define, extra: dict[str, Any], conf: dict[str, str], line: str) -> None:
    define(lake={"extra": extra})
    with staged() as staging:
        DeltaMergeHook(conn_id="lake", conf=conf).preparation.for_merge(staging, JobRequest(merges=CONFIG))
        properties = staging.properties.read_text()
    assert line in properties
    assert (OF_SPARK in properties) == line.startswith(OF_SPARK), "Delta takes no two"


@pytest.mark.parametrize(
    ("extra", "jars_go_along"),
    [
        ({}, False),
        ({"aws_conn_id": "my_lake"}, True),
        ({"aws_conn_id": "my_lake", "s3a_jars": False}, False),
        ({"aws_conn_id": "my_lake", "s3a_jars": None}, True),
        ({"aws_conn_id": "", "s3a_jars": ""}, False),
        ({"s3a_jars": True}, True),
    ],
    ids=readable,
)
def test_who_gets_the_jars(define: Define, extra: dict[str, Any], jars_go_along: bool) -> None:
    define(lake={"extra": extra})
    assert ConnectionSettings.of(find_connection("lake")).store_drivers == ((S3A,) if jars_go_along else ())


@pytest.mark.parametrize("extra", [{"s3a_jars": "yes"}, {"s3_single_writer": 1}, {"aws_conn_id": 7}], ids=readable)
def test_what_is_not_understood(define: Define, extra: dict[str, Any]) -> None:
    (name,) = extra
    define(lake={"extra": extra})
    with pytest.raises(SparkConnectionError, match=f"has an? {name} that is no"):
        ConnectionSettings.of(find_connection("lake"))


def test_the_connection_test_looks_for_jars_without_asking_s3(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    define(MINIO, **KEYS)
    for there, said in ((True, "Delta's jars and the S3A driver's."), (False, "and a URL with the S3A")):
        monkeypatch.setattr(StoreDriver, "are_there", lambda driver, spark, there=there: there)
        good, sentence = DeltaMergeHook(conn_id="lake").test_connection()
        assert good
        assert said in sentence
        assert "Not tested: whether Spark starts, whether the stores accept their connections" in sentence

    def refuse(driver: StoreDriver, spark: SparkHome) -> bool:
        raise DeltaJarsError("not to be had")

    monkeypatch.setattr(StoreDriver, "are_there", refuse)
    assert DeltaMergeHook(conn_id="lake").test_connection()[0] is False
