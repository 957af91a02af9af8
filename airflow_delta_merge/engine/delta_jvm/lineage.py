"""A resolved merge as texts, so that its columns can be traced without further calls to the JVM."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, class_name_of, scala_list, scala_option
from airflow_delta_merge.engine.delta_jvm.reads import file_locations
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge

# A pattern may match any number of files. Beyond this limit, lineage reports only their common folder.
_MOST_PATHS = 100


@dataclass(frozen=True)
class MergeTrees:
    """The trees of a resolved merge, each as Spark's JSON.

    :param condition: the ON condition.
    :param clauses: the clauses, kind by kind.
    :param source: the source's plan.
    :param target: the target's plan.
    :param column_names: the columns of the table's final schema, in the order in which clauses set them.
    :param schema: that schema.
    :param tables: names and paths of what the source and subqueries read, by the id of each first column.
    """

    condition: str
    clauses: Sequence[Sequence[str]]
    source: str
    target: str
    column_names: Sequence[str]
    schema: str
    tables: Mapping[int, tuple[str | None, Sequence[str]]]


def trees_of(gateway: Gateway, merge: ResolvedMerge) -> MergeTrees:
    """Read the trees of a resolved merge. The number of JVM calls doesn't grow with its columns' expressions."""
    command, migrated = merge.command, scala_option(merge.command.migratedSchema())
    kinds = (command.matchedClauses(), command.notMatchedClauses(), command.notMatchedBySourceClauses())
    return MergeTrees(
        condition=str(command.condition().toJSON()),
        clauses=[[str(clause.toJSON()) for clause in scala_list(clauses)] for clauses in kinds],
        source=str(command.source().toJSON()),
        target=str(command.target().toJSON()),
        column_names=merge.column_names,
        schema=str((command.target().schema() if migrated is None else migrated).json()),
        tables=dict(_tables(gateway, command)),
    )


def _tables(gateway: Gateway, command: JavaObject) -> Iterator[tuple[int, tuple[str | None, Sequence[str]]]]:
    source = command.source()
    for plan in (source, *scala_list(source.subqueriesAll()), *scala_list(command.subqueriesAll())):
        for leaf in scala_list(plan.collectLeaves()):
            name, paths = _name(leaf), file_locations(gateway, leaf) or []
            if (name or paths) and leaf.output().nonEmpty():
                yield int(leaf.output().head().exprId().id()), (name, _few(paths))


def _name(leaf: JavaObject) -> str | None:
    kind = class_name_of(leaf)
    if kind == "LogicalRelation" and leaf.catalogTable().isDefined():
        return str(leaf.catalogTable().get().identifier().unquotedString())
    if kind == "HiveTableRelation":
        return str(leaf.tableMeta().identifier().unquotedString())
    if kind.startswith("DataSourceV2"):
        return str(leaf.name())
    return None


def _few(paths: Sequence[str]) -> Sequence[str]:
    return paths if len(paths) <= _MOST_PATHS else [posixpath.commonpath(paths)]
