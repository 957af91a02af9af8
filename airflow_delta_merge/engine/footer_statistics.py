"""Delta's statistics of a file's text columns, made of what the file's Parquet footer tells of them.

What Delta's protocol wants: the number of NULLs, and bounds of the texts, which are cut. Parquet keeps the least and
the greatest text in the order of their UTF-8 bytes, which is Spark's for texts of the binary collation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextsOfFile:
    """What is known of a text column in one file.

    :param nulls: number of NULLs.
    :param low: the least text as UTF-8, or what it begins with; None if all are NULL.
    :param high: the greatest, or what comes after it; None if all are NULL.
    """

    nulls: int
    low: bytes | None
    high: bytes | None


class Number(str):
    """A number as it stands in JSON, since Python's own JSON keeps no decimal of 38 digits."""


def of_all(row_groups: Iterable[TextsOfFile]) -> TextsOfFile:
    """What is known of a column in a file by what is known of it in each of the file's row groups."""
    groups = list(row_groups)
    lows = [group.low for group in groups if group.low is not None]
    highs = [group.high for group in groups if group.high is not None]
    return TextsOfFile(sum(group.nulls for group in groups), min(lows, default=None), max(highs, default=None))


def with_texts(
    statistics: str,
    texts: Mapping[str, TextsOfFile],
    columns: Sequence[str],
    *,
    prefix_length: int,
    cut_above: Callable[[str], str | None],
) -> str:
    """A file's statistics with those of its text columns.

    :param statistics: the others, as Delta writes them.
    :param texts: what is known, by the column's physical name. Of texts that are no UTF-8 no bounds are told.
    :param columns: physical names of all columns that have statistics, in the table's order.
    :param prefix_length: so many characters are kept of a long least text.
    :param cut_above: cuts a greatest text so that it stays above all others; None where it can't.
    """
    told: dict[str, Any] = json.loads(statistics, parse_int=Number, parse_float=Number)
    added: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for column, known in texts.items():
        added["nullCount"][column] = known.nulls
        low, high = text_bounds(known.low, known.high, prefix_length=prefix_length, cut_above=cut_above)
        if low is not None:
            added["minValues"][column] = low
        if high is not None:
            added["maxValues"][column] = high
    for kind, of_texts in added.items():
        together = {**told.pop(kind, {}), **of_texts}
        told[kind] = {column: together[column] for column in columns if column in together}
    tight = {"tightBounds": told.pop("tightBounds")} if "tightBounds" in told else {}
    return to_json({**told, **tight})


def text_bounds(
    low: bytes | None, high: bytes | None, *, prefix_length: int, cut_above: Callable[[str], str | None]
) -> tuple[str | None, str | None]:
    """Delta's bounds of a text column; None for one that isn't known, both for texts that are not UTF-8.

    :param low: the least text as UTF-8, or what it begins with; None if all are NULL.
    :param high: the greatest, or what comes after it; None if all are NULL.
    :param prefix_length: see :func:`with_texts`, as for ``cut_above``.
    """
    if low is None or high is None:
        return None, None
    try:
        return low.decode()[:prefix_length], cut_above(high.decode())
    except UnicodeDecodeError:
        return None, None


def to_json(value: Any) -> str:
    """JSON as Delta writes it into its log: compact, with texts as they are."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{to_json(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)
