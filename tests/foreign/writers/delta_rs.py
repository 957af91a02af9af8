"""Writes tables by the ``deltalake`` package that is installed, of any version since 0.6.

usage: python delta_rs.py FOLDER TABLE ...: makes FOLDER/TABLE of each; tables are the functions below.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.foreign.rows import FILES, PARTITIONED_FILES, TYPES
from tests.foreign.writers.arrow import arrow_file


def append(path: Path, table: pa.Table, **options: Any) -> None:
    known = inspect.signature(write_deltalake).parameters
    if "overload" in str(known) or "engine" not in known:
        options.pop("engine", None)
    write_deltalake(str(path), table, mode="append", **options)


def writable(**options: Any) -> list[str]:
    """The columns that this version can write at all."""
    names = []
    for name in TYPES:
        folder = Path(tempfile.mkdtemp())
        try:
            for number in range(FILES):
                append(folder / "t", arrow_file(number, [name]), **options)
            names.append(name)
        except BaseException as error:  # panics of Rust are no Exceptions
            print(f"{name} can't be written: {str(error)[:100]}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return names


def all_types(path: Path, **options: Any) -> None:
    names = writable(**options)
    for number in range(FILES):
        append(path, arrow_file(number, names), **options)


def all_types_pyarrow(path: Path) -> None:
    all_types(path, engine="pyarrow")


def all_types_rust(path: Path) -> None:
    all_types(path, engine="rust")


def checkpointed(path: Path) -> None:
    """All in a checkpoint; the commits before are gone, as its cleaning of logs leaves them."""
    names = [name for name in writable() if name != "raw"]  # of which old versions can't make one
    for number in range(FILES):
        append(path, arrow_file(number, names))
    table = DeltaTable(str(path))
    table.create_checkpoint()
    for commit in (path / "_delta_log").glob("*.json"):
        if int(commit.stem) < table.version():
            commit.unlink()


def partitioned(path: Path, by: str) -> None:
    for number in PARTITIONED_FILES.get(by, range(FILES)):
        append(path, arrow_file(number, sorted({"id", "big", "text", by})), partition_by=[by])


def merged(path: Path) -> None:
    """Rows updated, deleted and merged by delta-rs itself, then compacted in part."""
    names = writable()
    for number in range(FILES):
        append(path, arrow_file(number, names))
    table = DeltaTable(str(path))
    table.delete("id = 4")
    table = DeltaTable(str(path))
    table.update(updates={"note": "'updated'"}, predicate="id = 6")


BY_NAME = {
    "all_types": all_types,
    "all_types_pyarrow": all_types_pyarrow,
    "all_types_rust": all_types_rust,
    "checkpointed": checkpointed,
    "merged": merged,
    **{
        "partitioned_" + name: lambda path, name=name: partitioned(path, name)
        for name in ("text", "day", "at", "dec8", "dec38_18", "flag", "real", "at_ntz", "raw", "big")
    },
}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        BY_NAME[name](Path(sys.argv[1]) / name)
    sys.stdout.flush()
    os._exit(0)  # the threads of some versions abort at the end
