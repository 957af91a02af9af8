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
    rows: dict[str, int] = {}
    for action in actions(path):
        if "add" in action:
            rows[action["add"]["path"]] = json.loads(action["add"]["stats"])["numRecords"]
        elif "remove" in action:
            rows.pop(action["remove"]["path"], None)
    return sum(rows.values())


def actions(path: Path) -> Iterator[dict[str, Any]]:
    """All actions of the table's log, in order."""
    for file in sorted((path / "_delta_log").glob("*.json")):
        with file.open(encoding="utf-8") as lines:  # splitlines() would split at more than line feeds
            yield from map(json.loads, lines)
