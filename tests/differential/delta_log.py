"""A Delta log read as what it is, lines of JSON: quick, and no engine's opinion on it.

A checkpoint is read only where the first commits are gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.differential.checkpoints import last_checkpoint

Action = dict[str, Any]
#: A data file's path and its deletion vector.
FileKey = tuple[str, str]


@dataclass
class DeltaTableLog:
    """The commits of a table and the state that they add up to.

    :param commits: the actions of each commit.
    :param start: the version of the first of them.
    """

    commits: list[list[Action]]
    start: int = 0
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    files: dict[FileKey, Action] = field(default_factory=dict)

    @classmethod
    def read(cls, table: Path) -> DeltaTableLog:
        names = sorted(p for p in (table / "_delta_log").glob("*.json") if p.stem.isdigit())
        commits = [[_action(line) for line in p.read_text("utf-8").split("\n") if line.strip()] for p in names]
        if names and not int(names[0].stem):
            return cls([]).followed_by(commits)
        checkpoint, actions = last_checkpoint(table / "_delta_log")
        log = cls([], start=checkpoint + 1)
        for action in actions:
            log._apply(action)
        return log.followed_by([c for p, c in zip(names, commits, strict=True) if int(p.stem) > checkpoint])

    def followed_by(self, commits: list[list[Action]]) -> DeltaTableLog:
        """The log with more commits at its end."""
        log = replace(self, commits=[*self.commits, *commits], domains=dict(self.domains), files=dict(self.files))
        for commit in commits:
            for action in commit:
                log._apply(action)
        return log

    def _apply(self, action: Action) -> None:
        match action:
            case {"protocol": protocol}:
                self.protocol = protocol
            case {"metaData": metadata}:
                self.metadata = metadata
            case {"domainMetadata": domain}:
                self.domains[domain["domain"]] = "" if domain["removed"] else domain["configuration"]
            case {"add": add}:
                self.files[file_key(add)] = add
            case {"remove": remove}:
                self.files.pop(file_key(remove), None)

    @property
    def version(self) -> int:
        return self.start + len(self.commits) - 1

    def commits_since(self, version: int) -> list[list[Action]]:
        """The commits after a version."""
        return self.commits[version + 1 - self.start :]

    def actions(self, kind: str, *, since: int) -> list[Action]:
        """The actions of one kind in the commits after version ``since``."""
        return [action[kind] for commit in self.commits_since(since) for action in commit if kind in action]

    @property
    def schema(self) -> Action:
        return json.loads(self.metadata["schemaString"])

    def enabled(self, table_property: str) -> bool:
        return self.metadata["configuration"].get(table_property, "false") == "true"

    @property
    def row_count(self) -> int | None:
        """The rows by the files' statistics; None if a file has none."""
        return self.row_count_of(self.files)

    def row_count_of(self, files: Collection[FileKey]) -> int | None:
        """The rows of these files by their statistics; None if one has none."""
        count = 0
        for key in files:
            add = self.files[key]
            stats = statistics_of(add)
            if stats.get("numRecords") is None:
                return None
            count += stats["numRecords"] - (add.get("deletionVector") or {}).get("cardinality", 0)
        return count


def _action(line: str) -> Action:
    """An action, without those kinds that its line names but are null."""
    return {kind: action for kind, action in json.loads(line).items() if action is not None}


def statistics_of(action: Action, **options: Any) -> Action:
    """The statistics of a file; none where its text is no JSON, or that of no object.

    :param options: of ``json.loads``.
    """
    try:
        statistics = json.loads(action.get("stats") or "{}", **options)
    except ValueError:
        return {}
    return statistics if isinstance(statistics, dict) else {}


def file_key(action: Action) -> FileKey:
    """What tells a file of an add or remove action from all others."""
    vector = action.get("deletionVector") or {}
    return action["path"], f"{vector.get('pathOrInlineDv', '')}@{vector.get('offset', '')}"


def files_in(folder: Path) -> set[str]:
    """Every file and folder beneath ``folder``, to tell whether something was left behind."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def edit_log(table: Path, edits: Iterable[tuple[str, str]]) -> None:
    """Replace texts in all commits of a table, and drop the checksums that would tell.

    :raises ValueError: when a text isn't there.
    """
    log = table / "_delta_log"
    commits = {path: path.read_text("utf-8") for path in log.glob("*.json")}
    for old, new in edits:
        if not any(old in text for text in commits.values()):
            raise ValueError(f"no commit says {old}")
        commits = {path: text.replace(old, new) for path, text in commits.items()}
    for checksum in [*log.glob("*.crc"), *log.glob(".*.crc")]:
        checksum.unlink(missing_ok=True)
    for path, text in commits.items():
        path.write_text(text, "utf-8")
