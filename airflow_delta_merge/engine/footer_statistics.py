"""Delta's statistics of a file's text columns, derived from the file's Parquet footer.

Delta's protocol asks for the number of NULLs and for bounds of the texts, which are truncated. Parquet keeps the least
and greatest text in the order of their UTF-8 bytes, which is also Spark's order for the binary collation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextsOfFile:
    """Statistics of a text column in one file.

    :param nulls: number of NULLs.
    :param low: the least text as UTF-8, or a prefix of it; None if all are NULL.
    :param high: the greatest text, or a text after it; None if all are NULL.
    """

    nulls: int
    low: bytes | None
    high: bytes | None


class Number(str):
    """A number exactly as written in JSON; Python's own JSON loses decimals of 38 digits."""


def of_all(row_groups: Iterable[TextsOfFile]) -> TextsOfFile:
    """Combine a column's statistics from all row groups of a file."""
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

    :param statistics: the other statistics, as Delta writes them.
    :param texts: the text columns' statistics, by physical name. Texts that are not UTF-8 get no bounds.
    :param columns: physical names of all columns that have statistics, in the table's order.
    :param prefix_length: number of characters to keep of a long least text.
    :param cut_above: truncates the greatest text so that it stays above all others; returns None if it can't.
    """
    parsed: dict[str, Any] = json.loads(statistics, parse_int=Number, parse_float=Number)
    added: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for column, known in texts.items():
        added["nullCount"][column] = known.nulls
        low, high = text_bounds(known.low, known.high, prefix_length=prefix_length, cut_above=cut_above)
        if low is not None:
            added["minValues"][column] = low
        if high is not None:
            added["maxValues"][column] = high
    for kind, of_texts in added.items():
        together = {**parsed.pop(kind, {}), **of_texts}
        parsed[kind] = {column: together[column] for column in columns if column in together}
    tight = {"tightBounds": parsed.pop("tightBounds")} if "tightBounds" in parsed else {}
    return to_json({**parsed, **tight})


def text_bounds(
    low: bytes | None, high: bytes | None, *, prefix_length: int, cut_above: Callable[[str], str | None]
) -> tuple[str | None, str | None]:
    """Delta's bounds of a text column. An unknown bound is None; both are None for texts that are not UTF-8.

    :param low: the least text as UTF-8, or a prefix of it; None if all are NULL.
    :param high: the greatest text, or a text after it; None if all are NULL.
    :param prefix_length: see :func:`with_texts`, also for ``cut_above``.
    """
    if low is None or high is None:
        return None, None
    try:
        return low.decode()[:prefix_length], cut_above(high.decode())
    except UnicodeDecodeError:
        return None, None


def to_json(value: Any) -> str:
    """JSON as Delta writes it into its log: compact, with unescaped non-ASCII characters."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{to_json(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)
