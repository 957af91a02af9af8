"""Parts of a condition that use only the target, in a form by which files can be chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    if name in ("In", "InSet"):
        is_set = name == "InSet"  # from more than ten constants
        attribute = plain_column(expression.child() if is_set else expression.value())
        values = _values(scala_list(expression.hset().toSeq())) if is_set else _values_of_literals(expression.list())
        low, high = (min(values), max(values)) if values else (None, None)
    elif name in _EXCHANGED:
        attribute, constant = plain_column(expression.left()), expression.right()
        if attribute is None:
            name, attribute, constant = _EXCHANGED[name], plain_column(expression.right()), expression.left()
        value = _value_of(constant)
        low, high = None if name.startswith("Less") else value, None if name.startswith("Greater") else value
    else:
        return None
    if attribute is None or (low is None and high is None):
        return None
    return TargetRange(gateway.column(attribute), str(attribute.dataType().catalogString()), low, high)


def _values_of_literals(expressions: JavaObject) -> list[Any]:
    """The values of a list of literals; empty if some are no literals or of another type."""
    listed = scala_list(expressions)
    return _values(each.value() for each in listed) if all(map(_is_literal, listed)) else []


def _values(values: Iterable[Any]) -> list[Any]:
    """The values without NULL, which equals nothing; empty if some are of another type."""
    found = [_plain(value) for value in values if value is not None]
    return [] if None in found else found


def _value_of(constant: JavaObject) -> Any | None:
    """A literal's value; None for NULL and for anything else."""
    return _plain(constant.value()) if _is_literal(constant) else None


def _plain(value: Any) -> Any | None:
    """Spark's value of a comparable type as a plain one; None for other types."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, (bool, float, bytes)) or value is None:
        return None
    name = class_name_of(value)
    if name == "Decimal":
        return Decimal(str(value.toString()))
    return str(value.toString()) if name == "UTF8String" else None


def _is_literal(expression: JavaObject) -> bool:
    return class_name_of(expression) == "Literal"
