"""What a statement reads: according to its text, and after it was resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, class_name_of, scala_list, scala_texts
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.exceptions import MergeConfigError

#: Formats that SQL reads by path, beside those named by a class: ``parquet.`/in/day` ``.
FILE_FORMATS = ("parquet", "delta", "csv", "json", "orc", "avro", "text", "xml", "binaryfile")

# Functions that can call any static Java method.
_REFLECTION = ("reflect", "java_method", "try_reflect")
# Leaves of a resolved plan that read nothing from outside the session.
_NO_FILES = ("OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "LogicalRDD", "EmptyRelation")


@dataclass
class Reads:
    """What a text reads, before any name is looked up.

    :param paths: files and folders.
    :param options: names of reader options.
    :param code: parts that run code, or whose reads the text does not show.
    """

    paths: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)


def reads_of_text(gateway: Gateway, text: str, *, expression: bool = False) -> Reads:
    """What a statement or an expression reads; tables and views by name are not looked up."""
    parser, found = gateway.session.sessionState().sqlParser(), Reads()
    parsed = parser.parseExpression(text) if expression else parser.parsePlan(text)
    for node in _nodes(gateway, parsed):
        _look_at(node, class_name_of(node), found)
    return found


def _look_at(node: JavaObject, name: str, found: Reads) -> None:
    if name == "UnresolvedRelation":
        parts = [str(part) for part in scala_list(node.multipartIdentifier())]
        if len(parts) == 2 and (parts[0].lower() in FILE_FORMATS or "." in parts[0] or "/" in parts[1]):
            found.paths.append(parts[1])
        found.options += [str(option) for option in node.options().keySet()]
    elif name == "UnresolvedFunction":
        function = str(node.nameParts().last()).lower()
        if function in _REFLECTION:
            found.code.append(f"the function {function}")
    elif name == "ScriptTransformation":
        found.code.append("a program by TRANSFORM")
    elif name.endswith("WithUnresolvedIdentifier"):
        found.code.append("IDENTIFIER() with a computed name")


def _nodes(gateway: Gateway, node: JavaObject) -> Iterator[JavaObject]:
    """A tree's nodes, with the expressions of its plans and the plans of its subqueries and WITH clauses."""
    yield node
    children = [*scala_list(node.children()), *scala_list(node.innerChildren())]
    if _is_a(gateway, node, "org.apache.spark.sql.catalyst.plans.QueryPlan"):
        children += scala_list(node.expressions())
    elif _is_a(gateway, node, "org.apache.spark.sql.catalyst.expressions.PlanExpression"):
        children.append(node.plan())
    for child in children:
        yield from _nodes(gateway, child)


def _is_a(gateway: Gateway, value: JavaObject, class_name: str) -> bool:
    return bool(gateway.java_class(class_name)._java_lang_class.isInstance(value))


def locations_of_merge(gateway: Gateway, merge: ResolvedMerge) -> Iterator[str]:
    """The locations of all files that a resolved merge reads and writes, including views and subqueries.

    :raises MergeConfigError: when a relation is not stored in files.
    """
    command = merge.command
    for plan in (command.target(), command.source(), *scala_list(command.subqueriesAll())):
        yield from locations_of(gateway, plan)


def locations_of(gateway: Gateway, plan: JavaObject) -> Iterator[str]:
    """The locations of the files that an analysed plan reads.

    :raises MergeConfigError: when a relation is not stored in files.
    """
    for part in (plan, *scala_list(plan.subqueriesAll())):
        for leaf in scala_list(part.collectLeaves()):
            yield from _locations(gateway, leaf)


def _locations(gateway: Gateway, leaf: JavaObject) -> list[str]:
    found = file_locations(gateway, leaf)
    if found is None:
        name = class_name_of(leaf)
        if name == "LogicalRelation":
            name = class_name_of(leaf.relation())
        raise MergeConfigError(
            f"The merge reads {name}, which is not stored in files and so is not under allowed_locations. Read files "
            "or tables instead."
        )
    return found


def file_locations(gateway: Gateway, leaf: JavaObject) -> list[str] | None:
    """The locations of the files that a leaf of an analysed plan reads; None if it is not stored in files."""
    name = class_name_of(leaf)
    if name in _NO_FILES:
        return []
    if name == "LogicalRelation":
        relation = leaf.relation()
        # Delta's relation is of an anonymous class.
        if _is_a(gateway, relation, "org.apache.spark.sql.execution.datasources.HadoopFsRelation"):
            return scala_texts(relation.location().rootPaths())
        if class_name_of(relation) == "DeltaCDFRelation":
            return [str(relation.deltaLog().dataPath().toString())]
    elif name == "HiveTableRelation":
        return [str(leaf.tableMeta().location().toString())]
    return None


def qualified(gateway: Gateway, path: str) -> tuple[str, str, str]:
    """Scheme, authority and normalised path of a path or URI, as Hadoop reads it.

    :raises MergeConfigError: when the path is not absolute.
    """
    paths, file_systems = (gateway.java_class(f"org.apache.hadoop.fs.{name}") for name in ("Path", "FileSystem"))
    parsed = paths(path)
    if not parsed.isUriPathAbsolute() and parsed.toUri().getAuthority() is None:
        raise MergeConfigError(f"The path {path!r} is relative. Use an absolute path or a URI.")
    default = file_systems.getDefaultUri(gateway.session.sessionState().newHadoopConf())
    uri = parsed.makeQualified(default, paths("/")).toUri()
    return str(uri.getScheme()), str(uri.getAuthority() or ""), str(uri.getPath())
