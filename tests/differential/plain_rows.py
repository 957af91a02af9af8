"""Rows read straight from the Parquet files of a table, without Spark: a hundred times quicker for tiny tables."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.differential.delta_log import Action, DeltaTableLog, FileKey

# The digits of Z85, in which the log writes deletion vectors' names, and those of Python's base 85.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_PORTABLE_BITMAP = 1681511377  # what the serialized bitmap of a deletion vector begins with


def can_read_plainly(log: DeltaTableLog) -> bool:
    """Whether the files alone tell the rows: no row ids to look at, no mapped names inside structs, none by writers
    whose calendars, paths or partition values only Spark reads as it should."""
    if log.start or any("Apache-Spark/4" not in _engine(commit) for commit in log.commits):
        return False
    if log.enabled("delta.enableRowTracking") or "typeWidening" in json.dumps(log.protocol):
        return False
    mapped = log.metadata["configuration"].get("delta.columnMapping.mode", "none") != "none"
    return not mapped or all(isinstance(column["type"], str) for column in log.schema["fields"])


def _engine(commit: list[Action]) -> str:
    return next((action["commitInfo"].get("engineInfo", "") for action in commit if "commitInfo" in action), "")


def read_plainly(
    table: Path, log: DeltaTableLog, *, skip: Collection[FileKey], without: tuple[str, ...]
) -> Counter[str]:
    """The rows as a bag, each as a text that tells all of it. Partition values are the log's texts.

    :param skip: files to leave out.
    :param without: columns to leave out.
    """
    bag: Counter[str] = Counter()
    names = _physical_names(log, without)
    for key, add in log.files.items():
        if key in skip:
            continue
        deleted = _deleted_positions(table, add.get("deletionVector"))
        bag.update(repr(row) for i, row in enumerate(_rows(table, add, names)) if i not in deleted)
    return bag


def read_changes_plainly(
    table: Path, log: DeltaTableLog, *, since: int, without: tuple[str, ...]
) -> Counter[str] | None:
    """The rows of the change data feed after version ``since``, as :func:`read_plainly` gives rows, each with its
    change type; None where they are to be found by comparing files.

    Commits with change files have all their changes there; without, added files are inserts.
    """
    change_files = log.actions("cdc", since=since)
    if not change_files and log.actions("remove", since=since):
        return None
    bag: Counter[str] = Counter()
    names = _physical_names(log, without)
    for file in change_files:
        bag.update(repr(row) for row in _rows(table, file, [*names, "_change_type"]))
    if not change_files:
        for file in log.actions("add", since=since):
            bag.update(repr((*row, "insert")) for row in _rows(table, file, names))
    return bag


def _physical_names(log: DeltaTableLog, without: tuple[str, ...]) -> list[str]:
    columns = [column for column in log.schema["fields"] if column["name"] not in without]
    return [column["metadata"].get("delta.columnMapping.physicalName", column["name"]) for column in columns]


def _rows(table: Path, file: Action, names: list[str]) -> Iterator[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(table / unquote(file["path"]), coerce_int96_timestamp_unit="us")
    columns = parquet.read().to_pydict()
    count = parquet.metadata.num_rows
    columns |= {name: [f"partition {value}"] * count for name, value in file["partitionValues"].items()}
    nothing = [None] * count
    return zip(*(columns.get(name, nothing) for name in names), strict=True)


def _deleted_positions(table: Path, vector: Action | None) -> Collection[int]:
    """The rows that a deletion vector marks, as the Delta protocol says it is kept."""
    if vector is None:
        return ()
    from pyroaring import BitMap64

    assert vector["storageType"] == "u", "merges write deletion vectors into files of the table"
    name = vector["pathOrInlineDv"]
    token = uuid.UUID(bytes=base64.b85decode(name[-20:].encode().translate(bytes.maketrans(_Z85, _B85))))
    content = (table / name[:-20] / f"deletion_vector_{token}.bin").read_bytes()
    start = vector.get("offset", 1)
    size, magic = struct.unpack(">i", content[start : start + 4])[0], struct.unpack_from("<i", content, start + 4)[0]
    assert (size, magic) == (vector["sizeInBytes"], _PORTABLE_BITMAP)
    positions = BitMap64.deserialize(content[start + 8 : start + 4 + size])
    assert len(positions) == vector["cardinality"]
    return positions
