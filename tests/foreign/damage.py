"""Harm done to the logs of tables: what readers meet when writers err, or when logs pass through other hands.

Only such harm as the built-in bears, which prunes by what the log says, too, where a condition names a value: bounds
that are plainly wrong lead every reader astray and are not here; bounds that real writers round or cut are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Add = dict[str, Any]
Statistics = dict[str, Any]


def damage(table: Path, kinds: Iterable[str]) -> None:
    """Do harm to each file that the commits of a table add.

    :param kinds: names of :data:`KINDS`, each for all files, or with " in every 2nd file" or " in every 3rd file".
    """
    done = [_kind(text) for text in kinds]
    if not done:
        return
    number = 0
    for path in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
        for action in actions:
            if action.get("add") is not None:  # some writers list all kinds, null but for one
                for harm, every in done:
                    if number % every == every - 1:
                        harm(action["add"])
                number += 1
        lines = [json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions]
        path.write_text("\n".join(lines) + "\n", "utf-8")
    for checksum in (table / "_delta_log").glob("*.crc"):
        checksum.unlink()


def _kind(text: str) -> tuple[Callable[[Add], None], int]:
    for suffix, every in ((" in every 2nd file", 2), (" in every 3rd file", 3)):
        if text.endswith(suffix):
            return KINDS[text.removesuffix(suffix)], every
    return KINDS[text], 1


def _on_statistics(change: Callable[[Statistics], Any]) -> Callable[[Add], None]:
    def harm(add: Add) -> None:
        try:
            statistics = json.loads(add.get("stats") or "{}")
        except ValueError:
            return
        if isinstance(statistics, dict) and statistics:
            change(statistics)
            add["stats"] = json.dumps(statistics)

    return harm


def _on_bounds(change: Callable[[Any, bool], Any]) -> Callable[[Add], None]:
    """Change each bound; ``change`` gets its value and whether it is an upper one."""

    def of(bounds: Any, upper: bool) -> Any:
        if isinstance(bounds, dict):
            return {name: of(value, upper) for name, value in bounds.items()}
        return change(bounds, upper)

    def change_both(statistics: Statistics) -> None:
        for name in ("minValues", "maxValues"):
            if name in statistics:
                statistics[name] = of(statistics[name], name == "maxValues")

    return _on_statistics(change_both)


def _sets(**values: Any) -> Callable[[Add], None]:
    return _on_statistics(lambda statistics: statistics.update(values))


def _drops(*names: str) -> Callable[[Add], None]:
    def drop(statistics: Statistics) -> None:
        for name in names:
            statistics.pop(name, None)

    return _on_statistics(drop)


def _sets_text(text: Any) -> Callable[[Add], None]:
    return lambda add: add.__setitem__("stats", text)


def _cut_statistics(add: Add) -> None:
    add["stats"] = (add.get("stats") or "")[:40]


def _no_statistics(add: Add) -> None:
    add.pop("stats", None)


def _sets_in_add(**values: Any) -> Callable[[Add], None]:
    return lambda add: add.update(values)


_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2})(\.\d+)?(.*)")


def _times_to(digits: int) -> Callable[[Any, bool], Any]:
    """Timestamps cut to so many digits of a second, as Spark cuts to three, down for both bounds."""

    def cut(value: Any, upper: bool) -> Any:
        if not isinstance(value, str) or not (match := _TIME.fullmatch(value)):
            return value
        seconds, fraction, zone = match.groups()
        kept = ("." + (fraction or ".")[1:].ljust(digits, "0")[:digits]) if digits else ""
        return seconds + kept + zone

    return cut


def _as_text(value: Any, upper: bool) -> Any:
    return value if value is None or isinstance(value, (str, bool)) else json.dumps(value)


def _as_number(value: Any, upper: bool) -> Any:
    """Texts that are numbers as numbers: decimals, by a writer that has them as doubles."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _of_another_type(value: Any, upper: bool) -> Any:
    return {"a": 1} if isinstance(value, (int, float)) else ["x"]


def _short_texts(value: Any, upper: bool) -> Any:
    """Texts cut to 16 characters; upper bounds get a tie-breaker, as Delta's do."""
    if not isinstance(value, str) or len(value) <= 16 or _TIME.fullmatch(value):
        return value
    return value[:16] + ("\U0010ffff" if upper else "")


def _shuffled(statistics: Statistics) -> None:
    for name in ("minValues", "maxValues", "nullCount"):
        if isinstance(statistics.get(name), dict):
            statistics[name] = dict(reversed(statistics[name].items())) | {"no such column": 1}


KINDS: dict[str, Callable[[Add], None]] = {
    "no statistics": _no_statistics,
    "statistics null": _sets_text(None),
    "statistics empty": _sets_text(""),
    "statistics {}": _sets_text("{}"),
    "statistics a list": _sets_text("[]"),
    "statistics JSON's null": _sets_text("null"),
    "statistics a number": _sets_text("7"),
    "statistics cut": _cut_statistics,
    "statistics no JSON": _sets_text("none"),
    "bounds null": _sets(minValues=None, maxValues=None, nullCount=None),
    "bounds empty": _sets(minValues={}, maxValues={}, nullCount={}),
    "bounds missing": _drops("minValues", "maxValues"),
    "only the lower bounds": _drops("maxValues"),
    "only the upper bounds": _drops("minValues"),
    "each bound null": _on_bounds(lambda value, upper: None),
    "lower bounds null": _on_bounds(lambda value, upper: value if upper else None),
    "bounds of another type": _on_bounds(_of_another_type),
    "bounds lists": _sets(minValues=[], maxValues=[]),
    "bounds texts": _sets(minValues="x", maxValues="y"),
    "numbers as texts": _on_bounds(_as_text),
    "texts as numbers": _on_bounds(_as_number),
    "timestamps to milliseconds": _on_bounds(_times_to(3)),
    "timestamps to seconds": _on_bounds(_times_to(0)),
    "timestamps with nanoseconds": _on_bounds(_times_to(9)),
    "texts cut": _on_bounds(_short_texts),
    "no counts of nulls": _drops("nullCount"),
    "counts of nulls null": _sets(nullCount=None),
    "no number of rows": _drops("numRecords"),
    "number of rows null": _sets(numRecords=None),
    "number of rows a text": _sets(numRecords="x"),
    "number of rows a fraction": _on_statistics(
        lambda statistics: statistics.update(numRecords=float(statistics.get("numRecords") or 2))
    ),
    "bounds said to be tight": _sets(tightBounds=True),
    "bounds said to be wide": _sets(tightBounds=False),
    "more keys, other order": _on_statistics(_shuffled),
    "tags null": _sets_in_add(tags=None),
    "a tag null": _sets_in_add(tags={"VORDER": None}),
    "unknown fields": _sets_in_add(clusteringProvider=None, somethingNew={"a": [1]}, baseRowId=None),
    "no change of data": _sets_in_add(dataChange=False),
    "time of change 0": _sets_in_add(modificationTime=0),
}
