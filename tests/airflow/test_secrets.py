"""Which values Airflow masks, in arguments and inside texts."""

from __future__ import annotations

import json

import pytest

from airflow_delta_merge.config import MergeConfig
from airflow_delta_merge.connections.secrets import _secrets
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from tests.airflow.test_operator import GOOD, operator


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net", True),
        ("fs.azure.sas.fixed", True),
        ("password", True),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("spark.disaster.recovery", False),
        ("header", False),
    ],
)
def test_which_values_are_masked(name: str, secret: bool) -> None:
    value = {"source": {"path": "/in", "options": {"some": "thing", name: "the value"}}}
    assert list(_secrets(value)) == (["the value"] if secret else [])


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("jdbc:postgresql://db:5432/shop?user=ada&password=pa55word&ssl=true", ["pa55word"]),
        ("jdbc:sqlserver://db;databaseName=shop;user=ada;password=pa55word;encrypt=true", ["pa55word"]),
        ("jdbc:mysql://ada:pa55word@db/shop", ["pa55word"]),
        ("password=pa55word", ["pa55word"]),
        ("jdbc:oracle:thin:ada/pa55word@//db:1521/shop", ["pa55word"]),
        ('jdbc:oracle:oci:ada/"pa 55@word"@shop', ['"pa 55@word"', "pa 55@word"]),
        ("jdbc:oracle:thin:@//db:1521/shop", []),
        ("jdbc:mysql://(host=db,user=ada,password=pa55word)/shop", ["pa55word"]),
        ("jdbc:mysql://address=(host=db)(user=ada)(password=pa55word)/shop", ["pa55word"]),
        ("jdbc:db2://db:50000/shop:password=pa55word;user=ada;", ["pa55word"]),
        ("jdbc:sqlserver://db;user=ada;password={pa;55}}word};encrypt=true", ["{pa;55}}word}", "pa;55}word"]),
        ("SELECT * FROM s WHERE (token=source.token)", []),
        (
            "wasbs://in@store.blob.core.windows.net/day.csv?sv=2022-11-02&sig=ab%2Bcd%3D&se=2026",
            ["ab%2Bcd%3D", "ab+cd="],
        ),
        ("https://in.example/day.csv?access_token=t0ken-1&x=1", ["t0ken-1"]),
        ("https://s3/day.csv?X-Amz-Credential=AKIA1&X-Amz-Signature=abcd1", ["AKIA1", "abcd1"]),
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a+b/c==;EndpointSuffix=x", ["a+b/c=="]),
        ("Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey=a+b/c==", ["a+b/c=="]),
        ("https://in.example/day.csv?client_secret=s3cret", ["s3cret"]),
        ("s3a://in/day=2026-01-31/token_type=x/part.parquet", []),
        ("abfss://in@store.dfs.core.windows.net/day.parquet", []),
        ("SELECT * FROM s WHERE token=source.token AND secret = 'x'", []),
        ("jdbc:postgresql://db/shop?sslpasswordcallback=org.Callback&passwordFile=/etc/x", ["org.Callback"]),
    ],
)
def test_secrets_inside_a_text_are_masked(text: str, secrets: list[str]) -> None:
    for argument in ({"options": {"url": text}}, {"path": text}, [text]):
        assert list(_secrets(argument)) == secrets


def test_a_password_inside_a_url_is_hidden_where_airflow_shows_it() -> None:
    """By Airflow's own masker, in the rendered fields that the UI shows and in what a log would say."""
    from airflow.providers.common.compat.sdk import redact
    from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields

    url = "jdbc:postgresql://db/shop?user=ada&password={{ conn_password }}"
    merge = operator(source={"path": "/in", "format": "other", "options": {"url": url}}, name="merge")
    merge.render_template_fields({"conn_password": "pa55word-of-this-test"})
    shown = json.dumps(_serialize_rendered_fields(merge))
    assert "user=ada&password=***" in shown
    assert "pa55word-of-this-test" not in shown
    assert "pa55word" not in str(redact(merge._merge_config().to_dict()))


def test_a_hook_without_an_operator_masks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    source = {"path": "/in/day.csv?sig=abcdef", "options": {"password": "pa55word"}}
    request = JobRequest(merges=MergeConfig(**{**GOOD, "source": source}))
    DeltaMergeHook(conf={"spark.some.token": "t0ken"}, jars="https://joe:s3cret@repo/x.jar")._mask_secrets(request)
    assert sorted(masked) == ["abcdef", "pa55word", "s3cret", "t0ken"]


def test_secrets_are_masked_as_soon_as_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    merge = operator(conf={"spark.hadoop.fs.s3a.secret.key": "{{ secret }}"}, name="merge")
    merge.render_template_fields({"secret": "the value"})
    assert masked == ["the value"]


def test_secrets_are_masked_in_every_argument_with_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    expected = {"unique": {"columns": ["id"], "on_failure": "set_aside"}, "columns": {"token": "string"}}
    merge = operator(
        jars="https://joe:of-jars@repo/x.jar",
        packages="https://repo/?token=of-packages",
        expect_source={**expected, "failed_rows_path": "abfss://a@b/failed?sig=of-expectations"},
        name="merge",
    )
    merge.render_template_fields({})
    assert masked == ["of-jars", "of-packages", "of-expectations"]
