"""Tables merged for real, each of which gives rise to one piece of advice; and their merges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.config import (
    MergeConfig,
    when_matched_delete,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity, application_id
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.engine import merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Of these rows 1 % is about 30 kB in Parquet: enough columns for files whose rewrite is worth a thought.
ROWS = 200_000
UPSERT = (when_matched_update_all(), when_not_matched_insert_all())


@dataclass
class MergedTable:
    """A table and what each of its merges returned, the oldest first.

    :param path: the table's folder.
    """

    path: Path
    results: list[MergeResult]

    def merge(self, spark: SparkSession, source: str, *, run: int, **config: Any) -> MergeResult:
        """Merge as a task of a DAG named for the table would, in its run number ``run``."""
        task = {"dag_id": self.path.name, "task_id": "merge", "run_id": f"scheduled__2026-01-{run:02}"}
        identity = MergeIdentity(
            application_id=application_id(**task), generation=run, task_instance=TaskInstanceIdentity(**task)
        )
        said = {"on": ["id"], "clauses": UPSERT, **config}
        result = merge(spark, MergeConfig(target=str(self.path), source=source, **said), identity=identity)
        self.results.append(result)
        return result


def rows(first: int, end: int, step: int = 1, said: str = "old") -> str:
    """A query of rows whose texts don't compress well."""
    return (
        f"SELECT id, sha2(concat('{said}', id), 256) AS name, DATE'2026-01-01' + CAST(id % 3 AS INT) AS day "
        f"FROM range({first}, {end}, {step})"
    )


def written(data: DataFrame, path: Path, *partition_by: str, **properties: str) -> MergedTable:
    """A new table of these rows."""
    writer = data.write.format("delta").partitionBy(*partition_by)
    for name, value in properties.items():
        writer = writer.option(f"delta.{name}", value)
    writer.save(str(path))
    return MergedTable(path, [])


def accounts(spark: SparkSession, folder: Path, **properties: str) -> MergedTable:
    """Four files of 50,000 rows each; three merges that update ten rows in each of them, and one that deletes, too."""
    table = written(spark.sql(rows(0, ROWS)).repartitionByRange(4, "id"), folder, **properties)
    for run in (1, 2, 3):
        table.merge(spark, rows(run, ROWS, ROWS // 40, said=f"run {run}"), run=run)
    closed = (when_matched_delete(condition="source.id % 2 = 0"), *UPSERT)
    table.merge(spark, rows(ROWS - 10, ROWS + 10, said="closed"), run=4, clauses=closed)
    return table


def events(spark: SparkSession, folder: Path) -> MergedTable:
    """120 small files, each with rows from all over; three merges of two rows each."""
    table = written(spark.sql(rows(0, 2400)).repartition(120), folder)
    for run in (1, 2, 3):
        table.merge(spark, rows(1000 * run - 900, 1000 * run - 898, said=f"run {run}"), run=run)
    return table


def visits(spark: SparkSession, folder: Path) -> MergedTable:
    """Three days, of four files each, and three merges of a row of one day by a key that says nothing of the day."""
    table = written(spark.sql(rows(0, 2400)).repartition(4), folder, "day")
    for run in (1, 2, 3):
        table.merge(spark, rows(300 * run, 300 * run + 1, said=f"run {run}"), run=run)
    return table


def stock(spark: SparkSession, folder: Path) -> MergedTable:
    """The same source merged four times, as if its file had not been replaced."""
    table = written(spark.sql(rows(0, 2400)).repartitionByRange(2, "id"), folder)
    for run in (1, 2, 3, 4):
        table.merge(spark, rows(2000, 2500, said="delivered"), run=run)
    return table
