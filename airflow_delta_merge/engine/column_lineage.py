"""Where each column of the target comes from, traced through a resolved statement's trees.

The statement is the only place that knows: stars, fields of structs, generated and new columns are resolved in it.
Spark gives each tree as one JSON text, so a merge of hundreds of columns costs a handful of calls to the JVM.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from airflow_delta_merge.contract.lineage import INDIRECT, TARGET, ColumnInput, ColumnLineage, ReadTable
from airflow_delta_merge.engine.delta_jvm.statement import BAD_ROW

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import MergeTrees

_Inputs = frozenset[ColumnInput]
_NOTHING: _Inputs = frozenset()

# Expressions that only name or check the value of their child.
_SAME_VALUE = ("Alias", "KnownNotNull", "KnownNullable")
# Plans whose columns are their children's.
_SAME_COLUMNS = (
    *("SubqueryAlias", "View", "Filter", "Join", "Sort", "Distinct", "ResolvedHint", "Sample"),
    *("GlobalLimit", "LocalLimit", "Offset", "Tail"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
)
# Plans whose columns are in one of their fields.
_NAMED = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
# Plans that decide which rows there are, by the expressions in one of their fields; and how they do it.
_DECIDES = {
    "Filter": ("condition", "FILTER"),
    "Join": ("condition", "JOIN"),
    "Aggregate": ("groupingExpressions", "GROUP_BY"),
    "Sort": ("order", "SORT"),
}
# Leaves whose values stand in the statement or are made up by Spark.
_NO_TABLES = ("LocalRelation", "OneRowRelation", "Range", "EmptyRelation")


@dataclass(frozen=True)
class _Node:
    """A node of Spark's tree: a plan or an expression."""

    kind: str
    fields: Mapping[str, Any]
    children: Sequence[_Node]

    @classmethod
    def of(cls, nodes: Sequence[Mapping[str, Any]]) -> _Node:
        """Build the tree that Spark tells node by node, parents first."""
        built: list[_Node] = []
        for fields in reversed(nodes):
            count = fields["num-children"]
            children = [built.pop() for _ in range(count)]
            built.append(cls(str(fields["class"]).rpartition(".")[2], fields, children))
        (root,) = built
        return root

    @classmethod
    def parse(cls, text: str) -> _Node:
        return cls.of(json.loads(text))

    def inner(self, name: str) -> list[_Node]:
        """The trees in a field: none, one or several."""
        value = self.fields.get(name)
        if not value:
            return []
        return [self.of(nodes) for nodes in value] if isinstance(value[0], list) else [self.of(value)]

    @property
    def leaves_bad_rows_out(self) -> bool:
        """Whether it is the filter of rows that a file's reader can't read, which no column's value decides."""
        return self.kind == "Filter" and BAD_ROW in str(self.fields.get("condition"))

    @property
    def id(self) -> int:
        """By what Spark tells attributes of one name apart."""
        return int(self.fields["exprId"]["id"])


def trace_columns(trees: MergeTrees) -> ColumnLineage:
    """Where the values of the target come from, as far as the resolved statement tells."""
    tracer = _Tracer(trees.tables)
    target = _Node.parse(trees.target)
    tracer.plan(target, table=TARGET)
    source_rows = tracer.plan(_Node.parse(trees.source)).rows
    on = tracer.expression(_Node.parse(trees.condition))
    clauses = _ClauseInputs(tracer, trees.column_names)
    for kind in trees.clauses:
        clauses.trace(map(_Node.parse, kind))
    return ColumnLineage(
        columns=_types(json.loads(trees.schema)),
        tables=tuple(tracer.tables),
        inputs={name: tuple(sorted(inputs)) for name, inputs in clauses.columns.items() if inputs},
        rows=tuple(sorted(source_rows | _as(on, "JOIN") | clauses.rows)),
    )


