"""Parses the JSON file of one commit: its commit info, and the files that it adds and removes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_delta_merge.contract.result import is_whole_number
from airflow_delta_merge.history.records import Commit, commit_of

#: The files of larger commits aren't kept.
MOST_FILES_KEPT = 100
#: Largest commit whose files are looked at for a page of the history, in bytes.
_MOST_BYTES_LOOKED_THROUGH = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PartitionChange:
    """What a commit did to the files of one partition.

    :param partition: its values by column; empty for a table without partitions.
    :param added: files added.
    :param removed: files removed.
    :param marked: files that stay and got another deletion vector.
    :param added_bytes: size of the added files.
    :param removed_bytes: size of the removed files, as far as the log tells it.
    """

    partition: Mapping[str, str | None]
    added: int = 0
    removed: int = 0
    marked: int = 0
    added_bytes: int = 0
    removed_bytes: int = 0


def read_commit(version: int, data: bytes) -> Commit:
    """The commit in a file ``<version>.json``; its files, too, where it isn't large."""
    info: Mapping[str, Any] | None = None
    broken = False
    for line in data.split(b"\n"):
        if b'"commitInfo"' not in line[:32]:
            continue
        try:
            found = json.loads(line)["commitInfo"]
        except (ValueError, TypeError, KeyError, RecursionError):
            broken = True
        else:
            info = found if isinstance(found, dict) else None
    commit = commit_of(version, info)
    if broken and info is None:
        return replace(commit, trouble="The commit is in the log, but what it says of itself is no JSON.")
    return _with_files(commit, data) if commit.record is not None else commit


def changes_by_partition(data: bytes) -> list[PartitionChange]:
    """What a commit did to files, one entry for each partition, in the order of their values."""
    adds = {action["path"]: action for action in _actions(data, "add")}
    removes = {action["path"]: action for action in _actions(data, "remove")}
    found: dict[tuple[tuple[str, str | None], ...], PartitionChange] = {}
    for path in [*adds, *(path for path in removes if path not in adds)]:
        added, removed = adds.get(path), removes.get(path)
        values = _partition(added if added is not None else removed)
        change = found.setdefault(values, PartitionChange(partition=dict(values)))
        if added is not None and removed is not None:
            change = replace(change, marked=change.marked + 1)
        elif added is not None:
            change = replace(change, added=change.added + 1, added_bytes=change.added_bytes + _size(added))
        else:
            change = replace(change, removed=change.removed + 1, removed_bytes=change.removed_bytes + _size(removed))
        found[values] = change
    return [found[values] for values in sorted(found, key=str)]


def _with_files(commit: Commit, data: bytes) -> Commit:
    if len(data) > _MOST_BYTES_LOOKED_THROUGH:
        return commit
    adds, removes = list(_actions(data, "add")), list(_actions(data, "remove"))
    if len(adds) + len(removes) > MOST_FILES_KEPT:
        return commit
    return replace(
        commit,
        added_files={action["path"]: f"{_size(action)} {action.get('stats')}" for action in adds},
        removed_files=tuple(action["path"] for action in removes),
    )


def _actions(data: bytes, kind: str) -> Iterator[dict[str, Any]]:
    begin = f'"{kind}"'.encode()
    for line in data.split(b"\n"):
        if begin not in line[:16]:
            continue
        try:
            action = json.loads(line)[kind]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if isinstance(action, dict) and isinstance(action.get("path"), str):
            yield action


def _partition(action: Mapping[str, Any] | None) -> tuple[tuple[str, str | None], ...]:
    values = (action or {}).get("partitionValues")
    if not isinstance(values, dict):
        return ()
    return tuple(sorted((name, None if value is None else str(value)) for name, value in values.items()))


def _size(action: Mapping[str, Any] | None) -> int:
    size = (action or {}).get("size")
    return size if is_whole_number(size) else 0
