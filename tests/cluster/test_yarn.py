"""Merges on a YARN of one node, with the driver here (client mode) or in a container, too (cluster mode)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_delta_merge.config import MergeConfig, to_json
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.hooks.errors import DeltaMergeException, DeltaMergeFailException
from airflow_delta_merge.hooks.spark_application import SparkApplication
from airflow_delta_merge.identity import MergeIdentity
from tests.airflow import tables
from tests.airflow.canary import CANARY, Watch
from tests.airflow.conftest import DAGS
from tests.airflow.test_dags import Run
from tests.cluster.processes import config, rows
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
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.yarn.jars": f"local:{SPARK_JARS}/*",  # as on nodes that have Spark; else 400 MB travel each time
    "spark.pyspark.python": str(BARE_PYTHON),
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
    """Connections to the cluster in both modes, and a folder for temporary files of this test's own."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf_folder))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    conf = CONF | {"spark.yarn.stagingDir": (cluster.folder / "staging").as_uri()}
    client = {"conn_type": "delta_merge", "host": "yarn", "extra": {"conf": conf}}
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps(client))
    cluster_mode = {
        "deploy-mode": "cluster",
        "result_path": (tmp_path / "results").as_uri(),
        "yarn_resourcemanager_webapp_address": cluster.web_address,
        "conf": conf,
    }
    monkeypatch.setenv("AIRFLOW_CONN_YARN_CLUSTER", json.dumps({**client, "extra": cluster_mode}))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tables.create_table(tmp_path / "table")


def the_application(cluster: Yarn, name: str) -> dict[str, Any]:
    (application,) = cluster.applications(name)
    return application


@pytest.mark.slow
def test_a_merge_in_client_mode(cluster: Yarn, table: Path) -> None:
    merging = DeltaMergeHook(conn_id="yarn", name="client")
    inserted = merging.merge(config(table, rows(0, 1000, "old")))
    assert (inserted.num_inserted_rows, inserted.version, tables.count_rows(table)) == (1000, 1, 1000)
    wait_until(lambda: the_application(cluster, "client")["state"] == "FINISHED", 20)
    assert the_application(cluster, "client")["finalStatus"] == "SUCCEEDED"
    assert "Finished task" in cluster.logs(the_application(cluster, "client")["id"]), "an executor worked"
    wait_until(lambda: cluster.containers() == [], 20)
    assert not list((cluster.folder / "staging").rglob(the_application(cluster, "client")["id"]))


@pytest.mark.slow
def test_a_merge_in_client_mode_that_is_ended_ends_its_application(cluster: Yarn, table: Path) -> None:
    merging = DeltaMergeHook(conn_id="yarn", name="ended")
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