class _ClauseInputs:
    """What takes part in each column by the clauses, and in which rows there are.

    :param names: the target's columns in the order in which clauses set them.
    """

    def __init__(self, tracer: _Tracer, names: Sequence[str]) -> None:
        self._tracer = tracer
        self._names = names
        self.columns: dict[str, _Inputs | None] = {}
        self.rows = _NOTHING

    def trace(self, clauses: Iterable[_Node]) -> None:
        """Trace the clauses of one kind, in their order."""
        # A clause takes the rows that those before it leave: their conditions take part, too.
        conditions = _NOTHING
        for clause in clauses:
            actions = [child for child in clause.children if child.kind == "DeltaMergeAction"]
            for condition in (child for child in clause.children if child.kind != "DeltaMergeAction"):
                found = _as(self._tracer.expression(condition), "CONDITIONAL")
                if clause.kind.endswith("UpdateClause"):
                    conditions |= found
                else:
                    self.rows |= found
            for name, action in zip(self._names, actions, strict=False):
                self._set(name, self._tracer.expression(action.children[0]), conditions)

    def _set(self, name: str, inputs: _Inputs | None, conditions: _Inputs) -> None:
        if inputs == frozenset([ColumnInput(TARGET, name, "IDENTITY")]):
            return  # an update that leaves the column as it is
        before = self.columns.setdefault(name, _NOTHING)
        self.columns[name] = None if inputs is None or before is None else before | inputs | conditions


@dataclass(frozen=True)
class _Traced:
    """A plan: the ids of its columns, and what decides which rows it has."""

    output: list[int]
    rows: _Inputs


