"""The physical floor: the bytes that a merge cannot do without, moved once, and nothing else."""

from __future__ import annotations

import json
import shutil
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

    marked: tuple[Path, ...]
    written: tuple[Path, ...]
    vectors: tuple[Path, ...]


class Floor(Contestant):
    """Reads the source and the rows of the new files once, and writes these once, by Delta's writer.

    Where the merge makes deletion vectors, it reads the marked files' key columns and copies the vectors. Which files
    these are is learnt beforehand from a merge by ours, which touches exactly the files that hold a changed row.

    :param home: a folder of its own.
    """

    name = "floor"
    merges = False

    def __init__(self, home: Path) -> None:
        self._home = home
        self._case = ""
        self._bytes = Bytes((), (), ())

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        if run.case.name == self._case:
            return
        from airflow_delta_merge.engine import merge_sql

        shutil.rmtree(self._home, ignore_errors=True)
        merged = self._home / "merged"
        copy_table(run.target, merged)
        before = _last_version(merged)
        merge_sql(run.spark, run.case.statement(merged, run.source))
        self._bytes = bytes_of_commit(merged) if _last_version(merged) > before else Bytes((), (), ())
        self._case = run.case.name

    def merge(self, run: Run) -> Facts:
        spark, known = run.spark, self._bytes
        spark.read.parquet(str(run.source)).write.format("noop").mode("overwrite").save()
        if known.marked:
            marked = spark.read.option("basePath", str(run.target)).parquet(
                *(str(run.target / path) for path in known.marked)
            )
            marked.select(*run.case.key_columns).write.format("noop").mode("overwrite").save()
        merged = self._home / "merged"
        if known.written:
            rows = spark.read.option("basePath", str(merged)).parquet(*(str(merged / path) for path in known.written))
            rows.write.format("delta").mode("append").save(str(run.target))
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
    vectors = {_vector_name(add["deletionVector"]) for add in marked if add["deletionVector"]["storageType"] == "u"}
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
    import uuid

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
