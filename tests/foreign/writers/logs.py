"""Logs written by hand. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.foreign.rows import TYPES

NAMES = {"INT": "integer", "BIGINT": "long"}
TIME = 1700000000000


def commit(table: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions)
    (log / f"{version:020}.json").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def created(
    names: Sequence[str],
    *,
    by: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    configuration: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The first commit of a table with these columns and ``note``."""
    fields = [
        {
            "name": (rename or {}).get(name, name),
            "type": NAMES.get(kind := TYPES.get(name, "STRING"), kind.lower()),
            "nullable": True,
            "metadata": {},
        }
        for name in (*names, "note")
    ]
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if "at_ntz" in names:
        features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    metadata = {
        "id": "11111111-2222-3333-4444-555555555555",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False),
        "partitionColumns": list(by),
        "configuration": dict(configuration or {}),
        "createdTime": TIME,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def create(table: Path, names: Sequence[str], **options: Any) -> None:
    """An empty table."""
    commit(table, 0, created(names, **options))
