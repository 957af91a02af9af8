"""Parts of a condition that use only the target, in a form by which files can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import Column

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, class_name_of, scala_list

#: Comparisons of two values, and the same with both sides exchanged.
_EXCHANGED = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}


@dataclass(frozen=True)
class TargetRange:
    """The values of a target column for which a condition can be true.

    :param type: its type, as Spark SQL writes it.
    :param low: the smallest value: an integer (dates as days and timestamps as microseconds since 1970), a ``Decimal``
        or a text; None if there is no limit. Strict comparisons count as if they were not.
    :param high: the greatest value.
    """

    column: Column
    type: str
    low: Any | None
    high: Any | None


#: A part of a condition that uses only the target: a predicate over partition columns, or a range of another column.
TargetPart = Column | TargetRange


@dataclass(frozen=True)
class TargetParts:
    """The target-only parts of a merge's conditions by which files can be chosen.

    :param condition: those of the ON condition.
    :param shared: those of them that all NOT MATCHED BY SOURCE conditions have, too, such as the bounds of a window.
    :param by_source: those of each NOT MATCHED BY SOURCE condition, clause by clause; none for a clause without one.
    """

    condition: list[TargetPart]
    shared: list[TargetPart]
    by_source: list[list[TargetPart]]


def range_of(
    gateway: Gateway, expression: JavaObject, plain_column: Callable[[JavaObject], JavaObject | None]
) -> TargetRange | None:
    """An optimized expression as a range of a target column; None if it doesn't compare one with constants.

    :param plain_column: gives the target's attribute behind an expression, or None.
    """
    name = class_name_of(expression)
    if name == "In":
        attribute, constants = plain_column(expression.value()), _values_of(scala_list(expression.list()))
    elif name == "InSet":  # from more than ten constants
        attribute, constants = plain_column(expression.child()), scala_list(expression.hset().toSeq())
    elif name in _EXCHANGED:
        attribute, constants = plain_column(expression.left()), _values_of([expression.right()])
        if attribute is None:
            name = _EXCHANGED[name]
            attribute, constants = plain_column(expression.right()), _values_of([expression.left()])
    else:
        return None
    values = [_plain(constant) for constant in constants if constant is not None]  # nothing equals NULL
    if attribute is None or not values or None in values:
        return None
    return TargetRange(
        column=gateway.column(attribute),
        type=str(attribute.dataType().catalogString()),
        low=None if name.startswith("Less") else min(values),
        high=None if name.startswith("Greater") else max(values),
    )


def _values_of(literals: list[JavaObject]) -> list[Any]:
    """The values of literals; none if one is another expression."""
    return [each.value() for each in literals] if all(class_name_of(each) == "Literal" for each in literals) else []


def _plain(value: Any) -> Any:
    """Spark's value of a comparable type as a plain one; None for other types."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, (bool, float, bytes)):
        return None
    name = class_name_of(value)
    if name == "Decimal":
        return Decimal(str(value.toString()))
    return str(value.toString()) if name == "UTF8String" else None
