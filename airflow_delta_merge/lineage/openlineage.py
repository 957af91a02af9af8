"""Merges as OpenLineage tells them: what was read, what was written, how much of it.

Called by Airflow's OpenLineage provider only; the extra ``openlineage`` brings it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import MergeConfig, MergeStatement, MergeTarget
from airflow_delta_merge.config.relations import FORMATS_WITHOUT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.providers.common.compat.sdk import Asset
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset, OutputDataset

    from airflow_delta_merge.result import MergeResult

# Tables whose place is not known here; the names by which Spark knows them.
_NAMED_TABLES = "delta://table"
_PATTERN_SIGNS = re.compile(r"[*?\[{]")


def lineage_of_merge(config: MergeConfig | MergeStatement, result: MergeResult | None) -> OperatorLineage[Any, Any]:
    """Inputs and output of a merge, with the statement that it is.

    Inputs are the source's paths or table, or what OpenLineage's parser finds in its query.

    :param result: what it did; None before and after a failure.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import sql_job

    inputs = [InputDataset(namespace=namespace, name=name) for namespace, name in _inputs(config)]
    output = _output(config.target, result)
    return OperatorLineage(
        inputs=inputs,
        outputs=[] if output is None else [output],
        job_facets={"sql": sql_job.SQLJobFacet(query=config.to_sql(), dialect="spark")},
    )


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """A ``delta://`` asset as a dataset, for inlets and outlets of any task."""
    from openlineage.client.event_v2 import Dataset

    namespace, name = dataset_of_uri(asset.uri)
    return Dataset(namespace=namespace, name=name)


def dataset_of_uri(uri: str) -> tuple[str, str]:
    """Namespace and name of a ``delta://`` URI by OpenLineage's naming: its store, and where it lies there.

    ``delta://file/lake/day`` is ``/lake/day`` in ``file``, ``delta://s3/bucket/day`` is ``day`` in ``s3://bucket``. A
    table by name, ``delta://table/sales.day``, is ``sales.day`` in ``delta://table``.
    """
    parts = urlsplit(uri)
    store, path = parts.netloc, unquote(parts.path)
    if store == "file":
        return "file", path
    if store == "table":
        return _NAMED_TABLES, path.lstrip("/")
    authority, _, name = path.lstrip("/").partition("/")
    return f"{store}://{authority}", name or "/"


def _inputs(config: MergeConfig | MergeStatement) -> Iterator[tuple[str, str]]:
    if isinstance(config, MergeStatement):
        yield from _tables_of(config.sql)
        return
    source = config.source
    if source.query is not None:
        yield from _tables_of(source.query)
    if source.table is not None:
        yield dataset_of_uri(delta_asset(MergeTarget(table=source.table)).uri)
    found = (_dataset_of_path(_without_pattern(path)) for path in source.paths)
    yield from dict.fromkeys(dataset for dataset in found if dataset is not None)


def _tables_of(sql: str) -> Iterator[tuple[str, str]]:
    """What a query or a statement reads, as far as it stands there; what a view reads doesn't."""
    from openlineage_sql import parse

    parsed = parse([sql], dialect="databricks")
    for table in parsed.in_tables if parsed is not None else ():
        name = table.qualified_name
        first, _, path = name.partition(".")
        if first.lower() in FORMATS_WITHOUT_OPTIONS and "/" in path:
            dataset = _dataset_of_path(_without_pattern(path))
        elif re.search(rf"\b{re.escape(name)}\s*\(", sql):  # a function, as range(…)
            dataset = None
        else:
            dataset = _NAMED_TABLES, name.lower()
        if dataset is not None:
            yield dataset


def _output(target: MergeTarget, result: MergeResult | None) -> OutputDataset | None:
    """The target by its place, as Spark's own lineage names it, or by its name where the place isn't known."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        output_statistics_output_dataset,
        storage_dataset,
        symlinks_dataset,
    )

    named = None if target.table is None else dataset_of_uri(delta_asset(target).uri)
    path = target.path or (result.location if result else "")
    dataset = _dataset_of_path(path) if path else named
    if dataset is None:
        return None
    facets: dict[str, Any] = {
        "storage": storage_dataset.StorageDatasetFacet(storageLayer="delta", fileFormat="parquet")
    }
    if named is not None and named != dataset:
        names = [symlinks_dataset.Identifier(namespace=named[0], name=named[1], type="TABLE")]
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=names)
    written: dict[str, Any] = {}
    if result is not None:
        if result.version is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(result.version))
        written["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=result.num_inserted_rows + result.num_updated_rows + result.metrics.get("numTargetRowsCopied", 0),
            size=result.num_added_bytes,
            fileCount=result.num_added_files,
        )
    return OutputDataset(namespace=dataset[0], name=dataset[1], facets=facets, outputFacets=written)


def _dataset_of_path(path: str) -> tuple[str, str] | None:
    """None for a relative path, which is another one on each machine."""
    try:
        return dataset_of_uri(delta_asset(MergeTarget(path=path)).uri)
    except ValueError:
        return None


def _without_pattern(path: str) -> str:
    """The folder under which all lies that a pattern of files finds: ``/in/day=*/`` is ``/in``."""
    kept = path.split("/")
    for position, part in enumerate(kept):
        if _PATTERN_SIGNS.search(part):
            return "/".join(kept[:position]) or "/"
    return path
