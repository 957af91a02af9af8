"""The conjuncts of a merge's conditions, by which files and rows are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column

from airflow_delta_merge.engine.data_files.trusted_bounds import INTEGER_BITS
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, class_name_of, scala_list, scala_option
from airflow_delta_merge.engine.delta_jvm.target_parts import TargetPart, TargetParts, range_of


@dataclass(frozen=True)
class Equality:
    """``target = source`` or ``target <=> source`` in the ON condition.

    :param target: a column of the target.
    :param target_name: its name.
    :param source: a column of the source, possibly cast; it has the target's type or a wider integer type.
    :param type: the target column's type, as Spark SQL writes it.
    :param null_safe: whether two NULLs are equal.
    """

    target: Column
    target_name: str
    source: Column
    type: str
    null_safe: bool


class Conjuncts:
    """What the ON condition and the clauses' conditions consist of.

    :param command: Delta's resolved ``MergeIntoCommand``.
    """

    def __init__(self, gateway: Gateway, command: JavaObject) -> None:
        self._gateway = gateway
        self._command = command

    @cached_property
    def target_only(self) -> list[Column]:
        """Those of the ON condition that use no source column."""
        return self._target_only(self._conjuncts(self._command.condition()))

    def target_parts(self, partitioned_by: Sequence[str]) -> TargetParts:
        """Those that choose files in a merge with NOT MATCHED BY SOURCE clauses.

        :param partitioned_by: the table's partition columns.
        """
        target, partitions = self._command.target().outputSet(), self._attributes(partitioned_by)

        def part(conjunct: JavaObject) -> TargetPart | None:
            if conjunct.references().subsetOf(partitions):
                return self._gateway.column(conjunct)
            return range_of(self._gateway, conjunct, self._plain_target_column)

        def parts(conjuncts: Iterable[JavaObject]) -> list[tuple[JavaObject, TargetPart]]:
            found = ((each, part(each)) for each in conjuncts if each.references().subsetOf(target))
            return [(conjunct, known) for conjunct, known in found if known is not None]

        by_source = [parts(each) for each in self._of_clauses(self._command.notMatchedBySourceClauses())]
        of_condition = parts(self._conjuncts(self._command.condition()))
        shared = [
            known
            for conjunct, known in of_condition
            if all(any(conjunct.semanticEquals(other) for other, _ in clause) for clause in by_source)
        ]
        return TargetParts(
            condition=[known for _, known in of_condition],
            shared=shared,
            by_source=[[known for _, known in clause] for clause in by_source],
        )

    def _attributes(self, names: Sequence[str]) -> JavaObject:
        """The JVM set of the target's attributes of these names."""
        target = self._command.target()
        columns = self._gateway.as_json(target.schema().fieldNames()) if names else []
        found = [target.output().apply(position) for position, name in enumerate(columns) if name in names]
        return self._gateway.attribute_set(self._gateway.seq(found))

    @cached_property
    def target_only_of_clauses(self) -> list[list[Column]]:
        """Those of each matched clause's condition that use no source column, clause by clause."""
        return [self._target_only(each) for each in self._of_clauses(self._command.matchedClauses())]

    @cached_property
    def equalities(self) -> list[Equality]:
        """Those of the ON condition that compare a target column with a source column."""
        found = []
        for left, right, name in self._equated:
            equality = self._equality(left, right, name) or self._equality(right, left, name)
            if equality is not None:
                found.append(equality)
        return found

    @cached_property
    def _equated(self) -> list[tuple[JavaObject, JavaObject, str]]:
        """Both sides of each equality among those of the ON condition, and its class."""
        named = [(each, class_name_of(each)) for each in self._conjuncts(self._command.condition())]
        return [(each.left(), each.right(), name) for each, name in named if name in ("EqualTo", "EqualNullSafe")]

    def equal_to(self, column: JavaObject) -> list[JavaObject]:
        """The column, and the expressions that equal it according to the ON condition."""
        pairs = [pair for left, right, _ in self._equated for pair in ((left, right), (right, left))]
        return [column, *(other for one, other in pairs if one.semanticEquals(column))]

    def _equality(self, target: JavaObject, source: JavaObject, name: str) -> Equality | None:
        column = self._plain_target_column(target)
        if column is None or not self._is_plain_source_column(source):
            return None
        return Equality(
            target=self._gateway.column(column),
            target_name=str(column.name()),
            source=self._gateway.column(source),
            type=str(column.dataType().catalogString()),
            null_safe=name == "EqualNullSafe",
        )

    def _conjuncts(self, expression: JavaObject) -> list[JavaObject]:
        return scala_list(self._command.splitConjunctivePredicates(expression))

    def _of_clauses(self, clauses: JavaObject) -> list[list[JavaObject]]:
        """The conjuncts of each clause's condition; none without a condition."""
        conditions = (scala_option(clause.condition()) for clause in scala_list(clauses))
        return [[] if condition is None else self._conjuncts(condition) for condition in conditions]

    def _target_only(self, expressions: Iterable[JavaObject]) -> list[Column]:
        target = self._command.target().outputSet()
        return [self._gateway.column(each) for each in expressions if each.references().subsetOf(target)]

    def _is_plain_source_column(self, expression: JavaObject) -> bool:
        """Whether the expression is a source column or a safe cast of one.

        Anything else may raise an error on rows that the rest of the condition excludes.
        """
        if class_name_of(expression) == "Cast":
            casts = self._gateway.module("org.apache.spark.sql.catalyst.expressions.Cast")
            if not casts.canUpCast(expression.child().dataType(), expression.dataType()):
                return False
            expression = expression.child()
        is_attribute = class_name_of(expression) == "AttributeReference"
        return is_attribute and bool(self._command.source().outputSet().contains(expression))

    def _plain_target_column(self, expression: JavaObject) -> JavaObject | None:
        """The target's attribute if the expression is one, or widens one to a larger integer type."""
        if class_name_of(expression) == "Cast":
            child = expression.child()
            bits = [INTEGER_BITS.get(str(each.dataType().catalogString())) for each in (child, expression)]
            if bits[0] is None or bits[1] is None or bits[0] > bits[1]:
                return None
            expression = child
        is_attribute = class_name_of(expression) == "AttributeReference"
        return expression if is_attribute and self._command.target().outputSet().contains(expression) else None
