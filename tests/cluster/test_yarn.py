"""Merges on a YARN of one node: the driver here (client mode), the executors in containers."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.hooks.errors import DeltaMergeException
from tests.airflow import tables
from tests.cluster.standalone import wait_until
from tests.cluster.yarn import SPARK_JARS, Yarn, yarn

ENDLESS = "SELECT id, 'x' AS name FROM range(1000000000000) WHERE hash(id) = 1"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A Python as the nodes of a cluster have it: with nothing of ours, nor of Spark's.
BARE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
CONF = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "600m",
    "spark.executor.instances": 1,
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.yarn.am.extraJavaOptions": JAVA,
    "spark.yarn.am.memory": "300m",
    "spark.yarn.jars": f"local:{SPARK_JARS}/*",  # as on nodes that have Spark; else 400 MB travel each time
    "spark.pyspark.python": BARE_PYTHON,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": 4,
    "spark.databricks.delta.snapshotPartitions": 2,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def connection(cluster: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to the cluster, and a folder for temporary files of this test's own."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf_folder))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn"}))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tables.create_table(tmp_path / "table")


def config(table: Path, source: str) -> MergeConfig:
    return MergeConfig(
        target=str(table),
        source=source,
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
    )


def rows(first: int, last: int, name: str) -> str:
    return f"SELECT id, '{name}' AS name FROM range({first}, {last})"


def hook(cluster: Yarn, name: str) -> DeltaMergeHook:
    staging = {"spark.yarn.stagingDir": (cluster.folder / "staging").as_uri()}
    return DeltaMergeHook(conn_id="yarn", conf=CONF | staging, name=name)


def the_application(cluster: Yarn, name: str) -> dict[str, Any]:
    (application,) = cluster.applications(name)
    return application


@pytest.mark.slow
def test_a_merge_in_client_mode(cluster: Yarn, table: Path) -> None:
    merging = hook(cluster, "client")
    inserted = merging.merge(config(table, rows(0, 1000, "old")))
    assert (inserted.num_inserted_rows, inserted.version, tables.count_rows(table)) == (1000, 1, 1000)
    wait_until(lambda: the_application(cluster, "client")["state"] == "FINISHED", 20)
    assert the_application(cluster, "client")["finalStatus"] == "SUCCEEDED"
    assert "Finished task" in cluster.logs(the_application(cluster, "client")["id"]), "an executor worked"
    wait_until(lambda: cluster.containers() == [], 20)
    assert not list((cluster.folder / "staging").rglob("application_*"))


@pytest.mark.slow
def test_a_merge_in_client_mode_that_is_ended_ends_its_application(cluster: Yarn, table: Path) -> None:
    merging = hook(cluster, "ended")
    thread = threading.Thread(target=lambda: fails(merging, config(table, ENDLESS)))
    thread.start()
    wait_until(lambda: is_at_work(cluster, "ended"), 120)
    assert len(cluster.containers()) >= 2
    begun = time.monotonic()
    merging.on_kill()
    wait_until(lambda: cluster.containers() == [], 10 - (time.monotonic() - begun))
    thread.join(30)
    wait_until(lambda: the_application(cluster, "ended")["state"] in ("FINISHED", "FAILED", "KILLED"), 20)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert tables.versions(table) == [0]


def is_at_work(cluster: Yarn, name: str) -> bool:
    """Whether an executor of the latest application of that name has begun a task."""
    applications = cluster.applications(name)
    return bool(applications) and "Running task" in cluster.logs(applications[-1]["id"])


def fails(merging: DeltaMergeHook, what: MergeConfig) -> None:
    with suppress(DeltaMergeException):
        merging.merge(what)
