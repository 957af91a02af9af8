"""The tables of the cases, built once and kept beside the recordings as archives.

An archive is named by what the table is made of: its statements, the versions of Spark and Delta, and the code below.
A recording holds only for the very files from which it came, so it names the archive's digest, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential.cases import Case, Table
from tests.differential.delta_log import edit_log
from tests.differential.fingerprint import code_of, versions
from tests.differential.session_settings import session_settings
from tests.foreign import corpus
from tests.foreign import damage as damage_module
from tests.foreign.damage import damage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVES = Path(__file__).parent / "oracle" / "tables"
#: A file for each archive that a run with ``keep`` asked for.
ASKED_FOR = Path(__file__).parents[2] / ".cache" / "oracle" / "tables"


@dataclass
class Tables:
    """Gives copies of the cases' tables.

    :param spark: the session that builds a table which has no archive.
    :param home: a folder for tables that are built here.
    :param keep: whether to archive the tables that are built.
    """

    spark: SparkSession
    home: Path
    keep: bool = False
    _built: dict[Table, Path] = field(default_factory=dict)
    _unpacked: dict[Table, Path] = field(default_factory=dict)

    def copy(self, table: Table, path: Path) -> None:
        """Put a copy of the table into the new folder ``path``."""
        if table.archive:
            corpus.unpack(table.archive, path)
            damage(path, table.damage)
        else:
            unpack(self._archive(table), path)

    def prepare(self, case: Case) -> None:
        """Make sure that the case's tables are built, and archived where that is asked for."""
        for table in (case.table, case.source_table):
            if table is not None and not table.archive:
                self._archive(table)

    def shared(self, table: Table) -> Path:
        """The folder of a copy that is only read, as the cases' sources are."""
        if table not in self._unpacked:
            self._unpacked[table] = self.home / f"shared_{len(self._unpacked)}"
            self.copy(table, self._unpacked[table])
        return self._unpacked[table]

    def forget(self, table: Table) -> None:
        """Remove the table that was built here; no further case will use it."""
        if table in self._built:
            self._built.pop(table).unlink()

    def _archive(self, table: Table) -> Path:
        kept = archive_of(table)
        if not self.keep:
            if kept.exists():
                return kept
            if table not in self._built:
                archive = self.home / f"built_{len(self._built)}.tar.xz"
                self._build(table, archive)
                self._built[table] = archive
            return self._built[table]
        for folder in (ARCHIVES, ASKED_FOR):
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(ASKED_FOR / kept.name):  # by the other workers, which may need the same table
            if not kept.exists():
                self._build(table, kept)
        return kept

    def _build(self, table: Table, archive: Path) -> None:
        path = self.home / f"build_{archive.name.split('.')[0]}"
        with session_settings(self.spark, dict(table.confs)):
            for statement in table.statements:
                self.spark.sql(statement.replace("{t}", f"delta.`{path}`")).collect()
        if table.edits:
            edit_log(path, table.edits)
        pack(path, archive)


def drop_archives_not_asked_for() -> None:
    """Remove the archives of tables that no case has any more."""
    for archive in ARCHIVES.glob("*.tar.xz"):
        if not (ASKED_FOR / archive.name).exists():
            archive.unlink()


def identity_of(table: Table) -> list[str]:
    """What tells whether a copy of the table is still the same one."""
    archive = archive_of(table)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest() if archive.exists() else "none"
    return [archive.name, digest, *table.damage, code_of(damage_module.__file__) if table.damage else ""]


def archive_of(table: Table) -> Path:
    """Where the table's archive is, or would be."""
    if table.archive:
        return corpus.TABLES / f"{table.archive}.tar.xz"
    made_of = [table.statements, table.confs, table.edits, versions(), code_of(__file__)]
    return ARCHIVES / f"{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]}.tar.xz"


def pack(folder: Path, archive: Path) -> None:
    """Archive a table; the same files give the same bytes."""
    for file in folder.rglob("*"):
        if file.suffix == ".json" and str(folder) in file.read_text("utf-8"):
            raise ValueError(f"{file} names the folder in which the table was built, so no copy can stand elsewhere")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as tar:
        for file in sorted(folder.rglob("*")):
            member = tarfile.TarInfo(str(file.relative_to(folder)))
            if file.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)
            else:
                member.size = file.stat().st_size
                tar.addfile(member, io.BytesIO(file.read_bytes()))
    unfinished = archive.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(content.getvalue())
    unfinished.rename(archive)


def unpack(archive: Path, folder: Path) -> None:
    """Put the archived table into a new folder. Its files are as old as the copy: Delta reads their age."""
    folder.mkdir(parents=True)
    with tarfile.open(archive, mode="r:xz") as tar:
        for member in tar:
            if member.isdir():
                (folder / member.name).mkdir(parents=True, exist_ok=True)
            else:
                content = tar.extractfile(member)
                assert content is not None
                (folder / member.name).write_bytes(content.read())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
