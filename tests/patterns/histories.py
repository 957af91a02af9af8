"""Merges by a pattern, one after the other, into a table that starts empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow_delta_merge import engine
from airflow_delta_merge.patterns import Pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult

Row = tuple[Any, ...]


@dataclass
class History:
    """A Delta table and the pattern that merges into it.

    :param columns: of the source, as in ``CREATE TABLE``.
    """

    spark: SparkSession
    path: Path
    pattern: Pattern
    columns: str

    def merge(self, rows: Iterable[Row], **options: Any) -> MergeResult:
        """Merge rows, given in the order of the source's columns."""
        from pyspark.sql.types import StructType

        self.spark.createDataFrame(list(rows), StructType.fromDDL(self.columns)).createOrReplaceTempView("batch")
        config = self.pattern.to_config(target=str(self.path), source="batch", **options)
        return engine.merge(self.spark, config)

    def rows(self, *columns: str) -> list[Row]:
        """The table's rows in order, without Spark."""
        from deltalake import DeltaTable

        table = DeltaTable(str(self.path)).to_pyarrow_table(columns=list(columns)).to_pylist()
        return sorted((tuple(row[name] for name in columns) for row in table), key=repr)


@contextmanager
def history(spark: SparkSession, pattern: Pattern, *, source: str, target: str) -> Iterator[History]:
    """A new, empty table; columns as in ``CREATE TABLE``."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        spark.sql(f"CREATE TABLE delta.`{path}` ({target}) USING delta")
        yield History(spark, path, pattern, source)
