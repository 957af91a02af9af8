"""Merges on a real Kubernetes of one node, with the driver here (client mode) or in a pod (cluster mode)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from airflow_delta_merge.config import MergeConfig, to_json
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.spark_application import SparkApplication
from airflow_delta_merge.launch.submitted_application import SubmittedApplication
from airflow_delta_merge.runtime.store_drivers import S3A
from airflow_delta_merge.task_exceptions import DeltaMergeException, DeltaMergeFailException
from tests.airflow import tables
from tests.cluster import deferred
from tests.cluster.processes import ENDLESS, config, rows
from tests.cluster.warm import check_that_merges_share_an_application
from tests.kubernetes import host
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.connections import environment
from tests.kubernetes.pods import Pods
from tests.object_storage.s3_server import KEYS
from tests.object_storage.s3proxy import s3proxy
from tests.waiting import wait_until

#: Rows for which a merge takes some ten seconds here.
LONG = "SELECT id, CONCAT('new', id) AS name FROM range(40000000) WHERE SHA2(CAST(id AS STRING), 512) LIKE '000%'"
FIRST_TRY = """
import sys
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.config import from_json
from airflow_delta_merge.contract.identity import MergeIdentity
who = MergeIdentity(application_id="me", generation=1)
DeltaMergeHook(conn_id="pods", name="tries").merge(from_json(sys.argv[1]), identity=who)
"""
WHO = MergeIdentity(application_id="me", generation=1)
started = partial(deferred.started, "pods")
finished = partial(deferred.finished, "pods")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pods and this process share, as they do an object store elsewhere."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def folder(shared: Path, request: pytest.FixtureRequest) -> Path:
    """This test's own part of it."""
    made = shared / re.sub(r"\W+", "_", request.node.name)
    (made / "results").mkdir(parents=True)
    return made


