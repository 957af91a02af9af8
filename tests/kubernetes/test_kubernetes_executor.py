"""A real Airflow whose tasks are pods (``KubernetesExecutor``), with merges in both deploy modes."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.real_airflow import RealAirflow
from tests.airflow import tables
from tests.airflow.conftest import airflow_home
from tests.kubernetes import spark
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.connections import environment
from tests.kubernetes.host import ADDRESS
from tests.kubernetes.images import SPARK
from tests.kubernetes.pods import Pods
from tests.waiting import wait_until

__all__ = ["airflow_home"]

pytestmark = pytest.mark.slow
NAMESPACE = "of-pods"
ROOT = Path(__file__).parents[2]
DAG = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_delta_merge.config import when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

with DAG("in_pods", schedule=None, start_date=datetime(2026, 1, 1)):
    for name, options in {
        "deferred": {"conn_id": "pods", "deferrable": True},
        "client": {"conn_id": "pods_of_executors"},
    }.items():
        DeltaMergeOperator(
            task_id=name,
            target="{{ dag_run.conf['folder'] }}/" + name,
            source="SELECT id, 'row' AS name FROM range(100)",
            on=["id"],
            clauses=[when_matched_update_all(), when_not_matched_insert_all()],
            **options,
        )
"""


class AirflowOfPods(RealAirflow):
    """An Airflow that pods reach, with everything of theirs in a folder that they share."""

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    def states(self, run_id: str) -> dict[str, str | None]:
        listed = self.call(f"/api/v2/dags/in_pods/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in listed}

    def knows_dag(self) -> bool:
        try:
            return bool(self.call("/api/v2/dags/in_pods"))
        except urllib.error.HTTPError:
            return False


def pod_template(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """A worker's pod: the host's Python, this checkout and its virtual environment, and the shared folder."""
    jars = os.environ.get("AIRFLOW_DELTA_MERGE_JARS") or str(Path.home() / ".cache" / "airflow_delta_merge")
    read_only = [*spark.HOST_FOLDERS, sys.base_prefix, str(ROOT), sys.prefix, jars]
    variables = [{"name": name, "value": value} for name, value in environment.items()]
    return spark.pod("worker", read_only, {"name": "base", "env": variables}, writable=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("airflow_of_pods")
    (made / "dags").mkdir()
    (made / "dags" / "in_pods.py").write_text(DAG)
    return made


@pytest.fixture(scope="module")
def airflow(cluster: Cluster, folder: Path) -> Iterator[AirflowOfPods]:
    cluster.namespace(NAMESPACE)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text())
    kube = {"kube_config_path": str(kubeconfig), "namespace": NAMESPACE}
    variables = {
        **environment(cluster, NAMESPACE, folder, folder / "results", kube=kube),
        # Workers ask the API server, so the scheduler's SQLite is only its own.
        "_AIRFLOW__SKIP_DATABASE_EXECUTOR_COMPATIBILITY_CHECK": "1",
    }
    template = folder / "worker.yaml"
    home = folder / "airflow"
    java = {"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}
    of_pod = {
        "AIRFLOW_HOME": str(home),
        "HOME": str(Path.home()),
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "SPARK_HOME": str(spark.HOST_SPARK),  # the image names its drivers' folder
        **java,
    }
    template.write_text(json.dumps(pod_template(folder, variables | of_pod)))
    settings = {
        "core": {"executor": "KubernetesExecutor"},
        "api": {"host": ADDRESS},
        "kubernetes_executor": {
            "namespace": NAMESPACE,
            "pod_template_file": template,
            "in_cluster": False,
            "config_file": kubeconfig,
            "worker_container_repository": SPARK.rpartition(":")[0],
            "worker_container_tag": SPARK.rpartition(":")[2],
        },
    }
    with (folder / "log").open("ab") as log:
        served = AirflowOfPods(home, folder / "dags", log, settings=settings, environment=variables)
        with served.serving() as airflow:
            airflow.start("scheduler --skip-serve-logs", "triggerer --skip-serve-logs")
            wait_until(airflow.knows_dag, 120)
            yield airflow
    cluster.delete_namespace(NAMESPACE)


def test_merges_by_tasks_that_are_pods(airflow: AirflowOfPods, cluster: Cluster, folder: Path) -> None:
    """A deferred one, whose worker's pod ends meanwhile, and one whose worker's pod is Spark's driver."""
    targets = {name: tables.create_table(folder / name) for name in ("deferred", "client")}
    airflow.call(
        "/api/v2/dags/in_pods/dagRuns", {"dag_run_id": "run", "logical_date": None, "conf": {"folder": str(folder)}}
    )
    until = time.monotonic() + 480
    ended = {"success", "failed", "upstream_failed"}
    while not (states := airflow.states("run")) or not set(states.values()) <= ended:
        assert time.monotonic() < until, states
        time.sleep(2)
    assert states == {"deferred": "success", "client": "success"}
    for target in targets.values():
        assert (tables.count_rows(target), tables.versions(target)) == (100, [0, 1])
    pods = Pods(cluster, NAMESPACE)
    wait_until(lambda: pods.names("driver") + pods.names("executor") == [], 60)
    assert [path for path in (folder / "results").rglob("*") if path.is_file()] == []
