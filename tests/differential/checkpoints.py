"""What the last checkpoint of a table says, read without Spark: of one file, of several, or with sidecars."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(parquet|json)")


def last_checkpoint(log: Path) -> tuple[int, list[dict[str, Any]]]:
    """The version and the actions of the last checkpoint before the commits that a log still has.

    A later one, which a merge may write, tells no more, and hides what the merge's own commit says.

    :raises FileNotFoundError: when there is none.
    """
    parts = sorted(path for path in log.iterdir() if _CHECKPOINT.fullmatch(path.name))
    if not parts:
        raise FileNotFoundError(f"{log} has neither the commit of version 0 nor a checkpoint")
    last = _first_followed_by_commits({int(path.name[:20]) for path in parts}, log)
    parts = [path for path in parts if int(path.name[:20]) == last]
    actions = [action for path in parts for action in _actions(path)]
    for action in [*actions]:
        if "sidecar" in action:
            actions += _actions(log / "_sidecars" / action["sidecar"]["path"])
    return last, actions


def _first_followed_by_commits(checkpoints: set[int], log: Path) -> int:
    commits = {int(path.stem) for path in log.glob("*.json") if path.stem.isdigit()}
    newest = max(checkpoints | commits)
    return min(version for version in checkpoints if commits.issuperset(range(version + 1, newest + 1)))


def _actions(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    if path.suffix == ".json":
        yield from map(json.loads, path.read_text("utf-8").splitlines())
        return
    for row in pq.ParquetFile(path).read().to_pylist(maps_as_pydicts="strict"):
        yield _without_nulls(row)


def _without_nulls(value: Any) -> Any:
    """A value as JSON of the log tells it: what is null is left out, but in the maps of partition values."""
    if not isinstance(value, dict):
        return value
    return {
        key: item if key == "partitionValues" else _without_nulls(item)
        for key, item in value.items()
        if item is not None and not key.endswith("_parsed")
    }
