"""A Delta log read as what it is, lines of JSON: quick, and no engine's opinion on it.

Knows no checkpoints, which tables of fewer than ten commits don't have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Action = dict[str, Any]
#: A data file's path and its deletion vector.
FileKey = tuple[str, str]


@dataclass
class DeltaTableLog:
    """The commits of a table and the state that they add up to."""

    commits: list[list[Action]]
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    files: dict[FileKey, Action] = field(default_factory=dict)

    @classmethod
    def read(cls, table: Path) -> DeltaTableLog:
        names = sorted(p for p in (table / "_delta_log").glob("*.json") if p.stem.isdigit())
        commits = [[json.loads(line) for line in p.read_text("utf-8").splitlines() if line] for p in names]
        log = cls(commits)
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
                self.files[_file_key(add)] = add
            case {"remove": remove}:
                self.files.pop(_file_key(remove), None)

    @property
    def version(self) -> int:
        return len(self.commits) - 1

    def actions(self, kind: str, *, since: int) -> list[Action]:
        """The actions of one kind in the commits after version ``since``."""
        return [action[kind] for commit in self.commits[since + 1 :] for action in commit if kind in action]

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
            stats = json.loads(add.get("stats") or "{}")
            if "numRecords" not in stats:
                return None
            count += stats["numRecords"] - (add.get("deletionVector") or {}).get("cardinality", 0)
        return count


def _file_key(action: Action) -> FileKey:
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