@pytest.fixture
def namespace(
    cluster: Cluster, shared: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """A namespace for the test's pods, connections to the cluster in both modes, and a folder for temporary files."""
    name = cluster.namespace(f"t{time.time_ns() % 10**10}")
    kube = {"kube_config_path": str(cluster.kubeconfig), "namespace": name}
    for variable, value in environment(cluster, name, shared, folder / "results", kube=kube).items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield name
    cluster.delete_namespace(name)


@pytest.fixture
def table(folder: Path) -> Path:
    return tables.create_table(folder / "table")


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Pods:
    return Pods(cluster, namespace)


def nothing_is_left(folder: Path) -> None:
    assert list((folder / "results").iterdir()) == []
    # The client of Kubernetes has files of its own there, which a killed process leaves.
    assert list(Path(tempfile.gettempdir()).glob("airflow_delta_merge*")) == []


def test_a_merge_in_client_mode_by_two_executors(pods: Pods, table: Path) -> None:
    merging = DeltaMergeHook(conn_id="pods_of_executors", conf={"spark.executor.instances": 2})
    inserted = merging.merge(config(table, "SELECT /*+ REPARTITION(8) */ id, 'old' AS name FROM range(1000)"))
    assert (inserted.num_inserted_rows, inserted.version, tables.count_rows(table)) == (1000, 1, 1000)
    wait_until(lambda: pods.names("executor") == [], 60)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_kept_spark_keeps_its_executors(pods: Pods, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_merges_share_an_application(
        partial(DeltaMergeHook, conn_id="pods_of_executors", keep_warm=5), table, monkeypatch
    )
    wait_until(lambda: pods.names("executor") == [], 60)


def test_a_merge_in_cluster_mode(pods: Pods, table: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    applications: list[SparkApplication] = []
    merging = DeltaMergeHook(conn_id="pods")
    result = merging.merge(config(table, rows(0, 1000, "old")), identity=WHO, on_application=applications.append)
    assert (result.num_inserted_rows, result.version, result.already_committed) == (1000, 1, False)
    assert tables.count_rows(table) == 1000
    (application,) = {each.id for each in applications}
    assert application.startswith("spark-")
    said = "Merge: Ready to commit: 0 rows updated, 0 rows deleted, 1000 rows inserted"
    assert said in caplog.text, "the driver's words"
    assert f"Spark application {application} is Running on Kubernetes" in caplog.text
    wait_until(lambda: pods.names("driver") == [], 20)
    nothing_is_left(folder)

    again = merging.merge(config(table, rows(0, 1000, "old")), identity=WHO)
    assert (again.already_committed, again.num_inserted_rows, tables.versions(table)) == (True, 1000, [0, 1])


def test_files_and_result_go_through_an_object_store(
    pods: Pods, table: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The image has the store's driver, by which the driver's pod reads everything else.
    (folder / "store_driver").mkdir()
    for jar in S3A.fetched(DeltaMergeHook(conn_id="pods").preparation.for_inspection().spark_home):
        shutil.copy(jar, folder / "store_driver")
    drivers = f"{folder / 'store_driver'}/*"
    with s3proxy(tmp_path, "lake", host.ADDRESS) as address:
        lake = {"conn_type": "aws", "extra": {"endpoint_url": address, "region_name": "us-east-1"}}
        connection = json.loads(os.environ["AIRFLOW_CONN_PODS"])
        connection["extra"] |= {"aws_conn_id": "lake", "result_path": "s3a://lake/results"}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake | KEYS))
        monkeypatch.setenv("AIRFLOW_CONN_PODS", json.dumps(connection))
        conf = {"spark.driver.extraClassPath": drivers, "spark.executor.extraClassPath": drivers}
        result = DeltaMergeHook(conn_id="pods", conf=conf).merge(config(table, rows(0, 1000, "old")))
    assert (result.num_inserted_rows, tables.count_rows(table)) == (1000, 1000)
    assert [path for path in (tmp_path / "buckets" / "lake").rglob("*") if path.is_file()] == []


def test_a_merge_that_fails_tells_its_reason(pods: Pods, table: Path, folder: Path) -> None:
    """spark-submit returns 0 for an application that failed."""
    with pytest.raises(DeltaMergeFailException, match=r"The merge into .* failed: .*nope") as raised:
        DeltaMergeHook(conn_id="pods").merge(config(table, "SELECT nope FROM range(1)"))
    assert raised.value.condition is not None
    nothing_is_left(folder)


def test_a_driver_that_dies_without_a_result(pods: Pods, table: Path, folder: Path) -> None:
    conf = {"spark.pyspark.driver.python": "/nowhere/python3"}
    said = r"failed on Kubernetes \(Error: exit code 1\) and left no result. See its driver's log .*kubectl logs"
    with pytest.raises(DeltaMergeException, match=said):
        DeltaMergeHook(conn_id="pods", conf=conf).merge(config(table, rows(0, 1, "row")), identity=WHO)
    assert len(pods.names("driver")) == 1, "its log can still be read"
    result = DeltaMergeHook(conn_id="pods").merge(config(table, rows(0, 10, "new")), identity=WHO)
    assert (result.num_inserted_rows, tables.versions(table)) == (10, [0, 1])
    wait_until(lambda: pods.names("driver") == [], 20)
    nothing_is_left(folder)


def test_an_image_that_is_not_there(pods: Pods, table: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(DeltaMergeException, match=r"failed on Kubernetes \(ErrImageNeverPull: .*localhost/none:1"):
        DeltaMergeHook(conn_id="pods", conf={"spark.kubernetes.container.image": "localhost/none:1"}).merge(
            config(table, rows(0, 1, "row"))
        )
    assert time.monotonic() - begun < 60
    wait_until(lambda: pods.names("driver") == [], 20)


def test_a_merge_that_is_ended_ends_its_pods(pods: Pods, table: Path) -> None:
    merging = DeltaMergeHook(conn_id="pods")
    thread = threading.Thread(target=lambda: fails(merging, config(table, ENDLESS)))
    thread.start()
    wait_until(pods.is_at_work, 120)
    begun = time.monotonic()
    merging.on_kill()
    wait_until(lambda: pods.names("driver") == [], 10 - (time.monotonic() - begun))
    wait_until(lambda: pods.names("executor") == [], 60)
    thread.join(30)
    assert not thread.is_alive()
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert tables.versions(table) == [0]


def test_a_driver_pod_that_is_deleted_in_mid_merge(pods: Pods, table: Path, folder: Path) -> None:
    errors: list[Exception] = []
    thread = threading.Thread(
        target=lambda: errors.append(fails(DeltaMergeHook(conn_id="pods"), config(table, ENDLESS)))
    )
    thread.start()
    wait_until(pods.is_at_work, 120)
    pods.delete("driver")
    thread.join(60)
    (error,) = errors
    assert not isinstance(error, DeltaMergeFailException), "another try helps"
    # What of these depends on whether the driver has time to tell.
    assert re.search("Its driver's pod was deleted, but not by this task|SparkContext was shut down", str(error))
    result = DeltaMergeHook(conn_id="pods").merge(config(table, rows(0, 10, "new")), identity=WHO)
    assert (result.num_inserted_rows, tables.versions(table)) == (10, [0, 1])


def test_an_executor_that_is_lost_in_mid_merge(pods: Pods, table: Path) -> None:
    results: list[MergeResult] = []
    thread = threading.Thread(target=lambda: results.append(DeltaMergeHook(conn_id="pods").merge(config(table, LONG))))
    thread.start()
    wait_until(pods.is_at_work, 120)
    pods.delete("executor")
    thread.join(300)
    (result,) = results
    assert result.num_inserted_rows == tables.count_rows(table) > 0
    assert tables.versions(table) == [0, 1]


def test_dynamic_allocation(pods: Pods, table: Path) -> None:
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": 1,
        "spark.dynamicAllocation.maxExecutors": 2,
    }
    result = DeltaMergeHook(conn_id="pods", conf=conf).merge(config(table, rows(0, 1000, "old")))
    assert (result.num_inserted_rows, tables.count_rows(table)) == (1000, 1000)


def test_the_next_try_ends_the_driver_of_a_worker_that_was_killed(
    pods: Pods, table: Path, folder: Path, tmp_path: Path
) -> None:
    here = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    tried = subprocess.Popen([sys.executable, "-c", FIRST_TRY, to_json(config(table, ENDLESS))], env=here)
    try:
        wait_until(pods.is_at_work, 120)
        family = [psutil.Process(tried.pid), *psutil.Process(tried.pid).children(recursive=True)]
    finally:
        tried.kill()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    tried.wait()
    (left,) = pods.names("driver")
    result = DeltaMergeHook(conn_id="pods", name="tries").merge(config(table, rows(0, 10, "new")), identity=WHO)
    assert (result.num_inserted_rows, result.version, tables.versions(table)) == (10, 1, [0, 1])
    assert left not in pods.names("driver")
    nothing_is_left(folder)


def test_a_deferred_merge_leaves_nothing_on_the_worker(
    pods: Pods, table: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    children = psutil.Process().children()
    begun = started(config(table, rows(0, 1000, "old")), "deferred", WHO)
    assert (list(Path(tempfile.gettempdir()).iterdir()), psutil.Process().children()) == ([], children)
    result = finished(begun, table)
    assert (result.num_inserted_rows, result.version, tables.count_rows(table)) == (1000, 1, 1000)
    assert "Merge: Ready to commit" in capsys.readouterr().out, "the driver's words"
    nothing_is_left(folder)


def test_a_deferred_merge_that_is_killed_by_its_trigger(pods: Pods, table: Path) -> None:
    begun = started(config(table, ENDLESS), "deferred", WHO)
    wait_until(pods.is_at_work, 120)
    SubmittedApplication.from_dict(begun.to_dict()).kill()
    wait_until(lambda: pods.names("driver") == [], 10)
    assert tables.versions(table) == [0]


def test_the_next_try_ends_what_a_deferred_one_has_left(pods: Pods, table: Path, folder: Path) -> None:
    started(config(table, ENDLESS), "deferred", WHO)
    wait_until(pods.is_at_work, 120)
    result = finished(started(config(table, rows(0, 10, "new")), "deferred", WHO), table)
    assert (result.num_inserted_rows, result.version, tables.versions(table)) == (10, 1, [0, 1])
    nothing_is_left(folder)


def test_missing_access_fails_before_anything_starts(
    cluster: Cluster, namespace: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = json.loads(os.environ["AIRFLOW_CONN_KUBE"])["extra"] | {"kube_config_path": "/nowhere/kubeconfig"}
    monkeypatch.setenv("AIRFLOW_CONN_KUBE", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    with pytest.raises(DeltaMergeException, match="The connection 'kube' gives no access to Kubernetes"):
        DeltaMergeHook(conn_id="pods").merge(config(table, rows(0, 1, "row")))
    ok, said = DeltaMergeHook(conn_id="pods").test_connection()
    assert (ok, "gives no access to Kubernetes" in said) == (False, True)


def fails(merging: DeltaMergeHook, what: MergeConfig) -> Exception:
    try:
        merging.merge(what)
    except DeltaMergeException as error:
        return error
    raise AssertionError("it was done")
