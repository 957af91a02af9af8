"""What is made of the answers of Kubernetes' API; ``tests/kubernetes`` has a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_delta_merge.config import MergeConfig, when_matched_delete
from airflow_delta_merge.connections.kubernetes import KubernetesAccess
from airflow_delta_merge.exceptions import ClusterManagerError, SparkConnectionError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.kubernetes import KubernetesNamespace
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.submitted_application import SubmittedApplication

DRIVER = "spark-kubernetes-driver"
RUNNING = {"running": {"startedAt": "2026-01-31T06:00:00Z"}}


class FakeKubernetes:
    """Answers as an API server does about the pods of the namespace ``spark``.

    :ivar pods: its pods; or an HTTP status with a message.
    :ivar log: what the driver has written, each line with its time.
    """

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] | tuple[int, str] = []
        self.log: list[str] = []
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.answer(self, "GET")

            def do_DELETE(self) -> None:
                fake.answer(self, "DELETE")

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler, method: str) -> None:
        url = urlsplit(request.path)
        self.asked.append((method, url.path, parse_qs(url.query)))
        status, body = 200, json.dumps({"kind": "Status"})
        if isinstance(self.pods, tuple):
            status, message = self.pods
            body = json.dumps({"kind": "Status", "message": message})
        elif url.path.endswith("/log"):
            body = "".join(f"{line}\n" for line in self.log)[: int(self.asked[-1][2]["limitBytes"][0])]
        elif method == "GET":
            body = json.dumps({"kind": "PodList", "items": self.pods})
        request.send_response(status)
        request.send_header("Content-Type", "text/plain" if url.path.endswith("/log") else "application/json")
        request.end_headers()
        request.wfile.write(body.encode())

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def pod(phase: str, state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A driver's pod, whose own container is in this state; a mesh's proxy runs beside it."""
    containers = [
        {"name": name, "image": "i", "imageID": "", "ready": True, "restartCount": 0} for name in (DRIVER, "p")
    ]
    containers[0]["state"], containers[1]["state"] = state or {}, RUNNING
    return {
        "metadata": {
            "name": "merge-driver",
            "labels": {"spark-app-selector": "spark-1f"},
            "creationTimestamp": "2026-01-31T06:00:00Z",
        },
        "spec": {"containers": [{"name": DRIVER}, {"name": "p"}]},
        "status": {"phase": phase, **({"containerStatuses": containers} if state else {}), **status},
    }


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubernetes]:
    fake = FakeKubernetes()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": fake.address}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "d", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "d",
    }
    extra = {"kube_config": config, "namespace": "spark"}
    monkeypatch.setenv("AIRFLOW_CONN_KUBE", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield fake
    fake.stop()


def submitted() -> SubmittedApplication:
    manager = KubernetesNamespace(namespace="spark", conn_id="kube")
    mode = ClusterMode(result_path="s3a://b/r", application="all", submission="one", manager=manager, waits=False)
    return SubmittedApplication.from_dict(json.loads(json.dumps(SubmittedApplication(mode).to_dict())))


def terminated(code: int, reason: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": "s3cret"}}


PENDING = {"waiting": {"reason": "ContainerCreating"}}
UNSCHEDULED = [
    {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "containers with unready status"},
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available."},
]


@pytest.mark.parametrize(
    ("of_pod", "news"),
    [
        (pod("Pending", PENDING), "is Pending on Kubernetes."),
        (pod("Pending", conditions=UNSCHEDULED), "is Pending on Kubernetes: Unschedulable: 0/1 nodes are available."),
        (pod("Pending", {"waiting": {"reason": "ErrImagePull", "message": "no\nroute"}}), "ErrImagePull: no route."),
        (pod("Running", RUNNING), "is Running on Kubernetes."),
    ],
    ids=["creating", "unschedulable", "pulled again", "running"],
)
def test_a_driver_that_has_not_ended(kubernetes: FakeKubernetes, of_pod: dict[str, Any], news: str) -> None:
    kubernetes.pods = [of_pod]
    application = submitted()
    (said,) = application.follow()
    assert said.startswith("Spark application ")
    assert said.endswith(news)
    assert (application.follow(), application.end) == ([], None), "each state is reported once"


@pytest.mark.parametrize(
    ("of_pod", "error"),
    [
        (pod("Succeeded", terminated(0, "Completed")), "spark-1f succeeded on Kubernetes, but left no result"),
        (pod("Running", terminated(0, "Completed")), "spark-1f succeeded on Kubernetes, but left no result"),
        (pod("Failed", terminated(137, "OOMKilled")), "failed on Kubernetes (OOMKilled: exit code 137)"),
        (
            pod("Failed", reason="Evicted", message="The node was low on memory."),
            "(Evicted: The node was low on memory)",
        ),
        (pod("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "gone"}}), "(ImagePullBackOff: gone)"),
    ],
    ids=["succeeded", "beside a proxy that runs on", "out of memory", "evicted", "no image"],
)
def test_a_driver_that_has_ended(kubernetes: FakeKubernetes, of_pod: dict[str, Any], error: str) -> None:
    kubernetes.pods = [of_pod]
    application = submitted()
    application.follow()
    assert application.end is not None
    assert application.end.error is not None
    assert error in application.end.error
    assert "kubectl logs --namespace spark merge-driver" in application.end.error
    assert "s3cret" not in application.end.error


def test_each_line_of_the_drivers_log_is_shown_once(kubernetes: FakeKubernetes) -> None:
    kubernetes.pods = [pod("Running", RUNNING)]
    kubernetes.log = ["2026-01-31T06:00:00.1Z Merge: one", "2026-01-31T06:00:00.2Z key=s3cret"]
    application = submitted()
    assert application.follow()[0] == "Merge: one"
    kubernetes.log += ["2026-01-31T06:00:00.3Z Merge: two"]
    assert application.follow() == ["Merge: two"], "a triggerer shows only the merge's own lines, as it masks nothing"
    all_lines = submitted()
    all_lines.shows_all = True
    assert all_lines.follow()[:3] == ["Merge: one", "key=s3cret", "Merge: two"]


def test_a_line_of_the_drivers_log_may_hold_other_breaks(kubernetes: FakeKubernetes) -> None:
    kubernetes.pods = [pod("Running", RUNNING)]
    kubernetes.log = ["2026-01-31T06:00:00.1Z Merge: a\u2028b\x85c"]
    application = submitted()
    assert application.follow()[0] == "Merge: a\u2028b\x85c"
    kubernetes.log += ["2026-01-31T06:00:00.2Z Merge: two"]
    assert application.follow() == ["Merge: two"]


def test_nodes_may_have_a_time_zone(kubernetes: FakeKubernetes) -> None:
    kubernetes.pods = [pod("Running", RUNNING)]
    now = datetime.now(timezone(timedelta(hours=2))).replace(microsecond=0)
    kubernetes.log = [f"{now.isoformat()[:19]}.123456789+02:00 Merge: one"]
    application = submitted()
    assert application.follow()[0] == "Merge: one"
    application.follow()
    (since,) = kubernetes.asked[-1][2]["sinceSeconds"]
    assert 55 <= int(since) <= 120, "the overlap, and the time that has passed"
    # Clocks have gone back, and the node's log can't be read for a moment.
    later = (now + timedelta(minutes=1)).astimezone(timezone(timedelta(hours=1)))
    kubernetes.log += ["unable to retrieve container logs", f"{later.isoformat()[:19]}.1+01:00 Merge: two"]
    assert application.follow() == ["Merge: two"]
    assert application.follow() == []


def test_a_driver_may_write_more_than_is_read_at_a_time(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta_merge.launch.kubernetes._MAX_LOG_BYTES", 100)
    kubernetes.pods = [pod("Running", RUNNING)]
    kubernetes.log = [f"2026-01-31T06:00:00.{number:03}Z Merge: line {number} of many" for number in range(20)]
    application, lines = submitted(), []
    for _ in range(20):
        lines += application.follow()
    assert [line for line in lines if "of many" in line] == [f"Merge: line {number} of many" for number in range(20)]


def test_killing_deletes_the_pods(kubernetes: FakeKubernetes) -> None:
    kubernetes.pods = [pod("Running", RUNNING)]
    manager = submitted().cluster_mode.manager
    assert manager.kill("one") == ["merge-driver"]
    assert manager.kill_all("all") == ["merge-driver"]
    selectors = [query["labelSelector"] for method, _, query in kubernetes.asked if method == "GET"]
    assert selectors == [
        ["airflow-delta-merge/submission=one,spark-role=driver"],
        ["airflow-delta-merge/application=all,spark-role=driver"],
    ]
    kubernetes.pods = [pod("Failed", terminated(1, "Error"))]
    assert (manager.kill("one"), len(kubernetes.asked)) == ([], 5), "the log of one that has ended can still be read"
    assert (manager.kill_all("all"), len(kubernetes.asked)) == ([], 7), "the next try removes it, which is not listed"


def test_a_timeout_of_the_task_ends_the_driver(
    kubernetes: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"deploy-mode": "cluster", "result_path": tmp_path.as_uri(), "kubernetes_conn_id": "kube"}
    connection = {"conn_type": "delta_merge", "host": "k8s://https://h:6443", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))

    def submitted(*_: Any) -> int:
        kubernetes.pods = [pod("Running", RUNNING)]
        return 0

    def timed_out(*_: Any) -> NoReturn:
        raise AirflowTaskTimeout

    monkeypatch.setattr(SparkSubmit, "run", submitted)
    monkeypatch.setattr(SubmittedApplication, "poll", timed_out)
    config = MergeConfig(target="t", source="s", on=["id"], clauses=[when_matched_delete()])
    hook = DeltaMergeHook(conn_id="lake")
    with pytest.raises(AirflowTaskTimeout):
        hook.merge(config)
    hook.on_kill()  # as Airflow does then
    deleted = [path for method, path, _ in kubernetes.asked if method == "DELETE"]
    assert deleted == ["/api/v1/namespaces/spark/pods/merge-driver"]


def test_a_refusal_of_the_api_is_reported(kubernetes: FakeKubernetes) -> None:
    kubernetes.pods = (403, 'pods is forbidden: User "u" cannot list resource "pods"')
    manager = submitted().cluster_mode.manager
    with pytest.raises(
        ClusterManagerError, match=r"refused to list pods in the namespace spark \(403: pods is forbidden"
    ):
        manager.find("one")
    kubernetes.stop()
    with pytest.raises(ClusterManagerError, match="The Kubernetes API server doesn't answer"):
        manager.find("one")


def test_a_pod_that_is_gone(kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KubernetesNamespace, "unknown_seconds", 0.0)
    application = submitted()
    application.follow()
    assert application.end is not None
    assert application.end.error is not None
    assert "Its driver's pod was deleted, but not by this task." in application.end.error


def test_the_connection_for_spark(kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    access = KubernetesAccess.of("kube")
    assert (access.namespace, access.context, access.config_path) == ("spark", None, None)
    assert json.loads(access.config or "")["current-context"] == "d"
    monkeypatch.setenv("AIRFLOW_CONN_KUBE", json.dumps({"conn_type": "aws"}))
    with pytest.raises(SparkConnectionError, match="must have type 'kubernetes'"):
        KubernetesAccess.of("kube")
    for name in ("namespace", "kube_config"):
        monkeypatch.setenv("AIRFLOW_CONN_KUBE", json.dumps({"conn_type": "kubernetes", "extra": {name: [7]}}))
        with pytest.raises(SparkConnectionError, match=f"'kube' has a {name} that is not a string"):
            KubernetesAccess.of("kube")
