"""Which files of a small table can match, by statistics that Delta lists beside them in the version's checksum file.

Delta's ``filterFiles`` asks its statistics the same in a Spark job, which takes longer than a small merge can spare.
Statistics mean what Delta's protocol says: the least and greatest value of a column in the file, or bounds of them (of
long strings, or where rows were deleted since), and the number of NULLs; what is missing is not known.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: From the smallest to the greatest value, both included; as integers for whole types.
Range = tuple[Any, Any]

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class Wanted:
    """The values of a column that are looked for.

    :param column: its physical name.
    :param type: its type, as Spark SQL writes it: one for which :func:`is_comparable`.
    :param ranges: ranges that hold the values; of dates as days since 1970.
    :param nulls: whether NULL is looked for, too.
    """

    column: str
    type: str
    ranges: Sequence[Range]
    nulls: bool

    def may_be_in(self, statistics: dict[str, Any]) -> bool:
        """Whether a file may hold such a value.

        :param statistics: the file's; empty when they are not known.
        """
        if self.nulls and statistics.get("nullCount", {}).get(self.column) != 0:
            return True
        low, high = (self._value(statistics.get(bound, {}).get(self.column)) for bound in ("minValues", "maxValues"))
        if low is None or high is None:
            return True
        return any(smallest <= high and low <= largest for smallest, largest in self.ranges)

    def _value(self, told: Any) -> Any:
        if self.type in _INTEGERS:
            return told if isinstance(told, int) else None
        if not isinstance(told, str):
            return None
        return _days(told) if self.type == "date" else told


def _days(date: str) -> int | None:
    """Days since 1970; None for years that Python doesn't know."""
    try:
        return (datetime.date.fromisoformat(date) - _EPOCH).days
    except ValueError:
        return None


def is_comparable(type_: str) -> bool:
    """Whether values of the type, as Spark SQL writes it, are compared here as Spark compares them."""
    return type_ in _INTEGERS or type_ in ("date", "string")


def files_that_may_hold(wanted: Sequence[Wanted], statistics: Sequence[dict[str, Any]]) -> list[int]:
    """The positions of the files that may hold a row with a wanted value in each of the columns.

    :param statistics: of each file what Delta tells; empty if it doesn't.
    """
    return [position for position, each in enumerate(statistics) if all(one.may_be_in(each) for one in wanted)]
