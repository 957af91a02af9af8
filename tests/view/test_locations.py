"""Which tables a page may read: locations as Spark writes them, within a connection's ``allowed_locations``."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta_merge.view.locations import is_allowed, plain_location


@pytest.mark.parametrize(
    ("location", "plain"),
    [
        ("/lake/t", "/lake/t"),
        ("file:/lake/t", "/lake/t"),
        ("file:///lake/a b%20c/", "/lake/a b%20c"),  # Hadoop doesn't encode
        ("s3a://lake/t/", "s3a://lake/t"),
        ("abfss://box@account.dfs.core.windows.net/t", "abfss://box@account.dfs.core.windows.net/t"),
        ("gs://lake/t", "gs://lake/t"),
    ],
)
def test_locations_of_merges_are_read(location: str, plain: str) -> None:
    assert plain_location(location) == plain


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/",
        "t",
        "s3a://lake",
        "hdfs://name/t",
        "http://169.254.169.254/t",
        "file://host/t",
        "/lake/../etc",
        "memory:///t",
    ],
)
def test_other_servers_and_ways_out_are_not(location: str) -> None:
    assert plain_location(location) is None


@pytest.mark.parametrize(
    ("location", "allowed", "is_it"),
    [
        ("/lake/t", None, True),
        ("/lake/t", [], False),
        ("/lake/t", ["/lake"], True),
        ("/lake/t", ["/lake/t/"], True),
        ("/lake/t", ["file:///lake"], True),
        ("/lake2/t", ["/lake"], False),
        ("/lake", ["/lake/t"], False),
        ("s3a://lake/silver/t", ["s3a://lake/silver"], True),
        ("s3a://lake/silver/t", ["s3://lake/silver"], True),  # one store, whatever Hadoop calls it
        ("s3a://lake/silver2/t", ["s3a://lake/silver"], False),
        ("s3a://other/silver/t", ["s3a://lake/silver"], False),
        ("gs://lake/silver/t", ["s3a://lake/silver"], False),
        ("/lake/t", ["s3a://lake", "/lake"], True),
        ("s3a://lake/t", ["s3a://lake/x/.."], False),
    ],
)
def test_a_location_is_compared_folder_by_folder(location: str, allowed: list[str] | None, is_it: bool) -> None:
    assert is_allowed(location, allowed) is is_it


def test_a_link_out_of_an_allowed_folder_leads_out(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "lake" / "t").symlink_to(tmp_path / "secret")
    assert not is_allowed(str(tmp_path / "lake" / "t"), [str(tmp_path / "lake")])
