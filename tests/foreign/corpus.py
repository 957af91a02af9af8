"""Tables that other writers made, as archives beside this file: see README.md there.

``make foreign`` makes them anew.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.foreign.rows import NEW, VALUES, literal

TABLES = Path(__file__).parent / "tables"
MANIFEST = TABLES / "manifest.json"
#: Archives of tables by further writers, which ``make foreign`` doesn't make.
OTHERS = Path(__file__).parent / "others"


@dataclass(frozen=True)
class Column:
    """A column of a table of the corpus.

    :param name: its name in the table; of a field in a struct the path.
    :param type: its type in Spark's SQL.
    :param values: whose values of :mod:`tests.foreign.rows` it has; "" if others.
    """

    name: str
    type: str
    values: str

    @property
    def sql(self) -> str:
        """The name, quoted."""
        return "`" + self.name.replace("`", "``") + "`"

    @property
    def held(self) -> list[str]:
        """SQL literals of the twelve values that are in the table."""
        return [literal(value, self.type) for value in VALUES[self.values]]

    @property
    def new(self) -> list[str]:
        """SQL literals of values that are not."""
        return [literal(value, self.type) for value in NEW[self.values]]


@dataclass(frozen=True)
class ForeignTable:
    """A table of the corpus.

    :param name: its archive's name, without ``.tar.xz``.
    :param writer: who wrote it, with the version.
    :param odd: what is odd about it.
    :param columns: its columns.
    :param partitioned_by: the columns that partition it.
    :param rows: which of the twelve values of each column it has.
    :param fails: the error condition with which the built-in refuses to merge into it, or "".
    """

    name: str
    writer: str
    odd: str
    columns: tuple[Column, ...]
    partitioned_by: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    fails: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def keys(self) -> list[Column]:
        """The columns that can be merged on."""
        return [column for column in self.columns if column.values]


@cache
def foreign_tables() -> dict[str, ForeignTable]:
    """The tables of the corpus, by name."""
    entries = json.loads(MANIFEST.read_text("utf-8"))
    return {entry["name"]: _table_of(entry) for entry in entries}


def _table_of(entry: dict[str, Any]) -> ForeignTable:
    columns = tuple(Column(**column) for column in entry["columns"])
    lists = {name: tuple(entry[name]) for name in ("partitioned_by", "rows")}
    return ForeignTable(**{**entry, **lists, "columns": columns})


def write_manifest(tables: dict[str, ForeignTable]) -> None:
    """Write down what the archives hold, ordered by name."""
    entries = ",\n".join(json.dumps(asdict(tables[name]), ensure_ascii=False) for name in sorted(tables))
    MANIFEST.write_text(f"[\n{entries}\n]\n", "utf-8")


def other_tables() -> list[str]:
    """The names of the tables by further writers."""
    return sorted(path.name.removesuffix(".tar.xz") for path in OTHERS.glob("*.tar.xz"))


def unpack(name: str, folder: Path) -> None:
    """Put a table of the corpus into ``folder``.

    A table whose log has absolute paths says ``{table}`` for its folder there. Its files are as new as if it had just
    been written: commits from 1970 Delta would clear away when it next makes a checkpoint.
    """
    file = f"{name}.tar.xz"
    with tarfile.open(OTHERS / file if (OTHERS / file).exists() else TABLES / file) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        os.utime(path)
    for commit in (folder / "_delta_log").glob("*.json"):
        text = commit.read_text("utf-8")
        if "{table}" in text:
            commit.write_text(text.replace("{table}", str(folder)), "utf-8")


def pack(folder: Path, name: str) -> int:
    """Make the archive of a table: the same bytes for the same files. Returns its size in bytes."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _files(folder):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)
    packed = lzma.compress(content.getvalue(), preset=9)
    (TABLES / f"{name}.tar.xz").write_bytes(packed)
    return len(packed)


def _files(folder: Path) -> Iterator[Path]:
    """What belongs to a table: no checksums, which Hadoop's local file system leaves beside each file."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not _is_local_checksum(path))


def _is_local_checksum(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".crc")
