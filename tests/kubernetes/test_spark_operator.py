"""Merges that the Spark operator starts, from a real ``SparkApplication``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.task_exceptions import DeltaMergeException, DeltaMergeFailException
from tests.airflow import tables
from tests.cluster import deferred
from tests.cluster.processes import ENDLESS, config, rows
from tests.kubernetes import spark_operator
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.connections import environment
from tests.kubernetes.pods import Pods
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
NAMESPACE = "of-spark-operator"
WHO = MergeIdentity(application_id="me", generation=1)
started = partial(deferred.started, "operator")
finished = partial(deferred.finished, "operator")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module", autouse=True)
def operator(cluster: Cluster) -> Iterator[None]:
    cluster.namespace(NAMESPACE)
    with spark_operator.kinds_of_resources(cluster):
        spark_operator.start(cluster, NAMESPACE)
        yield
        cluster.delete_namespace(NAMESPACE)


@pytest.fixture(autouse=True)
def connections(cluster: Cluster, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(cluster, NAMESPACE, shared, shared / "results").items():
        monkeypatch.setenv(name, value)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def table(shared: Path, request: pytest.FixtureRequest) -> Path:
    return tables.create_table(shared / request.node.name)


@pytest.fixture
def pods(cluster: Cluster) -> Pods:
    return Pods(cluster, NAMESPACE)


def test_a_merge_by_the_spark_operator(
    cluster: Cluster,
    shared: Path,
    table: Path,
    pods: Pods,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    merging = DeltaMergeHook(conn_id="operator", executor_memory="600m")
    result = merging.merge(config(table, rows(0, 1000, "old")), identity=WHO)
    assert (result.num_inserted_rows, result.version, tables.count_rows(table)) == (1000, 1, 1000)
    assert "Created SparkApplication airflow-delta-merge-" in capsys.readouterr().out
    said = "Merge: Ready to commit: 0 rows updated, 0 rows deleted, 1000 rows inserted"
    assert said in caplog.text, "the driver's words"
    wait_until(lambda: (pods.names("driver"), spark_operator.resources(cluster, NAMESPACE)) == ([], []), 20)
    assert [*(shared / "results").iterdir()] == []
    again = merging.merge(config(table, rows(0, 1000, "old")), identity=WHO)
    assert (again.already_committed, tables.versions(table)) == (True, [0, 1])


def test_a_merge_of_the_spark_operator_that_fails(table: Path) -> None:
    with pytest.raises(DeltaMergeFailException, match=r"The merge into .* failed: .*nope"):
        DeltaMergeHook(conn_id="operator").merge(config(table, "SELECT nope FROM range(1)"))


def test_a_submission_that_the_spark_operator_fails_at(cluster: Cluster, table: Path) -> None:
    conf = {"spark.kubernetes.driver.request.cores": "as many as there are"}
    with pytest.raises(DeltaMergeException, match=r"failed on Kubernetes \(.*quantities must match"):
        DeltaMergeHook(conn_id="operator", conf=conf).merge(config(table, rows(0, 1, "row")), identity=WHO)
    result = DeltaMergeHook(conn_id="operator").merge(config(table, rows(0, 10, "new")), identity=WHO)
    assert (result.num_inserted_rows, tables.versions(table)) == (10, [0, 1])
    wait_until(lambda: spark_operator.resources(cluster, NAMESPACE) == [], 20)


def test_the_next_try_ends_what_the_spark_operator_runs(cluster: Cluster, table: Path, pods: Pods) -> None:
    started(config(table, ENDLESS), "deferred", WHO)
    wait_until(pods.is_at_work, 120)
    result = finished(started(config(table, rows(0, 10, "new")), "deferred", WHO), table)
    assert (result.num_inserted_rows, result.version, tables.versions(table)) == (10, 1, [0, 1])
    wait_until(lambda: (pods.names("driver"), spark_operator.resources(cluster, NAMESPACE)) == ([], []), 20)


def test_a_deferred_merge_of_the_spark_operator_that_is_killed(cluster: Cluster, table: Path, pods: Pods) -> None:
    begun = started(config(table, ENDLESS), "deferred", WHO)
    wait_until(pods.is_at_work, 120)
    begun.kill()
    wait_until(lambda: (pods.names("driver"), spark_operator.resources(cluster, NAMESPACE)) == ([], []), 15)
    assert tables.versions(table) == [0]
