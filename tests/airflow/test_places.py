"""Where Airflow's own objects say that files and tables are: paths in object stores, assets."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Asset, ObjectStoragePath

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import MergeSource, MergeTarget, when_matched_delete
from airflow_delta_merge.decorators.delta_merge import delta_merge_task
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator


def operator(target: Any = "/lake/t", source: Any = "/in/day.csv") -> DeltaMergeOperator:
    return DeltaMergeOperator(task_id="merge", target=target, source=source, on=["id"], clauses=[when_matched_delete()])


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (ObjectStoragePath("file:///in/a day.csv"), "/in/a day.csv"),
        (ObjectStoragePath("s3://lake_keys@bucket/in/day.csv"), "s3a://bucket/in/day.csv"),
        (ObjectStoragePath("s3://bucket/in/day.csv"), "s3a://bucket/in/day.csv"),
        (ObjectStoragePath("gs://bucket/in/day.csv"), "gs://bucket/in/day.csv"),
        (Asset("days", uri="s3://bucket/in/day.csv"), "s3a://bucket/in/day.csv"),
        (Asset(uri="file:///in/day.csv"), "/in/day.csv"),
    ],
    ids=[
        "a local path",
        "an S3 path with a connection",
        "an S3 path",
        "a Google path",
        "an S3 asset",
        "a local asset",
    ],
)
def test_files(place: Any, path: str) -> None:
    expected = MergeSource.of_path(path)
    assert expected.format == "csv"
    assert operator(source=place)._merge_config().source == expected
    assert operator(source=[place, "/in/other.csv"])._merge_config().source == MergeSource.of_path(
        [path, "/in/other.csv"]
    )
    by_dict = {"path": place, "options": {"header": True}}
    if isinstance(place, ObjectStoragePath):
        assert operator(source=by_dict)._merge_config().source.paths == (path,)
    merge = operator()
    merge.source = place  # as what another task has returned
    assert merge._merge_config().source == expected

    def day() -> Any:
        return place

    decorated = delta_merge_task(day, target="/lake/t", on=["id"], clauses=[when_matched_delete()])
    assert decorated().operator._source(place) == path


@pytest.mark.parametrize(
    "table",
    [
        "/lake/a day=1/t.csv",
        "s3a://bucket/t",
        "abfss://container@account.dfs.core.windows.net/lake/t",
        "gs://bucket/lake/t",
        "sales.orders",
        "cat.`odd; na``me`.t",
    ],
)
def test_tables(table: str) -> None:
    asset = delta_asset(table)
    merge = operator(target=asset, source=asset)._merge_config()
    assert delta_asset(merge.target).uri == asset.uri
    assert merge.target.to_sql() == MergeTarget.of(table).to_sql()
    # By its path a table is read as Delta, whatever its name looks like.
    expected = MergeSource.of_path(table, format="delta") if "/" in table else MergeSource(table=table)
    assert merge.source.to_sql() == expected.to_sql()
    several = DeltaMergeOperator(
        task_id="several",
        merges=[{"target": asset, "source": asset, "on": ["id"], "clauses": [when_matched_delete()]}],
    )
    assert several._merge_configs() == [merge]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"target": Asset(uri="s3://bucket/t")}, "is not the asset of a Delta table. Make it with delta_asset"),
        ({"source": Asset("orders")}, "The asset orders has no location"),
        ({"source": [delta_asset("/lake/t")]}, "Use it alone as source"),
        ({"target": delta_asset("hdfs://server/t")}, "not clear whether .* includes a server"),
    ],
    ids=[
        "a target that is no Delta table",
        "an asset without a place",
        "a Delta table in a list of files",
        "a Delta table on a server",
    ],
)
def test_what_names_no_place(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        operator(**arguments)
