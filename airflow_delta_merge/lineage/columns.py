"""Schemas and column lineage as OpenLineage's facets, from what the job reports about a merge's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.contract.lineage import DIRECT, TARGET, ColumnInput, ColumnLineage, ReadTable
from airflow_delta_merge.lineage.naming import NAMED_TABLES, dataset_of_path

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import column_lineage_dataset

_Name = tuple[str, str]
# What a session without further catalogs puts before each name.
_DEFAULT_CATALOG = "spark_catalog."


class ReadDatasets:
    """The datasets that a merge reads: those that its config names, as Spark resolved them.

    :param named: namespaces and names of the config's inputs.
    :param tables: the tables and files in the job's plan.
    """

    def __init__(self, named: Iterable[_Name], tables: Iterable[ReadTable]) -> None:
        self._named = list(named)
        self._columns: dict[_Name, dict[str, str]] = {}
        self._symlinks: dict[_Name, str] = {}
        #: The datasets of each table; several if files of several folders are read together.
        self.of_tables = [self._add(table) for table in tables]

    def inputs(self) -> list[InputDataset]:
        """Each dataset once, with its schema if a plan has it."""
        from openlineage.client.event_v2 import InputDataset

        found = {name for names in self._symlinks.values() for name in self._named if _is_named(name, names)}
        datasets = dict.fromkeys([*(name for name in self._named if name not in found), *self._columns])
        return [InputDataset(namespace=name[0], name=name[1], facets=self._facets(name)) for name in datasets]

    def _facets(self, name: _Name) -> dict[str, Any]:
        facets: dict[str, Any] = {}
        if columns := self._columns.get(name):
            facets["schema"] = schema_facet(columns)
        if table := self._symlinks.get(name):
            facets["symlinks"] = symlinks_facet(NAMED_TABLES, table)
        return facets

    def _add(self, table: ReadTable) -> list[_Name]:
        name = None if table.name is None else table.name.lower().removeprefix(_DEFAULT_CATALOG)
        found = [dataset for dataset in map(dataset_of_path, table.paths) if dataset is not None]
        if name is None:
            found = [self._declared(dataset) for dataset in found]
        elif not found:
            found = [next((each for each in self._named if _is_named(each, name)), (NAMED_TABLES, name))]
        else:
            self._symlinks.update(dict.fromkeys(found, name))
        for dataset in dict.fromkeys(found):
            self._columns.setdefault(dataset, {}).update(table.columns)
        return list(dict.fromkeys(found))

    def _declared(self, dataset: _Name) -> _Name:
        """The folder that the config names, if that is where a file lies."""
        namespace, path = dataset
        folders = [name for where, name in self._named if where == namespace and f"{path}/".startswith(f"{name}/")]
        return namespace, max(folders, key=len, default=path)


def schema_facet(columns: Mapping[str, str]) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in columns.items()]
    return schema_dataset.SchemaDatasetFacet(fields=fields)


def symlinks_facet(namespace: str, name: str) -> Any:
    from openlineage.client.facet_v2 import symlinks_dataset

    identifiers = [symlinks_dataset.Identifier(namespace=namespace, name=name, type="TABLE")]
    return symlinks_dataset.SymlinksDatasetFacet(identifiers=identifiers)


def column_lineage_facet(
    columns: ColumnLineage, read: ReadDatasets, target: _Name
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """The columns that each column of the target comes from, and those that decide about its rows."""
    from openlineage.client.facet_v2 import column_lineage_dataset as facet

    def fields(inputs: Iterable[ColumnInput]) -> list[facet.InputField]:
        kinds: dict[tuple[_Name, str], list[str]] = {}
        for each in inputs:
            for dataset in [target] if each.table == TARGET else read.of_tables[each.table]:
                kinds.setdefault((dataset, each.column), []).append(each.kind)
        return [
            facet.InputField(
                namespace=dataset[0],
                name=dataset[1],
                field=column,
                transformations=[
                    facet.Transformation(type="DIRECT" if kind in DIRECT else "INDIRECT", subtype=kind)
                    for kind in dict.fromkeys(of_column)
                ],
            )
            for (dataset, column), of_column in kinds.items()
        ]

    return facet.ColumnLineageDatasetFacet(
        fields={name: facet.Fields(inputFields=fields(inputs)) for name, inputs in columns.inputs.items()},
        dataset=fields(columns.rows),
    )


def _is_named(dataset: _Name, name: str) -> bool:
    """Whether a dataset is the table of that name, perhaps without its schema or catalog."""
    return dataset[0] == NAMED_TABLES and f".{name}".endswith(f".{dataset[1]}")