@pytest.mark.slow
def test_a_merge_in_cluster_mode(cluster: Yarn, table: Path, tmp_path: Path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": f"{CANARY}-secret"}
    merging = DeltaMergeHook(conn_id="yarn_cluster", name="cluster", conf=conf)
    who = MergeIdentity(application_id="me", generation=1)
    applications: list[SparkApplication] = []
    watch = Watch(Path(tempfile.gettempdir()))
    result = merging.merge(config(table, rows(0, 1000, "old")), identity=who, on_application=applications.append)
    watch.stop()
    assert (result.num_inserted_rows, result.version, result.already_committed) == (1000, 1, False)
    assert tables.count_rows(table) == 1000
    told = the_application(cluster, "cluster")
    assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    assert [(each.id, each.ui_url) for each in applications] == [(told["id"], told["trackingUrl"])]
    logs = cluster.logs(told["id"])
    assert "Merge: Spark application" in logs, "the job's own words: it ran in a container"
    assert CANARY not in logs
    assert {name for name, _ in watch.with_canary} == {"spark.properties"}
    assert watch.with_canary_on_command_line == set()
    nothing_is_left(cluster, tmp_path, "cluster")

    again = merging.merge(config(table, rows(0, 1000, "old")), identity=who)
    assert (again.already_committed, again.num_inserted_rows, tables.versions(table)) == (True, 1000, [0, 1])


@pytest.mark.slow
def test_a_merge_that_fails_in_cluster_mode_fails_once_with_its_reason(
    cluster: Yarn, table: Path, tmp_path: Path
) -> None:
    with pytest.raises(DeltaMergeFailException, match=r"The merge into .* failed: .*nope") as raised:
        DeltaMergeHook(conn_id="yarn_cluster", name="failing").merge(config(table, "SELECT nope FROM range(1)"))
    assert raised.value.condition is not None
    told = the_application(cluster, "failing")
    assert told["finalStatus"] == "FAILED"
    assert "_02_" not in told["amContainerLogs"], "YARN made no second attempt of its own"
    nothing_is_left(cluster, tmp_path, "failing")


@pytest.mark.slow
def test_a_merge_in_cluster_mode_that_is_ended_ends_its_application(cluster: Yarn, table: Path, tmp_path: Path) -> None:
    merging = DeltaMergeHook(conn_id="yarn_cluster", name="cluster ended")
    thread = threading.Thread(target=lambda: fails(merging, config(table, ENDLESS)))
    thread.start()
    wait_until(lambda: is_at_work(cluster, "cluster ended"), 120)
    begun = time.monotonic()
    merging.on_kill()
    wait_until(lambda: cluster.containers() == [], 10 - (time.monotonic() - begun))
    thread.join(30)
    assert the_application(cluster, "cluster ended")["state"] == "KILLED"
    nothing_is_left(cluster, tmp_path, "cluster ended")
    assert tables.versions(table) == [0]


@pytest.mark.slow
def test_the_next_try_ends_the_application_of_a_worker_that_was_killed(
    cluster: Yarn, table: Path, tmp_path: Path
) -> None:
    who = MergeIdentity(application_id="me", generation=1)
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    tried = subprocess.Popen([sys.executable, "-c", FIRST_TRY, to_json(config(table, ENDLESS))], env=environment)
    try:
        wait_until(lambda: is_at_work(cluster, "tries"), 120)
        family = [psutil.Process(tried.pid), *psutil.Process(tried.pid).children(recursive=True)]
    finally:
        tried.kill()
    for process in family:
        process.kill()
    tried.wait()
    assert the_application(cluster, "tries")["state"] == "RUNNING", "it goes on without the worker"
    result = DeltaMergeHook(conn_id="yarn_cluster", name="tries").merge(config(table, rows(0, 10, "new")), identity=who)
    assert (result.num_inserted_rows, result.version, tables.versions(table)) == (10, 1, [0, 1])
    assert [each["state"] for each in cluster.applications("tries")] == ["KILLED", "FINISHED"]
    wait_until(lambda: cluster.containers() == [], 20)
    nothing_is_left_but_uploads(tmp_path)


@pytest.mark.slow
def test_xcom_has_what_a_merge_in_cluster_mode_did(cluster: Yarn, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", os.environ["AIRFLOW_CONN_YARN_CLUSTER"])
    dag = DagBag(DAGS, bundle_name="dags-folder").dags["merge_report_gate"]
    run = Run(dag, {"target": str(table), "source": rows(0, 10, "row")})
    assert (run.states["merge"], run.states["some_inserted"]) == ("success", "success")
    assert run.xcom("note") == {"inserted": 10, "touched": 0, "rendered": "10", "version": 1}


FIRST_TRY = """
import sys
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.config import from_json
from airflow_delta_merge.identity import MergeIdentity
who = MergeIdentity(application_id="me", generation=1)
DeltaMergeHook(conn_id="yarn_cluster", name="tries").merge(from_json(sys.argv[1]), identity=who)
"""


def nothing_is_left(cluster: Yarn, tmp_path: Path, name: str) -> None:
    nothing_is_left_but_uploads(tmp_path)
    (application,) = [each["id"] for each in cluster.applications(name)]
    wait_until(lambda: list((cluster.folder / "staging").rglob(application)) == [], 20)


def nothing_is_left_but_uploads(tmp_path: Path) -> None:
    """A driver whose spark-submit is gone, and that is killed itself, has nobody who removes what was uploaded."""
    assert [path for path in (tmp_path / "results").rglob("*") if path.is_file()] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def is_at_work(cluster: Yarn, name: str) -> bool:
    """Whether an executor of the latest application of that name has begun a task."""
    applications = cluster.applications(name)
    return bool(applications) and "Running task" in cluster.logs(applications[-1]["id"])


def fails(merging: DeltaMergeHook, what: MergeConfig) -> None:
    with suppress(DeltaMergeException):
        merging.merge(what)
