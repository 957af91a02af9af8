"""What the operator tells Airflow's OpenLineage provider; that its events hold it is in test_scheduler.py."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG
from airflow.utils.state import TaskInstanceState
from openlineage.client.serde import Serde

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import MergeConfig, MergeStatement, when_matched_delete
from airflow_delta_merge.contract.lineage import TARGET, ColumnInput, ColumnLineage, ReadTable
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.lineage.naming import dataset_of_uri
from airflow_delta_merge.lineage.openlineage import convert_asset_to_openlineage, lineage_of_merges
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from tests.airflow.conftest import DAGS
from tests.readable_ids import readable

# What the job tells of a merge whose source is a join of staging.orders and files.
COLUMNS = ColumnLineage(
    columns={"id": "bigint", "total": "double", "password": "string"},
    tables=(
        ReadTable("spark_catalog.staging.orders", ("s3a://warehouse/staging.db/orders",), {"id": "bigint", "n": "int"}),
        ReadTable(None, ("file:/in/day=1/a.parquet", "file:/in/day=2/b.parquet"), {"id": "bigint", "price": "double"}),
    ),
    inputs={
        "id": (ColumnInput(0, "id", "IDENTITY"),),
        "total": (
            ColumnInput(TARGET, "total", "TRANSFORMATION"),
            ColumnInput(0, "n", "TRANSFORMATION"),
            ColumnInput(0, "n", "CONDITIONAL"),
            ColumnInput(1, "price", "AGGREGATION"),
        ),
        "password": (ColumnInput(0, "id", "TRANSFORMATION"),),
    },
    rows=(ColumnInput(TARGET, "id", "JOIN"), ColumnInput(0, "id", "JOIN")),
)

RESULT = MergeResult(
    table="spark_catalog.sales.orders",
    location="s3a://warehouse/sales.db/orders",
    version_read=3,
    version=4,
    executor="",
    executor_reason="",
    num_inserted_rows=2,
    num_updated_rows=3,
    num_deleted_rows=5,
    num_added_files=1,
    num_added_bytes=1000,
    metrics={"numTargetRowsCopied": 10},
)


def lineage(result: MergeResult | None = RESULT, columns: ColumnLineage | None = None, **parts: Any) -> Any:
    given = {"target": "sales.orders", "source": "SELECT 1 AS id", "on": ["id"], "clauses": [when_matched_delete()]}
    return lineage_of_merges(
        [MergeConfig(**{**given, **parts})],
        {} if result is None else {0: result},
        {} if columns is None else {0: columns},
    )


def names(datasets: list[Any]) -> list[tuple[str, str]]:
    return [(dataset.namespace, dataset.name) for dataset in datasets]


@pytest.mark.parametrize(
    ("target", "dataset"),
    [
        ("/lake/a b/day", ("file", "/lake/a b/day")),
        ("file:///lake/day", ("file", "/lake/day")),
        ("s3a://bucket/lake/day", ("s3://bucket", "lake/day")),
        ("gs://bucket/day/", ("gs://bucket", "day")),
        ("abfss://files@a.dfs.core.windows.net/day", ("abfss://files@a.dfs.core.windows.net", "day")),
        ("hdfs://name:8020/day", ("hdfs://name:8020", "day")),
        ("Sales.Orders", ("delta://table", "sales.orders")),
    ],
    ids=readable,
)
def test_a_table_is_named_by_the_naming_of_openlineage(target: str, dataset: tuple[str, str]) -> None:
    assert dataset_of_uri(delta_asset(target).uri) == dataset
    assert names([convert_asset_to_openlineage(delta_asset(target), None)]) == [dataset]


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ("/in/day.parquet", [("file", "/in/day.parquet")]),
        (["s3://in/a/day=1/*.csv", "s3://in/a/day=*/x.csv"], [("s3://in", "a/day=1"), ("s3://in", "a")]),
        (["/in/*.csv", "/in/[a-z].csv"], [("file", "/in")]),
        ("staging.orders", [("delta://table", "staging.orders")]),
        ("in/day.parquet", []),
        ("SELECT * FROM Staging.Orders AS o JOIN delta.`/lake/a b` USING (id)", [
            ("delta://table", "staging.orders"), ("file", "/lake/a b"),
        ]),
        ("WITH day AS (SELECT * FROM parquet.`s3a://in/day/*`) SELECT * EXCEPT (x) FROM day", [("s3://in", "day")]),
        ("SELECT id, 'new' AS v FROM range(3)", []),
        ("SELECT * FROM VALUES (1, 'a') AS rows(id, v)", []),
        ("SELECT what nobody parses", []),
    ], ids=readable
)  # fmt: skip
def test_inputs_are_what_the_source_reads(source: Any, inputs: list[tuple[str, str]]) -> None:
    assert sorted(names(lineage(source=source).inputs)) == sorted(inputs)


def test_inputs_of_a_statement() -> None:
    sql = "MERGE INTO delta.`/t` t USING (SELECT * FROM staging.orders) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    found = lineage_of_merges([MergeStatement(sql=sql)], {}, {})
    assert (names(found.inputs), names(found.outputs)) == ([("delta://table", "staging.orders")], [("file", "/t")])


def test_the_lineage_output_has_the_location_version_and_counts() -> None:
    (output,) = lineage().outputs
    assert (output.namespace, output.name) == ("s3://warehouse", "sales.db/orders")
    (symlink,) = output.facets["symlinks"].identifiers
    assert (symlink.namespace, symlink.name, symlink.type) == ("delta://table", "sales.orders", "TABLE")
    assert output.facets["version"].datasetVersion == "4"
    written = output.outputFacets["outputStatistics"]
    assert (written.rowCount, written.size, written.fileCount) == (15, 1000, 1)


def test_several_merges_tell_each_dataset_once() -> None:
    merges = [
        MergeConfig(target=target, source=source, on=["id"], clauses=[when_matched_delete()])  # type: ignore[arg-type]
        for target, source in (("/lake/t", "staging.a"), ("/lake/u", "staging.a"), ("/lake/t", "staging.b"))
    ]
    results = {0: replace(RESULT, version=4), 1: replace(RESULT, version=7), 2: replace(RESULT, version=5)}
    found = lineage_of_merges(merges, results, {})
    assert names(found.inputs) == [("delta://table", "staging.a"), ("delta://table", "staging.b")]
    assert names(found.outputs) == [("file", "/lake/t"), ("file", "/lake/u")]
    assert [output.facets["version"].datasetVersion for output in found.outputs] == ["5", "7"]
    written = [output.outputFacets["outputStatistics"] for output in found.outputs]
    assert [(each.rowCount, each.size, each.fileCount) for each in written] == [(30, 2000, 2), (15, 1000, 1)]
    assert found.job_facets["sql"].query == ";\n\n".join(merge.to_sql() for merge in merges)


def input_fields(fields: list[Any]) -> list[tuple[str, str, str, list[str]]]:
    return [
        (each.namespace, each.name, each.field, [f"{how.type} {how.subtype}" for how in each.transformations])
        for each in fields
    ]


def test_columns_come_from_columns_of_the_inputs() -> None:
    source = "SELECT * FROM Staging.Orders JOIN parquet.`/in/day=*/*` USING (id)"
    reported = lineage(columns=COLUMNS, source=source)
    orders, files = ("s3://warehouse", "staging.db/orders"), ("file", "/in")
    # Where the table lies is known now, and the files are those of the declared pattern.
    assert sorted(names(reported.inputs)) == sorted([orders, files])
    schemas = {
        (each.namespace, each.name): {field.name: field.type for field in each.facets["schema"].fields}
        for each in reported.inputs
        if each.facets
    }
    assert schemas == {orders: {"id": "bigint", "n": "int"}, files: {"id": "bigint", "price": "double"}}
    (symlinked,) = [each.facets["symlinks"] for each in reported.inputs if "symlinks" in each.facets]
    assert [(each.namespace, each.name) for each in symlinked.identifiers] == [("delta://table", "staging.orders")]

    (output,) = reported.outputs
    target = (output.namespace, output.name)
    assert [(field.name, field.type) for field in output.facets["schema"].fields] == list(COLUMNS.columns.items())
    facet = output.facets["columnLineage"]
    assert {name: input_fields(fields.inputFields) for name, fields in facet.fields.items()} == {
        "id": [(*orders, "id", ["DIRECT IDENTITY"])],
        "total": [
            (*target, "total", ["DIRECT TRANSFORMATION"]),
            (*orders, "n", ["DIRECT TRANSFORMATION", "INDIRECT CONDITIONAL"]),
            (*files, "price", ["DIRECT AGGREGATION"]),
        ],
        "password": [(*orders, "id", ["DIRECT TRANSFORMATION"])],
    }
    assert input_fields(facet.dataset) == [(*target, "id", ["INDIRECT JOIN"]), (*orders, "id", ["INDIRECT JOIN"])]
    # Airflow masks by names, also what is no value: the event must be one even so.
    redacted = json.loads(Serde.to_json(OpenLineageAdapter()._redacter.redact(output, max_depth=20)))
    assert redacted["facets"]["columnLineage"]["fields"].keys() == {"id", "total", "password"}
    assert redacted["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0]["field"] == "id"


def test_what_stands_behind_a_view_is_an_input_once_the_merge_is_resolved() -> None:
    assert names(lineage(source="some.view").inputs) == [("delta://table", "some.view")]
    found = names(lineage(source="some.view", columns=COLUMNS).inputs)
    files = [("file", "/in/day=1/a.parquet"), ("file", "/in/day=2/b.parquet")]
    assert found == [("delta://table", "some.view"), ("s3://warehouse", "staging.db/orders"), *files]


def test_before_the_merge_nothing_is_written() -> None:
    (output,) = lineage(None).outputs
    assert names([output]) == [("delta://table", "sales.orders")]
    assert output.outputFacets == {}
    assert set(output.facets) == {"storage"}


def test_a_merge_without_changes_makes_no_version() -> None:
    (output,) = lineage(replace(RESULT, version=None, num_inserted_rows=0, num_updated_rows=0, metrics={})).outputs
    assert "version" not in output.facets
    assert output.outputFacets["outputStatistics"].rowCount == 0


def test_a_relative_path_is_no_dataset() -> None:
    assert lineage(target="lake/day").outputs == []


def test_airflow_finds_what_the_operator_tells() -> None:
    with DAG("some", schedule=None):
        merge = DeltaMergeOperator(
            task_id="merge", sql="MERGE INTO delta.`/t` t USING s ON true WHEN MATCHED THEN DELETE"
        )
    run = SimpleNamespace(run_id="r")
    for state in (TaskInstanceState.RUNNING, TaskInstanceState.SUCCESS, TaskInstanceState.FAILED):
        found = ExtractorManager().extract_metadata(run, merge, state, SimpleNamespace())
        assert names(found.outputs) == [("file", "/t")]
        assert found.job_facets["sql"].query == merge.sql
    broken = DeltaMergeOperator(task_id="broken", sql="{{ params.sql }}")
    broken.sql = ""
    assert ExtractorManager().extract_metadata(run, broken, TaskInstanceState.FAILED, SimpleNamespace()).outputs == []


def test_airflow_finds_the_converter_of_assets() -> None:
    assert ProvidersManager().asset_to_openlineage_converters["delta"] is convert_asset_to_openlineage


def test_it_costs_a_dag_file_nothing() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(DAGS)!r})
import merges, airflow_delta_merge.provider
assert merges.merge.task_id == "merge"
dear = ("airflow.providers.openlineage.extractors", "openlineage")
assert not [name for name in sys.modules if name.startswith(dear)]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
