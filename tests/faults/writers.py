"""Concurrent writers on a table, threads of one Spark: ``python -m tests.faults.writers TABLE FIRST COUNT MERGES``.

Each writer counts up its own row (in a partition that nobody else changes) and a row of all writers, by turns.
Properties of Spark may come as JSON in the environment variable ``SPARK_PROPERTIES``.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta_merge import engine
from airflow_delta_merge.config import MergeConfig, when_matched_update, when_not_matched_insert_all
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.runtime.jars import delta_jars
from tests.conftest import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED = "shared"


def merges_of(spark: SparkSession, table: Path | str, writer: str, merges: int) -> list[MergeResult]:
    """All merges of one writer, one after the other."""
    return [_merge(spark, table, writer, SHARED if number % 2 else writer, number) for number in range(merges)]


def _merge(spark: SparkSession, table: Path | str, writer: str, row: str, number: int) -> MergeResult:
    config = MergeConfig(
        target=str(table),
        source=f"SELECT '{row}' AS part, '{row}' AS id, 1L AS n",
        on=f"target.id = source.id AND target.part = '{row}'",
        clauses=[when_matched_update(set={"n": "target.n + source.n"}), when_not_matched_insert_all()],
    )
    identity = MergeIdentity(application_id=writer, generation=number)
    return engine.merge(spark, config, identity=identity, max_commit_attempts=100)


def run(spark: SparkSession, table: Path | str, writers: list[str], merges: int) -> dict[str, list[MergeResult]]:
    """Let writers run at the same time, each in a session of its own; their results."""
    with ThreadPoolExecutor(len(writers)) as pool:
        started = {name: pool.submit(merges_of, spark.newSession(), table, name, merges) for name in writers}
        return {name: future.result() for name, future in started.items()}


def main(table: str, first: str, count: str, merges: str) -> None:
    from pyspark.sql import SparkSession

    properties = {"spark.jars": ",".join(delta_jars()), **json.loads(os.environ.get("SPARK_PROPERTIES", "{}"))}
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**SESSION_SETTINGS, **properties}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    names = [f"writer {number}" for number in range(int(first), int(first) + int(count))]
    results = run(spark, table, names, int(merges))
    attempts = [result.num_commit_attempts for of_writer in results.values() for result in of_writer]
    print(f"{len(attempts)} merges by {count} writers took {sum(attempts)} attempts, at most {max(attempts)} for one")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
