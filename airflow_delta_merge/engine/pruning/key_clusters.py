"""Clusters of the source's keys, so that one stray key does not make every file of the target a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from airflow_delta_merge.engine.data_files.trusted_bounds import Range
from airflow_delta_merge.engine.grouped import grouped
from airflow_delta_merge.engine.pruning.source_keys import LONGEST_CUT, PARTS, WHOLE_TYPES, Cut, SourceKey

if TYPE_CHECKING:
    from airflow_delta_merge.engine.source.materialized import MaterializedSource

#: Up to this many rows are grouped by one task, without a shuffle.
_ROWS_FOR_ONE_TASK = 200_000

#: Number of bytes of a text, after the common prefix of all values, that are compared as a number.
_BYTES = 7


def key_clusters(source: MaterializedSource, keys: Sequence[SourceKey]) -> dict[str, list[Range]]:
    """Ranges that together hold all the source's values of a key, by the key's name. One job covers all keys.

    Each key's range is cut into equal parts; the values in each part give a range, and ranges with no wide gap
    between them are joined. Keys whose range is too short or too long to be cut are left out. Texts are compared as
    numbers, by the bytes after the common prefix of all values.

    :param source: the source, or a sample of it.
    """
    cuts = [(key, cut) for key in keys if (cut := _cut(key)) is not None]
    if not cuts:
        return {}
    values = [
        F.struct(
            F.lit(key.name).alias("key"),
            cut.number.alias("number"),
            (key.value if key.type == "string" else F.lit(None).cast("string")).alias("text"),
            cut.part.alias("part"),
        )
        for key, cut in cuts
    ]
    rows = source.frame.coalesce(1) if source.num_rows <= _ROWS_FOR_ONE_TASK else source.frame
    value = values[0] if len(values) == 1 else F.explode(F.array(*values))
    each = rows.select(value.alias("each")).select("each.*").filter("number IS NOT NULL")
    bounds = {"low": F.min("number"), "high": F.max("number")}
    if any(key.type == "string" for key, _ in cuts):  # MIN of a text makes Spark sort
        bounds |= {"low_text": F.min("text"), "high_text": F.max("text")}
    found = grouped(each, {"of_key": F.col("key"), "of_part": F.col("part")}, bounds).collect()
    clusters = {}
    for key, cut in cuts:
        of_key = sorted((row for row in found if row["of_key"] == key.name), key=lambda row: row["of_part"])
        joined = [(group[0], group[-1]) for group in _without_wide_gaps(of_key, gap=cut.width // 4)]
        suffix = "_text" if key.type == "string" else ""
        clusters[key.name] = [(first[f"low{suffix}"], last[f"high{suffix}"]) for first, last in joined]
    return clusters


def _cut(key: SourceKey) -> Cut | None:
    """How to look for clusters of a key; None if its values can't be cut into parts."""
    whole = key.range
    if whole is None:
        return None
    if key.type in WHOLE_TYPES:
        low, high = int(whole[0]), int(whole[1])
        number = key.value.cast("bigint")
    elif key.type == "string":
        if any("\ufffd" in text for text in whole):
            return None  # stands for bytes that are not UTF-8, which sort differently
        texts = [str(text).encode() for text in whole]
        same = _bytes_in_common(*texts)
        low, high = (int.from_bytes(text[same : same + _BYTES].ljust(_BYTES, b"\0"), "big") for text in texts)
        # All values between the smallest and the greatest share their common prefix.
        digits = F.rpad(F.substring(F.hex(key.value), 2 * same + 1, 2 * _BYTES), 2 * _BYTES, "0")
        number = F.conv(digits, 16, 10).cast("bigint")
    else:
        return None
    if not PARTS < high - low < LONGEST_CUT:
        return None
    return Cut.of(number, low, high)


def _bytes_in_common(one: bytes, other: bytes) -> int:
    """Length of the common prefix."""
    differing = (position for position, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))


def _without_wide_gaps(ranges: Sequence[Any], *, gap: int) -> list[list[Any]]:
    """Groups of neighbouring ranges that are at most ``gap`` apart, in order."""
    groups: list[list[Any]] = []
    for each in ranges:
        if groups and each["low"] - groups[-1][-1]["high"] <= gap:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def with_widest_gaps(ranges: Sequence[Range], *, most: int) -> list[Range]:
    """At most ``most`` ranges that cover all the given ones and keep the widest gaps.

    :param ranges: ranges of whole numbers, in order.
    """
    gaps = sorted(range(1, len(ranges)), key=lambda n: ranges[n - 1][1] - ranges[n][0])[: most - 1]
    bounds = [0, *sorted(gaps), len(ranges)]
    return [(ranges[first][0], ranges[end - 1][1]) for first, end in pairwise(bounds)]