class _Tracer:
    """Follows attributes down to the columns of tables; None stands for what can't be followed.

    :param tables: names and paths of the tables that are read, by the id of their first column.
    """

    def __init__(self, tables: Mapping[int, tuple[str | None, Sequence[str]]]) -> None:
        self._known = tables
        self.tables: list[ReadTable] = []
        self._values: dict[int, _Inputs | None] = {}

    # Plans

    def plan(self, node: _Node, *, table: int | None = None) -> _Traced:
        """Learn where the columns of a plan come from.

        :param table: the table that its leaf is, if that is known.
        """
        if not node.children:
            return self._leaf(node, table)
        children = [self.plan(child, table=table) for child in node.children]
        rows = _NOTHING.union(*(child.rows for child in children))
        output = self._output(node, [child.output for child in children])
        if node.kind in _DECIDES and not node.leaves_bad_rows_out:
            field, kind = _DECIDES[node.kind]
            rows = rows.union(*(_as(self.expression(each), kind) for each in node.inner(field)))
        return _Traced(output, rows)

    def _output(self, node: _Node, children: list[list[int]]) -> list[int]:
        columns = [column for child in children for column in child]
        if node.kind in _NAMED:
            return self._named(node.inner(_NAMED[node.kind]))
        if node.kind == "Window":
            return columns + self._named(node.inner("windowExpressions"))
        if node.kind == "Generate":
            return columns + self._generated(node)
        if node.kind == "Union":
            return self._united(children)
        if node.kind == "Join" and str(node.fields["joinType"].get("object")).endswith(("LeftSemi$", "LeftAnti$")):
            return children[0]
        if node.kind not in _SAME_COLUMNS:
            self._values.update(dict.fromkeys(columns))
        return columns

    def _leaf(self, node: _Node, table: int | None) -> _Traced:
        attributes = node.inner("output")
        ids = [attribute.id for attribute in attributes]
        if node.kind in _NO_TABLES:
            self._values.update(dict.fromkeys(ids, _NOTHING))
            return _Traced(ids, _NOTHING)
        if table is None and ids and ids[0] in self._known:
            table = len(self.tables)
            name, paths = self._known[ids[0]]
            self.tables.append(ReadTable(name=name, paths=tuple(paths), columns=_types_of(attributes)))
        for attribute in attributes:
            name = str(attribute.fields["name"])
            self._values[attribute.id] = None if table is None else frozenset([ColumnInput(table, name, "IDENTITY")])
        return _Traced(ids, _NOTHING)

    def _named(self, expressions: Iterable[_Node]) -> list[int]:
        """The ids of named expressions; those that are new are traced."""
        ids = []
        for expression in expressions:
            ids.append(expression.id)
            if expression.kind == "Alias":
                self._values[expression.id] = self.expression(expression)
        return ids

    def _generated(self, node: _Node) -> list[int]:
        (generator,) = node.inner("generator")
        ids = [attribute.id for attribute in node.inner("generatorOutput")]
        self._values.update(dict.fromkeys(ids, self.expression(generator)))
        return ids

    def _united(self, outputs: list[list[int]]) -> list[int]:
        """The columns of a union have the ids of its first child's."""
        for columns in zip(*outputs, strict=True):
            self._values[columns[0]] = _together(self._values.get(column) for column in columns)
        return outputs[0]

    # Expressions

    def expression(self, node: _Node) -> _Inputs | None:
        """What takes part in an expression's value."""
        if node.kind == "AttributeReference":
            return self._values.get(node.id)
        if node.kind == "OuterReference":
            return _together(self.expression(inner) for inner in node.inner("e"))
        if "plan" in node.fields:
            return self._subquery(node)
        inputs = _together(self._parts(node))
        if inputs is None or node.kind in (*_SAME_VALUE, "If", "CaseWhen") or _casts_nothing(node):
            return inputs
        if node.kind == "WindowSpecDefinition":
            return _as(inputs, "WINDOW")
        made = {"IDENTITY": "TRANSFORMATION"}
        if node.kind == "AggregateExpression":
            made = {"IDENTITY": "AGGREGATION", "TRANSFORMATION": "AGGREGATION"}
        return frozenset(ColumnInput(each.table, each.column, made.get(each.kind, each.kind)) for each in inputs)

    def _parts(self, node: _Node) -> Iterator[_Inputs | None]:
        conditions: Sequence[int] = ()
        if node.kind == "If":
            conditions = [0]
        elif node.kind == "CaseWhen":  # condition, value, condition, value, …, the value after ELSE if there is one
            conditions = range(0, len(node.children) - 1, 2)
        for position, child in enumerate(node.children):
            inputs = self.expression(child)
            yield _as(inputs, "CONDITIONAL") if inputs is not None and position in conditions else inputs

    def _subquery(self, node: _Node) -> _Inputs | None:
        (plan,) = node.inner("plan")
        traced = self.plan(plan)
        value = _together(self._values.get(column) for column in traced.output)
        outer = _together(map(self.expression, node.children))
        return _together([value, outer, traced.rows])


def _together(several: Iterable[_Inputs | None]) -> _Inputs | None:
    """All of them, or None if one isn't known."""
    found = _NOTHING
    for inputs in several:
        if inputs is None:
            return None
        found |= inputs
    return found


def _as(inputs: _Inputs | None, kind: str) -> _Inputs:
    """What takes part in a decision; what isn't known is left out."""
    assert kind in INDIRECT
    return frozenset(ColumnInput(each.table, each.column, kind) for each in inputs or ())


def _casts_nothing(node: _Node) -> bool:
    """Whether an expression is a cast to the type that the value has, as views make them."""
    return node.kind == "Cast" and node.children[0].fields.get("dataType") == node.fields["dataType"]


def _types_of(attributes: Sequence[_Node]) -> dict[str, str]:
    fields = [
        {"name": each.fields["name"], "type": each.fields["dataType"], "nullable": True, "metadata": {}}
        for each in attributes
    ]
    return _types({"type": "struct", "fields": fields})


def _types(schema: dict[str, Any]) -> dict[str, str]:
    """Types by name, as Spark SQL writes them, of a schema as Spark's JSON has it."""
    return {field.name: field.dataType.simpleString() for field in StructType.fromJson(schema).fields}
