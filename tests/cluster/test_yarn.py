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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_delta_merge.config import MergeConfig, to_json
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.spark_application import SparkApplication
from airflow_delta_merge.launch.spark_submit_command import KEPT_NAME
from airflow_delta_merge.launch.submitted_application import SubmittedApplication
from airflow_delta_merge.launch.yarn import ResourceManager
from airflow_delta_merge.task_exceptions import DeltaMergeException, DeltaMergeFailException
from tests.airflow import tables
from tests.airflow.canary import CANARY, Watch
from tests.airflow.conftest import DAGS
from tests.airflow.once import Once, applied, running, with_canary
from tests.airflow.test_dags import Run
from tests.airflow.test_submitted_application import FakeYarn
from tests.cluster import deferred
from tests.cluster.processes import ENDLESS, JAVA, SMALL, config, rows
from tests.cluster.warm import check_that_merges_share_an_application
from tests.cluster.yarn import SPARK_JARS, Yarn, yarn
from tests.waiting import wait_until

# A Python as the nodes of a cluster have it: with nothing of ours, nor of Spark's.
BARE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
CONF = {
    **SMALL,
    "spark.executor.instances": 1,
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.yarn.am.extraJavaOptions": JAVA,
    "spark.yarn.am.memory": "300m",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.yarn.jars": f"local:{SPARK_JARS}/*",  # as on nodes that have Spark; else 400 MB travel each time
    "spark.pyspark.python": str(BARE_PYTHON),
}


started = partial(deferred.started, "yarn_cluster")
finished = partial(deferred.finished, "yarn_cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


def environment(cluster: Yarn, results: Path) -> dict[str, str]:
    """Connections to the cluster in both modes, and what spark-submit needs."""
    conf = CONF | {"spark.yarn.stagingDir": (cluster.folder / "staging").as_uri()}
    client = {"conn_type": "delta_merge", "host": "yarn", "extra": {"conf": conf}}
    cluster_mode = {
        "deploy-mode": "cluster",
        "result_path": results.as_uri(),
        "yarn_resourcemanager_webapp_address": cluster.web_address,
        "conf": conf,
    }
    return {
        "HADOOP_CONF_DIR": str(cluster.conf_folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AIRFLOW_CONN_YARN": json.dumps(client),
        "AIRFLOW_CONN_YARN_CLUSTER": json.dumps({**client, "extra": cluster_mode}),
    }


@pytest.fixture(autouse=True)
def connection(cluster: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to the cluster in both modes, and a folder for temporary files of this test's own."""
    for name, value in environment(cluster, tmp_path / "results").items():
        monkeypatch.setenv(name, value)
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
def test_a_kept_spark_keeps_its_containers(cluster: Yarn, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = partial(DeltaMergeHook, conn_id="yarn", keep_warm=5)
    check_that_merges_share_an_application(kept, table, monkeypatch)
    wait_until(lambda: cluster.containers() == [], 20)
    assert the_application(cluster, KEPT_NAME)["finalStatus"] == "SUCCEEDED"


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
    reported = the_application(cluster, "cluster")
    assert (reported["state"], reported["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    assert [(each.id, each.ui_url) for each in applications] == [(reported["id"], reported["trackingUrl"])]
    logs = cluster.logs(reported["id"])
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
    reported = the_application(cluster, "failing")
    assert reported["finalStatus"] == "FAILED"
    assert "_02_" not in reported["amContainerLogs"], "YARN made no second attempt of its own"
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


@pytest.mark.slow
def test_a_deferred_merge_needs_no_process_of_ours(cluster: Yarn, table: Path, tmp_path: Path) -> None:
    who = MergeIdentity(application_id="deferred", generation=1)
    watch = Watch(Path(tempfile.gettempdir()))
    servers = psutil.Process().children()
    secret = {"spark.hadoop.fs.s3a.secret.key": f"{CANARY}-secret"}
    begun = started(config(table, rows(0, 1000, "old")), "deferred", who, **secret)
    assert (list((tmp_path / "temporary").iterdir()), psutil.Process().children()) == ([], servers)
    reported = the_application(cluster, "deferred")
    assert begun.application is not None
    assert (begun.application.id, reported["state"]) == (reported["id"], "ACCEPTED")
    assert CANARY not in json.dumps(deferred.trigger(begun).serialize())
    result = finished(begun, table, exactly_once=True)
    watch.stop()
    assert (result.num_inserted_rows, result.version, result.already_committed) == (1000, 1, False)
    assert tables.count_rows(table) == 1000
    assert CANARY not in cluster.logs(reported["id"])
    assert {name for name, _ in watch.with_canary} == {"spark.properties"}
    assert watch.with_canary_on_command_line == set()
    nothing_is_left(cluster, tmp_path, "deferred")


@pytest.mark.slow
def test_a_deferred_merge_that_fails_tells_its_reason(cluster: Yarn, table: Path, tmp_path: Path) -> None:
    begun = started(config(table, "SELECT nope FROM range(1)"), "deferred failing")
    with pytest.raises(DeltaMergeFailException, match=r"The merge into .* failed: .*nope"):
        finished(begun, table)
    assert the_application(cluster, "deferred failing")["finalStatus"] == "FAILED"
    nothing_is_left(cluster, tmp_path, "deferred failing")


@pytest.mark.slow
def test_a_deferred_merge_that_somebody_else_kills(cluster: Yarn, table: Path) -> None:
    begun = started(config(table, ENDLESS), "killed by others")
    wait_until(lambda: is_at_work(cluster, "killed by others"), 120)
    ResourceManager(cluster.web_address, user="eve").kill(begun.cluster_mode.submission)
    said = r"Spark application application_\d+_\d+ was killed on YARN, but not by this task \(.* killed by user eve"
    with pytest.raises(DeltaMergeException, match=said):
        finished(begun, table)
    assert tables.versions(table) == [0]


@pytest.mark.slow
def test_the_next_try_ends_what_a_deferred_one_has_left(cluster: Yarn, table: Path, tmp_path: Path) -> None:
    who = MergeIdentity(application_id="twice", generation=1)
    started(config(table, ENDLESS), "left", who)
    wait_until(lambda: is_at_work(cluster, "left"), 120)
    result = finished(started(config(table, rows(0, 10, "new")), "next", who), table)
    assert (result.num_inserted_rows, result.version, tables.versions(table)) == (10, 1, [0, 1])
    assert the_application(cluster, "left")["state"] == "KILLED"
    nothing_is_left_but_uploads(tmp_path)


@pytest.mark.slow
def test_an_application_forgotten_by_yarn_is_judged_by_its_result_then_its_log(
    cluster: Yarn, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResourceManager, "unknown_seconds", 1.0)
    who, what = MergeIdentity(application_id="forgotten", generation=1), config(table, rows(0, 10, "old"))
    begun = started(what, "forgotten", who)
    wait_until(lambda: the_application(cluster, "forgotten")["state"] == "FINISHED", 120)
    other = FakeYarn()
    try:
        mode = replace(begun.cluster_mode, manager=ResourceManager(other.address))
        forgotten = SubmittedApplication(mode, begun.application)
        assert finished(forgotten, table).num_inserted_rows == 10
        said = r"YARN no longer knows Spark application .* the next try finds that in the table's log"
        with pytest.raises(DeltaMergeException, match=said):
            finished(forgotten, table, exactly_once=True)
    finally:
        other.stop()
    again = finished(started(what, "forgotten again", who), table, exactly_once=True)
    assert (again.already_committed, again.num_inserted_rows, tables.versions(table)) == (True, 10, [0, 1])
    nothing_is_left(cluster, tmp_path, "forgotten again")


@pytest.mark.slow
def test_a_deferred_merge_outlives_its_resource_manager(cluster: Yarn, table: Path, tmp_path: Path) -> None:
    begun = started(config(table, rows(0, 1000, "old")), "outlives")
    wait_until(lambda: is_at_work(cluster, "outlives"), 120)
    with ThreadPoolExecutor(1) as triggerer:
        cluster.kill_resource_manager()
        result = triggerer.submit(finished, begun, table)
        time.sleep(5)
        assert not result.done()
        cluster.start_resource_manager()
        assert (result.result(240).num_inserted_rows, tables.versions(table)) == (1000, [0, 1])
    assert the_application(cluster, "outlives")["finalStatus"] == "SUCCEEDED"
    nothing_is_left(cluster, tmp_path, "outlives")


@pytest.fixture(scope="module")
def airflow(cluster: Yarn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """An Airflow whose triggerer has nothing of the worker's: not its temporary files, nor Java or the cluster's."""
    folder = tmp_path_factory.mktemp("airflow")
    with running(folder, environment=environment(cluster, folder / "results")) as airflow:
        (folder / "elsewhere").mkdir()
        nothing = ["JAVA_HOME=/nowhere", "HADOOP_CONF_DIR=/nowhere", f"TMPDIR={folder / 'elsewhere'}"]
        airflow.start("triggerer --skip-serve-logs", before=["env", *nothing, "PATH=/nowhere"])
        yield airflow


@pytest.mark.slow
def test_a_deferred_task_comes_back_with_its_result(cluster: Yarn, airflow: Once, tmp_path: Path) -> None:
    target = airflow.table("comes_back")
    airflow.trigger("once_yarn", "comes_back", table=str(target), source="SELECT id, 1L AS n FROM range(3)")
    airflow.wait(lambda: airflow.task("once_yarn", "comes_back")["state"] == "deferred")
    (application,) = cluster.applications("comes_back")
    assert str(airflow.links("once_yarn", "comes_back")["Spark application"]).endswith(f"/proxy/{application['id']}/")
    assert airflow.left() == []
    airflow.run_ended("once_yarn", "comes_back")
    result = airflow.result("once_yarn", "comes_back")
    assert (result["num_inserted_rows"], result["already_committed"], applied(target)) == (3, False, 1)
    assert {"return_value", "num_inserted_rows"} < airflow.xcom_keys("once_yarn", "comes_back")
    (event,) = airflow.asset_events("once_yarn")
    assert (event["extra"]["version"], event["extra"]["num_inserted_rows"]) == (1, 3)
    logged = airflow.logged("once_yarn", "comes_back")
    assert f"Spark application {application['id']} is FINISHED on YARN." in logged
    assert airflow.left() == []
    nothing_is_left(cluster, airflow.folder, "comes_back")
    assert with_canary(airflow) == []


@pytest.mark.slow
def test_a_deferred_task_that_is_marked_failed_leaves_no_container(cluster: Yarn, airflow: Once) -> None:
    target = airflow.table("marked")
    airflow.trigger("once_yarn", "marked", table=str(target), source=ENDLESS.replace("'x' AS name", "1L AS n"))
    airflow.wait(lambda: is_at_work(cluster, "marked"))
    assert airflow.task("once_yarn", "marked")["state"] == "deferred"
    begun = time.monotonic()
    airflow.mark("once_yarn", "marked", "failed")
    wait_until(lambda: cluster.containers() == [], 10 - (time.monotonic() - begun))
    assert the_application(cluster, "marked")["state"] == "KILLED"
    assert applied(target) == 0
    nothing_is_left_but_uploads(airflow.folder)


FIRST_TRY = """
import sys
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.config import from_json
from airflow_delta_merge.contract.identity import MergeIdentity
who = MergeIdentity(application_id="me", generation=1)
DeltaMergeHook(conn_id="yarn_cluster", name="tries").merge(from_json(sys.argv[1]), identity=who)
"""


def nothing_is_left(cluster: Yarn, folder: Path, name: str) -> None:
    nothing_is_left_but_uploads(folder)
    (application,) = [each["id"] for each in cluster.applications(name)]
    wait_until(lambda: list((cluster.folder / "staging").rglob(application)) == [], 20)


def nothing_is_left_but_uploads(folder: Path) -> None:
    """A driver that is killed while no spark-submit waits for it has nobody who removes what was uploaded."""
    assert [path for path in (folder / "results").rglob("*") if path.is_file()] == []
    assert list((folder / "temporary").glob("*")) == []


def is_at_work(cluster: Yarn, name: str) -> bool:
    """Whether an executor of the latest application of that name has begun a task."""
    applications = cluster.applications(name)
    return bool(applications) and "Running task" in cluster.logs(applications[-1]["id"])


def fails(merging: DeltaMergeHook, what: MergeConfig) -> None:
    with suppress(DeltaMergeException):
        merging.merge(what)
