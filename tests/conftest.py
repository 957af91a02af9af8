"""One Spark session for the whole run (one for each worker of pytest-xdist), and the options of the suite.

Tests that ask for the ``spark`` fixture get the ``spark`` marker, so ``-m "not spark"`` runs without Java.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.differential.harness import Harness

SESSION_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Tables here have a handful of rows: the defaults (200, 50, 32) would only start empty tasks.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    # For an hour Delta keeps the snapshot of every table it met, each with some 1,300 plan nodes of its encoders and
    # queries, and Spark the plans of the last 1,000 executions as texts. A table here is met by one case only.
    "spark.databricks.delta.delta.log.cacheSize": "20",
    "spark.sql.ui.retainedExecutions": "50",
    # Each statement here is new to Spark and has few rows: to compile classes for it takes longer than to run it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

# A differential case takes some seconds of processor time and there are about 1,000: all take more than an hour.
ONE_CASE_IN = 60

JVM_OPTIONS = "-XX:+UseSerialGC"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("delta merge")
    group.addoption(
        "--oracle-only",
        action="store_true",
        help="run the differential cases on the built-in MERGE only, checking that each case does what it says",
    )
    group.addoption(
        "--all-cases",
        action="store_true",
        help=f"run every differential case, by default one in {ONE_CASE_IN}, chosen by its name; and the slow tests",
    )
    group.addoption(
        "--screenshots", action="store_true", help="let the browser tests make the pictures of the docs anew"
    )
    group.addoption("--fuzz-examples", type=int, default=None, help="how many statements the fuzz tests make up")
    group.addoption("--fuzz-seed", type=int, default=None, help="the seed of a fuzz run, to repeat a failure")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs a SparkSession, hence Java")
    config.addinivalue_line("markers", "slow: takes a minute or more, and runs when all cases do or it is named")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    # Somebody who names a test, or asks for some by a word, gets them all.
    chosen = config.option.keyword or any("::" in argument or ".py" in argument for argument in config.args)
    if not (chosen or config.getoption("--all-cases") or config.getoption("--oracle-only")):
        left_out = [item for item in items if _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    """Whether only a run of all cases has time for this test."""
    if item.get_closest_marker("slow"):
        return True
    is_case = "tests/differential/" in item.nodeid and hasattr(item, "callspec")
    return is_case and zlib.crc32(item.nodeid.encode()) % ONE_CASE_IN != 0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with Delta; warehouse and metastore live in a folder of this run."""
    from pyspark.sql import SparkSession

    os.environ["TZ"] = "UTC"  # collect() turns timestamps into local time
    time.tzset()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Python functions of the cases run by this very Python
    home = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("airflow_delta_merge tests")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    builder = (
        builder.config("spark.jars", ",".join(_delta_jars()))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {JVM_OPTIONS}")
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # failing statements are part of the tests
    yield session
    session.stop()


@pytest.fixture(scope="session")
def engines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Harness:
    """``engines.check(case)`` runs a case by the built-in MERGE and by ours and compares all they leave behind."""
    from tests.differential.harness import Harness

    return Harness(spark, tmp_path_factory.mktemp("tables"), oracle_only=request.config.getoption("--oracle-only"))


def _delta_jars() -> list[str]:
    try:
        from airflow_delta_merge.jars import delta_jars
    except ImportError:
        return [str(jar) for jar in sorted(Path("/tmp/jars").glob("*.jar"))]
    return [str(jar) for jar in delta_jars()]
