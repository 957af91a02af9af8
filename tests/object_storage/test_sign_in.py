"""AWS connections that ask for other credentials than those in them: the Amazon provider signs in, by a real STS."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.connections.s3 import S3Access
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.conftest import SPARK
from tests.object_storage.orders import config, rows
from tests.object_storage.s3_server import KEYS, S3Server
from tests.object_storage.sts import sts

pytestmark = pytest.mark.slow
ROLE = {"role_arn": "arn:aws:iam::123456789012:role/merges"}


@pytest.fixture
def define(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Define ``my_lake``, on a machine that has a profile and the token of a web identity, and nothing else."""
    (tmp_path / "profiles").write_text(
        "[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n"
        "[lake]\naws_access_key_id = of-the-profile\naws_secret_access_key = secret\nregion = eu-west-3\n"
    )
    (tmp_path / "token").write_text("a token")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "profiles"))

    def define(extra: dict[str, Any], **parts: str) -> None:
        services = {name: {"endpoint_url": server.endpoint_url} for name in ("s3", "sts")}
        settings = {"service_config": services, "region_name": "eu-central-1", **extra}
        monkeypatch.setenv("AIRFLOW_CONN_MY_LAKE", json.dumps({"conn_type": "aws", "extra": settings, **parts}))

    return define


BY_WEB_IDENTITY = {
    "assume_role_method": "assume_role_with_web_identity",
    "assume_role_with_web_identity_federation": "file",
}


@pytest.mark.parametrize(
    "extra",
    [ROLE, {**ROLE, "assume_role_kwargs": {"ExternalId": "of-the-lake"}}, {**ROLE, **BY_WEB_IDENTITY}],
    ids=["a role", "a role with an external id", "a web identity"],
)
def test_a_role_is_assumed(define: Any, tmp_path: Path, extra: dict[str, Any]) -> None:
    token = {"assume_role_with_web_identity_token_file": str(tmp_path / "token")}
    define({**extra, **token}, **({} if "assume_role_method" in extra else KEYS))
    access = S3Access.of("my_lake")
    assert str(access.access_key).startswith("ASIA"), "temporary keys, of the server's STS"
    assert access.session_token
    assert access.region == "eu-central-1"
    assert access.secret_key != KEYS["password"]
    assert "secret" not in repr(access)


def test_a_merge_and_a_sensor_by_a_role(bucket: str, define: Any) -> None:
    define(ROLE, **KEYS)  # by STS without TLS, which S3A doesn't know: so it gets keys
    result = DeltaMergeHook(conf=SPARK).merge(config(bucket, "SELECT 1 AS id, 'Ada' AS name"))
    assert (result.version, rows(bucket)) == (1, [(1, "Ada")])
    sensor = DeltaTableSensor(task_id="wait", path=f"s3a://{bucket}/orders", aws_conn_id="my_lake")
    assert sensor.poke({}).is_done  # type: ignore[typeddict-item]


def test_a_role_is_assumed_anew_while_a_merge_runs(
    server: S3Server, bucket: str, define: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)  # nobody signs in here
    with sts(tmp_path, server.endpoint_url, seconds=5) as short:
        services = {"s3": {"endpoint_url": server.endpoint_url}, "sts": {"endpoint_url": short.endpoint_url}}
        settings = {"ExternalId": "of-the-lake", "DurationSeconds": 900}
        define({**ROLE, "assume_role_kwargs": settings, "service_config": services}, **KEYS)
        conf = {
            **SPARK,
            "spark.driver.extraJavaOptions": f"{SPARK['spark.driver.extraJavaOptions']} {short.java_options}",
        }
        DeltaMergeHook(conf=conf).merge(config(bucket, "SELECT 1 AS id, 'Ada' AS name"))
    assert len(short.asked) > 2
    for request in short.asked:
        assert request == request | {
            "Action": "AssumeRole",
            "RoleArn": ROLE["role_arn"],
            "RoleSessionName": "Airflow_my_lake",
            "ExternalId": "of-the-lake",
            "DurationSeconds": "900",
        }
    assert server.objects(bucket).keys() >= {f"orders/_delta_log/{1:020}.json"}


def test_a_profile_is_read(define: Any) -> None:
    define({"profile_name": "lake", "region_name": None})
    access = S3Access.of("my_lake")
    assert (access.access_key, access.secret_key, access.region) == ("of-the-profile", "secret", "eu-west-3")


def test_a_refused_sign_in_gives_the_reason(define: Any, bucket: str) -> None:
    define({"profile_name": "of-nobody"})
    with pytest.raises(DeltaMergeException, match="could not sign in with its profile_name: ProfileNotFound: "):
        DeltaMergeHook(conf=SPARK).merge(config(bucket, "SELECT 1 AS id, 'Ada' AS name"))
