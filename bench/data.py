"""Tables and sources, made deterministically by Spark, kept as templates and copied for each run."""

from __future__ import annotations

import hashlib
import math
import shutil
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: From this many files on, a write task makes many files instead of one: starting a task costs more than a small file.
_FILES_BY_RECORDS = 200
_TASKS_OF_MANY_FILES = 8


@dataclass(frozen=True)
class Table:
    """How a target is made; its rows are a function of ``id`` from 0 to ``rows`` - 1, written in that order.

    :param name: a short name, part of the template's folder.
    :param columns: SQL expressions over ``id``; ``{rows}`` stands for the number of rows.
    :param rows: how many rows at scale 1.
    :param files: how many files at any scale.
    :param scales: whether ``rows`` grows and shrinks with the scale.
    :param properties: table properties.
    :param layout: ``PARTITIONED BY (…)`` or ``CLUSTER BY (…)``.
    :param then: a statement run on the table after it was filled; ``{table}`` and ``{rows}`` are replaced.
    :param made_by: makes the rows in place of ``columns``: called with the session, the number of rows (about as
        many will do) and a folder for files that must stay until the table is written.
    """

    name: str
    columns: tuple[str, ...] = ()
    rows: int = 4_000_000
    files: int = 40
    scales: bool = True
    properties: tuple[tuple[str, str], ...] = ()
    layout: str = ""
    then: str = ""
    made_by: Callable[[SparkSession, int, Path], DataFrame] | None = field(default=None, repr=False)

    def with_properties(self, **properties: str) -> Table:
        """The same table with further properties, named without ``delta.``."""
        more = tuple((f"delta.{name}", value) for name, value in properties.items())
        return replace(self, properties=(*self.properties, *more))

    def rows_at(self, scale: float) -> int:
        """Rows at a scale: at least ten a file, so that no file is empty."""
        return max(10 * self.files, round(self.rows * scale)) if self.scales else self.rows


class Templates:
    """The tables and sources of one scale, made when they are first asked for and then kept.

    :param spark: the session that makes them.
    :param home: the folder that keeps them.
    :param scale: factor on each table's number of rows.
    """

    def __init__(self, spark: SparkSession, home: Path, scale: float) -> None:
        self._spark = spark
        self._home = home / f"{scale:g}"
        self.scale = scale

    def target(self, table: Table) -> Path:
        """The folder of a template table; nobody may write into it."""
        folder = self._home / f"{table.name}-{digest(repr(table))}"
        return made_once(folder / "target", lambda path: self._make_table(table, path))

    def source(self, table: Table, query: str) -> Path:
        """The Parquet folder of a source.

        :param query: a SELECT over the template; ``{table}``, ``{rows}`` and ``{rows_per_file}`` are replaced.
        """
        target = self.target(table)
        rows = table.rows_at(self.scale)
        text = query.format(table=f"delta.`{target}`", rows=rows, rows_per_file=math.ceil(rows / table.files))
        folder = target.parent / "sources" / f"{digest(query)}.parquet"
        return made_once(folder, lambda path: self.write_source(text, path))

    def write_source(self, query: str, path: Path) -> None:
        """Write a query's rows in few files, as an upstream job would; each of them is worth a task."""
        self._spark.sql(query).coalesce(2).write.parquet(str(path))

    def _make_table(self, table: Table, path: Path) -> None:
        rows = table.rows_at(self.scale)
        raw = path.with_name(f"{path.name}.raw")
        frame = table.made_by(self._spark, rows, raw) if table.made_by else self._generated(table, rows)
        view = f"rows_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(view)
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in table.properties)
        many = table.files >= _FILES_BY_RECORDS
        try:
            if many:
                self._spark.conf.set("spark.sql.files.maxRecordsPerFile", math.ceil(rows / table.files))
            self._spark.sql(
                f"CREATE TABLE delta.`{path}` USING delta {table.layout} "
                f"{f'TBLPROPERTIES ({properties})' if properties else ''} AS SELECT * FROM {view}"
            )
        finally:
            self._spark.conf.unset("spark.sql.files.maxRecordsPerFile")
            self._spark.catalog.dropTempView(view)
            shutil.rmtree(raw, ignore_errors=True)
        if table.then:
            self._spark.sql(table.then.format(table=f"delta.`{path}`", rows=rows))

    def _generated(self, table: Table, rows: int) -> DataFrame:
        tasks = _TASKS_OF_MANY_FILES if table.files >= _FILES_BY_RECORDS else table.files
        columns = [column.format(rows=rows) for column in table.columns]
        return self._spark.range(0, rows, 1, tasks).selectExpr(*columns)


def copy_table(template: Path, path: Path) -> None:
    """Copy a table: data files as hard links (they never change), the log for real (commits are added to it)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-al", str(template), str(path)], check=True)
    shutil.rmtree(path / "_delta_log")
    shutil.copytree(template / "_delta_log", path / "_delta_log")


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made under another name first so that half of it is never taken for the whole."""
    if not folder.exists():
        unfinished = folder.with_name(f".{uuid.uuid4().hex}")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        try:
            make(unfinished)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def digest(text: str) -> str:
    """A short name for what a text describes."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]
