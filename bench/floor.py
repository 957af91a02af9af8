"""The physical floor: the bytes that a merge cannot do without, moved once, and nothing else."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bench.contestants import Contestant, Facts, Run
from bench.data import copy_table


@dataclass(frozen=True)
class Bytes:
    """What a merge read and wrote, by its commit.

    :param marked: files that got a deletion vector; only their key columns had to be read.
    :param written: new files. Their rows stand for the touched files' rows and the source's new ones.
    :param vectors: files with deletion vectors.
    """

    marked: tuple[Path, ...] = ()
    written: tuple[Path, ...] = ()
    vectors: tuple[Path, ...] = ()


class Floor(Contestant):
    """Reads the source and the rows of the new files once, and writes these once, by Delta's writer.

    Where the merge makes deletion vectors, it reads the marked files' key columns and copies the vectors. Which files
    these are it learns from the first run of ours, which touches exactly the files that hold a changed row.

    :param home: a folder of its own.
    """

    name = "floor"
    merges = False

    def __init__(self, home: Path) -> None:
        self._merged = home / "merged"
        self._case = ""
        self._bytes: Bytes | None = None
        self._columns: list[str] = []

    def watch(self, name: str, run: Run) -> None:
        if name == "ours" and run.case.name != self._case:
            shutil.rmtree(self._merged, ignore_errors=True)
            copy_table(run.target, self._merged)
            self._case, self._bytes = run.case.name, None

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        if run.case.name != self._case:
            raise RuntimeError("ours did not merge, so it is not known which files are touched")
        if self._bytes is None:
            committed = _last_version(self._merged) > _last_version(run.target)
            self._bytes = bytes_of_commit(self._merged) if committed else Bytes()
            # With the change data feed files have a column of Delta's own besides.
            self._columns = run.spark.read.format("delta").load(str(run.target)).columns

    def merge(self, run: Run) -> Facts:
        spark, merged, known = run.spark, self._merged, self._bytes
        assert known is not None, "prepare comes first"
        spark.read.parquet(str(run.source)).write.format("noop").mode("overwrite").save()
        if known.marked:
            marked = spark.read.option("basePath", str(run.target)).parquet(
                *(str(run.target / path) for path in known.marked)
            )
            marked.select(*run.case.key_columns).write.format("noop").mode("overwrite").save()
        if known.written:
            rows = spark.read.option("basePath", str(merged)).parquet(*(str(merged / path) for path in known.written))
            rows.select(*self._columns).write.format("delta").mode("append").save(str(run.target))
        for path in known.vectors:
            shutil.copy(merged / path, run.scratch)
        return Facts({"marked_files": len(known.marked), "written_files": len(known.written)})


def bytes_of_commit(table: Path) -> Bytes:
    """What the last commit of a table read and wrote, with paths relative to the table."""
    text = (table / "_delta_log" / f"{_last_version(table):020}.json").read_text(encoding="utf-8")
    actions = [json.loads(line) for line in text.splitlines()]
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    added = [action["add"] for action in actions if "add" in action]
    marked = [add for add in added if add["path"] in removed]
    vectors = {
        _vector_name(add["deletionVector"]) for add in marked if add.get("deletionVector", {}).get("storageType") == "u"
    }
    return Bytes(
        marked=tuple(Path(unquote(add["path"])) for add in marked),
        written=tuple(Path(unquote(add["path"])) for add in added if add["path"] not in removed),
        vectors=tuple(path.relative_to(table) for path in table.rglob("*.bin") if path.name in vectors),
    )


def _vector_name(descriptor: dict[str, Any]) -> str:
    """The file of a deletion vector: its UUID is written in Z85 by its last twenty characters, after a prefix."""
    return f"deletion_vector_{_uuid_of_z85(descriptor['pathOrInlineDv'][-20:])}.bin"


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _uuid_of_z85(text: str) -> str:
    words = (text[start : start + 5] for start in range(0, 20, 5))
    numbers = []
    for word in words:
        number = 0
        for character in word:
            number = number * 85 + _Z85.index(character)
        numbers.append(number)
    return str(uuid.UUID(bytes=b"".join(number.to_bytes(4, "big") for number in numbers)))


def _last_version(table: Path) -> int:
    return max(int(path.stem) for path in (table / "_delta_log").glob("*.json"))
