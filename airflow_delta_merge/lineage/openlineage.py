"""The lineage of merges for OpenLineage: what was read, what was written, and how much of it.

Only Airflow's OpenLineage provider calls this. The extra ``openlineage`` installs it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import JdbcSource, MergeConfig, MergeStatement, MergeTarget, statements_to_sql
from airflow_delta_merge.config.relations import FORMATS_WITHOUT_OPTIONS
from airflow_delta_merge.lineage.columns import ReadDatasets, column_lineage_facet, schema_facet, symlinks_facet
from airflow_delta_merge.lineage.naming import NAMED_TABLES, dataset_of_jdbc, dataset_of_path, dataset_of_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.providers.common.compat.sdk import Asset
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset

    from airflow_delta_merge.contract.lineage import ColumnLineage
    from airflow_delta_merge.contract.result import MergeResult

_PATTERN_SIGNS = re.compile(r"[*?\[{]")


def is_lineage_sent() -> bool:
    """Whether Airflow's OpenLineage provider is there and has somewhere to send events to."""
    try:
        from airflow.providers.openlineage.conf import is_disabled

        return not is_disabled()
    except Exception:  # it isn't installed, or its configuration is wrong, as it says itself; no merge fails for that
        return False


def lineage_of_merges(
    configs: Sequence[MergeConfig | MergeStatement],
    results: Mapping[int, MergeResult],
    columns: Mapping[int, ColumnLineage],
) -> OperatorLineage[Any, Any]:
    """Inputs and outputs of a task's merges, with their statements.

    Inputs are the sources' paths or tables, or what OpenLineage's parser finds in their queries; with ``columns`` also
    what the job found behind views.

    :param results: their results by position; empty before they ran and after a failure.
    :param columns: the lineage of their targets' columns by position, if the job reported it.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import sql_job

    inputs: dict[tuple[str, str], InputDataset] = {}
    outputs: dict[tuple[str, str], OutputDataset] = {}
    for position, config in enumerate(configs):
        read, output = _datasets(config, results.get(position), columns.get(position))
        inputs |= {(str(dataset.namespace), str(dataset.name)): dataset for dataset in read}
        if output is not None:
            name = output.namespace, output.name
            outputs[name] = _written_again(outputs[name], output) if name in outputs else output
    return OperatorLineage(
        inputs=list(inputs.values()),
        outputs=list(outputs.values()),
        job_facets={"sql": sql_job.SQLJobFacet(query=statements_to_sql(configs), dialect="spark")},
    )


def _datasets(
    config: MergeConfig | MergeStatement, result: MergeResult | None, columns: ColumnLineage | None
) -> tuple[list[InputDataset], OutputDataset | None]:
    """Inputs and output of one merge."""
    read = ReadDatasets(_inputs(config), columns.tables if columns else ())
    output = _output(config.target, result)
    if output is not None and columns is not None:
        output.facets = {
            **(output.facets or {}),
            "schema": schema_facet(columns.columns),
            "columnLineage": column_lineage_facet(columns, read, (output.namespace, output.name)),
        }
    return read.inputs(), output


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """A ``delta://`` asset as a dataset, for inlets and outlets of any task."""
    from openlineage.client.event_v2 import Dataset

    namespace, name = dataset_of_uri(asset.uri)
    return Dataset(namespace=namespace, name=name)


def _inputs(config: MergeConfig | MergeStatement) -> Iterator[tuple[str, str]]:
    if isinstance(config, MergeStatement):
        yield from _tables_of(config.sql)
        return
    source = config.source
    if source.query is not None:
        yield from _tables_of(source.query)
    if source.jdbc is not None:
        yield from _in_database(source.jdbc)
    if source.table is not None:
        yield dataset_of_uri(delta_asset(MergeTarget(table=source.table)).uri)
    found = (dataset_of_path(_without_pattern(path)) for path in source.paths)
    yield from dict.fromkeys(dataset for dataset in found if dataset is not None)


def _in_database(source: JdbcSource) -> Iterator[tuple[str, str]]:
    """The tables that a database's query reads, or the one that the source names."""
    from airflow_delta_merge.connections.jdbc import access_of
    from airflow_delta_merge.exceptions import JdbcConnectionError

    tables = [source.table] if source.table is not None else _names_in(str(source.query), "ansi")
    try:
        url = access_of(source.conn_id).url
    except JdbcConnectionError:  # the merge says so
        return
    found = (dataset_of_jdbc(url, table) for table in tables)
    yield from (dataset for dataset in found if dataset is not None)


def _names_in(sql: str, dialect: str) -> list[str]:
    from openlineage_sql import parse

    parsed = parse([sql], dialect=dialect)
    return [str(table.qualified_name) for table in (parsed.in_tables if parsed is not None else ())]


def _tables_of(sql: str) -> Iterator[tuple[str, str]]:
    """The tables and files that a query or a statement names, but not what a view behind a name reads."""
    for name in _names_in(sql, "databricks"):
        first, _, path = name.partition(".")
        if first.lower() in FORMATS_WITHOUT_OPTIONS and "/" in path:
            dataset = dataset_of_path(_without_pattern(path))
        elif re.search(rf"\b{re.escape(name)}\s*\(", sql):  # a function, as range(…)
            dataset = None
        else:
            dataset = NAMED_TABLES, name.lower()
        if dataset is not None:
            yield dataset


def _output(target: MergeTarget, result: MergeResult | None) -> OutputDataset | None:
    """The target by its place, as Spark's own lineage names it, or by its name where the place isn't known."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        output_statistics_output_dataset,
        storage_dataset,
    )

    named = None if target.table is None else dataset_of_uri(delta_asset(target).uri)
    path = target.path or (result.location if result else "")
    dataset = dataset_of_path(path) if path else named
    if dataset is None:
        return None
    facets: dict[str, Any] = {
        "storage": storage_dataset.StorageDatasetFacet(storageLayer="delta", fileFormat="parquet")
    }
    if named is not None and named != dataset:
        facets["symlinks"] = symlinks_facet(*named)
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


def _written_again(before: OutputDataset, output: OutputDataset) -> OutputDataset:
    """A dataset that two merges of a task have written: as the second left it, with what both wrote."""
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    first, second = ((each.outputFacets or {}).get("outputStatistics") for each in (before, output))
    if isinstance(first, facet) and isinstance(second, facet):
        for count in ("rowCount", "size", "fileCount"):
            setattr(second, count, getattr(first, count) + getattr(second, count))
    return output


def _without_pattern(path: str) -> str:
    """The folder under which all lies that a pattern of files finds: ``/in/day=*/`` is ``/in``."""
    kept = path.split("/")
    for position, part in enumerate(kept):
        if _PATTERN_SIGNS.search(part):
            return "/".join(kept[:position]) or "/"
    return path
