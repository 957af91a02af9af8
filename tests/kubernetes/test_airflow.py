"""Deferred tasks of a real Airflow whose drivers run on a real Kubernetes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow.conftest import airflow_home
from tests.airflow.once import Once, applied, running, with_canary
from tests.cluster.processes import ENDLESS
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.connections import environment
from tests.kubernetes.pods import Pods
from tests.waiting import wait_until

__all__ = ["airflow_home"]

pytestmark = pytest.mark.slow
NAMESPACE = "of-airflow"


@pytest.fixture(scope="module")
def airflow(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """An Airflow whose triggerer has nothing of the worker's: not its temporary files, nor Java."""
    folder = tmp_path_factory.mktemp("airflow")
    cluster.namespace(NAMESPACE)
    kube = {"kube_config": cluster.kubeconfig.read_text(encoding="utf-8")}
    variables = environment(cluster, NAMESPACE, folder, folder / "results", kube=kube)
    variables["AIRFLOW_CONN_YARN_CLUSTER"] = variables.pop("AIRFLOW_CONN_PODS")  # the DAG's name for its cluster
    with running(folder, environment=variables) as airflow:
        (folder / "elsewhere").mkdir()
        nothing = ["JAVA_HOME=/nowhere", f"TMPDIR={folder / 'elsewhere'}", "PATH=/nowhere"]
        airflow.start("triggerer --skip-serve-logs", before=["env", *nothing])
        yield airflow
    cluster.delete_namespace(NAMESPACE)


@pytest.fixture
def pods(cluster: Cluster) -> Pods:
    return Pods(cluster, NAMESPACE)


def test_a_deferred_task_comes_back_with_its_result(airflow: Once, pods: Pods) -> None:
    target = airflow.table("comes_back")
    airflow.trigger("once_yarn", "comes_back", table=str(target), source="SELECT id, 1L AS n FROM range(3)")
    airflow.wait(lambda: airflow.task("once_yarn", "comes_back")["state"] == "deferred")
    assert airflow.left() == []
    airflow.run_ended("once_yarn", "comes_back")
    result = airflow.result("once_yarn", "comes_back")
    assert (result["num_inserted_rows"], result["already_committed"], applied(target)) == (3, False, 1)
    assert "Merge: Ready to commit" in airflow.logged("once_yarn", "comes_back"), "the driver's words, by the triggerer"
    assert airflow.left() == []
    assert [path for path in (airflow.folder / "results").rglob("*") if path.is_file()] == []
    wait_until(lambda: pods.names("driver") == [], 20)
    assert with_canary(airflow) == []


def test_a_deferred_task_that_is_marked_failed_leaves_no_pod(airflow: Once, pods: Pods) -> None:
    target = airflow.table("marked")
    airflow.trigger("once_yarn", "marked", table=str(target), source=ENDLESS.replace("'x' AS name", "1L AS n"))
    airflow.wait(pods.is_at_work)
    assert airflow.task("once_yarn", "marked")["state"] == "deferred"
    begun = time.monotonic()
    airflow.mark("once_yarn", "marked", "failed")
    wait_until(lambda: pods.names("driver") == [], 10 - (time.monotonic() - begun))
    assert applied(target) == 0


def test_secrets_of_the_kubeconfig_are_in_no_file(airflow: Once, cluster: Cluster) -> None:
    (user,) = json.loads(cluster.kubeconfig.read_text(encoding="utf-8"))["users"]
    secret = user["user"]["client-key-data"][100:200].encode()
    logged = [path for path in Path(airflow.folder).rglob("*") if path.is_file()]
    assert [path for path in logged if secret in path.read_bytes()] == []
