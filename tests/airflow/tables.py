"""Delta tables for tests, made and read without Spark: an empty table is two lines of its log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

COLUMNS = {"id": "long", "name": "string"}


def create_table(path: Path, columns: Mapping[str, str] = COLUMNS) -> Path:
    """Create an empty Delta table whose columns are given by name and type."""
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in columns.items()]
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def commit(path: Path, operation: str = "WRITE") -> None:
    """Add a commit that says what it did, and does nothing."""
    version = versions(path)[-1] + 1
    said = {"commitInfo": {"timestamp": version, "operation": operation, "operationParameters": {}}}
    (path / "_delta_log" / f"{version:020}.json").write_text(json.dumps(said) + "\n")


def versions(path: Path) -> list[int]:
    """The versions that the table's log has."""
    return sorted(int(file.stem) for file in (path / "_delta_log").glob("*.json"))


def operations(path: Path) -> list[str]:
    """The operation of each commit that says one, in order."""
    return [action["commitInfo"]["operation"] for action in actions(path) if "commitInfo" in action]


def count_rows(path: Path) -> int:
    """The rows of the table, by its files' statistics."""
    return sum(json.loads(file["stats"])["numRecords"] for file in files(path).values())


def files(path: Path) -> dict[str, dict[str, Any]]:
    """What the log says of each data file that is in the table, by the file's path in it."""
    found: dict[str, dict[str, Any]] = {}
    for action in actions(path):
        if "add" in action:
            found[action["add"]["path"]] = action["add"]
        elif "remove" in action:
            found.pop(action["remove"]["path"], None)
    return found


def actions(path: Path) -> Iterator[dict[str, Any]]:
    """All actions of the table's log, in order."""
    for file in sorted((path / "_delta_log").glob("*.json")):
        with file.open(encoding="utf-8") as lines:  # splitlines() would split at more than line feeds
            yield from map(json.loads, lines)
