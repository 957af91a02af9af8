"""Delta tables as assets: each has one URI, whoever writes it how."""

from __future__ import annotations

import pytest
from airflow.sdk import Asset

from airflow_delta_merge.assets.delta import create_asset, delta_asset
from airflow_delta_merge.identifiers import parse_multipart
from airflow_delta_merge.lineage.naming import dataset_of_uri
from airflow_delta_merge.operators.arguments import plain_target
from tests.readable_ids import readable


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("/lake/day", "delta://file/lake/day"),
        ("/lake/day/", "delta://file/lake/day"),
        ("file:///lake/day", "delta://file/lake/day"),
        ("file:/lake/day", "delta://file/lake/day"),
        ("/lake/a b;ü#?/t", "delta://file/lake/a%20b%3B%C3%BC%23%3F/t"),
        ("s3a://bucket/lake/day", "delta://s3/bucket/lake/day"),
        ("s3://bucket/lake/day", "delta://s3/bucket/lake/day"),
        ("abfss://files@account.dfs.core.windows.net/day", "delta://abfss/files%40account.dfs.core.windows.net/day"),
        ("Sales.Day", "delta://table/sales.day"),
        ("sales.`a.b`", "delta://table/sales.%60a.b%60"),
        ("sales.`a``b`", "delta://table/sales.%60a%60%60b%60"),
        ("sales.`a b`", "delta://table/sales.a%20b"),
        ({"table": "main.sales.day"}, "delta://table/main.sales.day"),
    ],
    ids=readable,
)
def test_a_target_has_one_uri(target: str, uri: str) -> None:
    assert delta_asset(target).uri == uri


def test_a_uri_written_by_hand_is_the_same() -> None:
    assert Asset("delta:///lake//day/").uri == delta_asset("/lake/day").uri
    assert Asset("delta://table/Sales.Day").uri == create_asset(table="sales.day").uri


def test_a_secret_does_not_get_into_it() -> None:
    with pytest.warns(UserWarning, match="should not contain a password"):
        assert "pass" not in Asset("delta://user:pass@s3/bucket/day").uri


@pytest.mark.parametrize("name", ["sales.day", "sales.`a.b`", "`a``b`.`c d`", "a.b.`c/d`"])
def test_an_asset_says_which_table_it_is(name: str) -> None:
    """A dot in backticks became one between two parts, so another table was merged into."""
    target = plain_target(delta_asset(name))
    assert parse_multipart(target["table"]) == parse_multipart(name)
    assert dataset_of_uri(delta_asset(name).uri) == ("delta://table", ".".join(parse_multipart(name)))


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="a part is empty"):
        Asset("delta://table/sales..day")


@pytest.mark.parametrize("uri", ["delta://", "delta:///", "delta://table/"])
def test_a_uri_of_no_table_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="names a table"):
        Asset(uri)


def test_a_relative_path_has_no_asset() -> None:
    with pytest.raises(ValueError, match="make it absolute"):
        delta_asset("lake/day")
