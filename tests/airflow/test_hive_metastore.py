"""Merges by name through a Hive metastore: a real one, with its database (Derby) within each application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.runtime.jars import delta_jars
from tests.airflow import tables
from tests.airflow.conftest import SPARK

pytestmark = pytest.mark.slow

#: An application of the user's own: runs statements and prints the rows of the last one.
APPLICATION = """
import json, sys
from pyspark.sql import SparkSession
settings, statements = json.loads(sys.stdin.read())
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for statement in statements:
    rows = [row.asDict() for row in spark.sql(statement).collect()]
print(json.dumps(rows))
"""
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.jars": ",".join(delta_jars()),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def metastore(lake: Path) -> dict[str, str]:
    """The settings that a user gives for it."""
    return {
        **SPARK,
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(lake / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={lake}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }


@pytest.fixture(scope="module")
def run(lake: Path, metastore: dict[str, str]) -> Callable[..., list[dict[str, Any]]]:
    def run_statements(*statements: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-c", APPLICATION],
            input=json.dumps([{**metastore, **DELTA}, statements]),
            env={**os.environ, "SPARK_SUBMIT_OPTS": f"-Dderby.system.home={lake}"},
            cwd=lake,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return rows

    run_statements(
        "CREATE DATABASE sales",
        "CREATE TABLE sales.managed (id INT, name STRING) USING delta",
        "INSERT INTO sales.managed VALUES (1, 'ada'), (2, 'bob')",
        f"CREATE TABLE sales.external (id INT, name STRING) USING delta LOCATION '{lake}/outside'",
        "INSERT INTO sales.external VALUES (1, 'ada'), (2, 'bob')",
        # Hive's own kind of table, which Spark reads by the metastore's description of it.
        "CREATE TABLE sales.changes (id INT, name STRING) STORED AS PARQUET",
        "INSERT INTO sales.changes VALUES (2, 'BOB'), (3, 'cid')",
    )
    return run_statements


def merged(metastore: dict[str, str], target: str, **arguments: Any) -> MergeResult:
    config = MergeConfig(
        target=target,
        source="sales.changes",
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
        **arguments,
    )
    return DeltaMergeHook(conf=metastore).merge(config)


@pytest.mark.parametrize(
    ("target", "place"),
    [("sales.managed", "warehouse/sales.db/managed"), ("spark_catalog.sales.external", "outside")],
)
def test_a_managed_and_an_external_table(
    run: Callable[..., list[dict[str, Any]]], metastore: dict[str, str], lake: Path, target: str, place: str
) -> None:
    result = merged(metastore, target)
    assert (result.version, result.num_updated_rows, result.num_inserted_rows) == (2, 1, 1)
    assert tables.versions(lake / place) == [0, 1, 2]
    rows = run(f"SELECT * FROM {target} ORDER BY id")
    assert [row["name"] for row in rows] == ["ada", "BOB", "cid"]


def test_a_table_that_the_merge_makes_is_in_the_metastore(
    run: Callable[..., list[dict[str, Any]]], metastore: dict[str, str], lake: Path
) -> None:
    result = merged(metastore, "sales.made", create_table=True)
    assert result.num_inserted_rows == 2
    rows = run("SHOW TABLES IN sales")
    assert "made" in [row["tableName"] for row in rows]
    assert tables.versions(lake / "warehouse/sales.db/made") == [0, 1]
