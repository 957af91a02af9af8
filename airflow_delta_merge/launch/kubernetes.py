"""Kubernetes through its API: finds, follows and deletes the driver pods of a merge.

The connection and the client are those of Airflow's provider ``apache-airflow-providers-cncf-kubernetes``, which is
imported only when a merge needs it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias

from airflow_delta_merge.exceptions import ClusterManagerError, SparkConnectionError
from airflow_delta_merge.launch.cluster_manager import ClusterApplication, ClusterManager, shortened

APPLICATION, SUBMISSION = "airflow-delta-merge/application", "airflow-delta-merge/submission"
_SPARK_ID = "spark-app-selector"  # a label that Spark sets
_DRIVER_CONTAINER = "spark-kubernetes-driver"
_ENDED = ("Succeeded", "Failed")
#: Reasons for a waiting pod that never resolve by themselves.
_HOPELESS = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName")
_GRACE_SECONDS = 3
REQUEST_TIMEOUT = (3.0, 20.0)  # to connect and to read; Airflow's supervisor gives a killed task five
_MAX_LOG_BYTES = 4 << 20
#: How far before the last line to read the log again, because clocks differ.
_OVERLAP_SECONDS = 60.0
_Moment: TypeAlias = tuple[float, str]


@dataclass(frozen=True, kw_only=True)
class KubernetesNamespace(ClusterManager):
    """A namespace in which drivers run.

    :param namespace: its name.
    :param conn_id: an Airflow connection of type ``kubernetes``; None for ``kubernetes_default``. If that doesn't
        exist, the cluster in which this process runs is used, or its user's kubeconfig.
    """

    namespace: str
    conn_id: str | None = None

    kind = "kubernetes"
    name = "Kubernetes"
    unknown_seconds = 10.0
    why_unknown = "Its driver's pod was deleted, but not by this task."

    def properties(
        self, conf: Mapping[str, Any], *, application: str, submission: str, result_folder: str, waits: bool
    ) -> dict[str, Any]:
        # Uploaded files are removed together with the result.
        uploads = {"spark.kubernetes.file.upload.path": f"{result_folder}/uploads"}
        pod = submission.replace("_", "-").replace(".", "-")
        return {
            **uploads,
            **conf,
            "spark.kubernetes.namespace": self.namespace,
            "spark.kubernetes.submission.waitAppCompletion": str(waits).lower(),
            "spark.kubernetes.driver.pod.name": f"{pod}-driver",
            f"spark.kubernetes.driver.label.{APPLICATION}": application,
            f"spark.kubernetes.driver.label.{SUBMISSION}": submission,
        }

    def find(self, submission: str) -> ClusterApplication | None:
        pods = self._pods(SUBMISSION, submission)
        return self._application(pods[0]) if pods else None

    def running(self, application: str) -> list[str]:
        return [pod.metadata.name for pod in self._pods(APPLICATION, application) if not _has_ended(pod)]

    def kill(self, submission: str) -> list[str]:
        # A pod that has ended stays, so that its log can be read.
        return self._delete([pod for pod in self._pods(SUBMISSION, submission) if not _has_ended(pod)])

    def kill_all(self, application: str) -> list[str]:
        return self._delete(self._pods(APPLICATION, application))

    def clean_up(self, submission: str) -> None:
        self._delete(self._pods(SUBMISSION, submission))

    def read_log(self, log: str, after: str) -> tuple[list[str], str]:
        limit, known = _MAX_LOG_BYTES, _moment(after)
        while True:
            data = self._log_data(log, known, limit)
            # Other line breaks are part of a line, which has one time.
            stamped = [line.partition(" ") for line in data.decode("utf-8", "replace").split("\n")]
            if is_cut := len(data) >= limit:
                stamped = stamped[:-1]
            # What has no time is the kubelet's own complaint.
            timed = [(moment, stamp, line) for stamp, _, line in stamped if (moment := _moment(stamp)) is not None]
            new = [(stamp, line) for moment, stamp, line in timed if known is None or moment > known]
            if new or not is_cut:
                return [line for _, line in new], new[-1][0] if new else after
            limit *= 2  # the driver has written that much within the overlap

    def _log_data(self, log: str, after: _Moment | None, limit: int) -> bytes:
        """The driver's output from before a time on, each line with its own time; its last line may be cut."""
        pod, _, container = log.partition("/")
        since = None if after is None else int(time.time() - after[0] + _OVERLAP_SECONDS)
        with self._api_errors("read the log of a pod"):
            answer = self._api.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                since_seconds=max(1, since) if since is not None else None,
                timestamps=True,
                limit_bytes=limit,
                _preload_content=False,
                _request_timeout=REQUEST_TIMEOUT,
            )
            data: bytes = answer.data
        return data

    @cached_property
    def _api(self) -> Any:
        return self._client("core_v1_client")

    def _client(self, name: str) -> Any:
        """A client of the API, signed in by the connection.

        :param name: the property of Airflow's hook that has it.
        :raises SparkConnectionError: when the connection gives no access.
        """
        try:
            from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
        except ImportError as error:
            raise missing_provider() from error
        hook = KubernetesHook(conn_id=self.conn_id or KubernetesHook.default_conn_name)
        try:
            return getattr(hook, name)
        except Exception as error:  # of Airflow, its API server, or Kubernetes' client
            raise SparkConnectionError(
                f"The connection {hook.conn_id!r} gives no access to Kubernetes: {error}. Set kubernetes_conn_id in "
                "the extra of the Spark connection to a connection of type kubernetes, or run this task where a "
                "service account or a kubeconfig gives access."
            ) from error

    @contextmanager
    def _api_errors(self, what: str, *, ignored: int = 0) -> Iterator[None]:
        """Raise errors of the API as :class:`ClusterManagerError`.

        :param what: the request, for the message.
        :param ignored: the HTTP status of an error that is none.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except ApiException as error:
            if error.status == ignored:
                return
            raise ClusterManagerError(
                f"Kubernetes refused to {what} in the namespace {self.namespace} ({error.status}: "
                f"{_message(error.body) or error.reason})."
            ) from error
        except (HTTPError, OSError) as error:
            raise ClusterManagerError(
                f"The Kubernetes API server doesn't answer ({error}). Check the connection named by kubernetes_conn_id "
                "in the extra of the Spark connection."
            ) from error

    def _pods(self, label: str, value: str) -> list[Any]:
        """The driver pods with this label, the latest first."""
        api = self._api
        with self._api_errors("list pods"):
            pods = api.list_namespaced_pod(
                self.namespace,
                # The Spark operator gives executors the same labels.
                label_selector=f"{label}={value},spark-role=driver",
                _request_timeout=REQUEST_TIMEOUT,
            ).items
        return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp, reverse=True)

    def _delete(self, pods: list[Any]) -> list[str]:
        """Delete pods, and return the names of those that were running."""
        for pod in pods:
            with self._api_errors("delete a pod", ignored=404):  # already gone
                self._api.delete_namespaced_pod(
                    pod.metadata.name,
                    self.namespace,
                    grace_period_seconds=_GRACE_SECONDS,
                    _request_timeout=REQUEST_TIMEOUT,
                )
        return [pod.metadata.name for pod in pods if not _has_ended(pod)]

    def _application(self, pod: Any) -> ClusterApplication:
        reason = _reason(pod)
        ended = _terminated(pod)
        exit_code = ended.exit_code if ended is not None else None
        return ClusterApplication(
            id=(pod.metadata.labels or {}).get(_SPARK_ID) or pod.metadata.name,
            state=pod.status.phase,
            has_ended=_has_ended(pod) or reason.startswith(_HOPELESS),
            succeeded=pod.status.phase == "Succeeded" or exit_code == 0,
            was_killed=False,
            address=None,
            diagnostics=reason,
            log_command=f"kubectl logs --namespace {self.namespace} {pod.metadata.name}",
            log=None if pod.status.phase == "Pending" else f"{pod.metadata.name}/{_driver_container(pod)}",
        )


def missing_provider() -> SparkConnectionError:
    """The error for a connection to Kubernetes if Airflow's Kubernetes provider isn't installed."""
    return SparkConnectionError(
        "A merge on Kubernetes needs Airflow's Kubernetes provider. Install airflow-provider-delta-merge[kubernetes] "
        "or apache-airflow-providers-cncf-kubernetes."
    )


def _driver_status(pod: Any) -> Any:
    statuses = pod.status.container_statuses or ()
    return next((status for status in statuses if status.name == _DRIVER_CONTAINER), None) or next(iter(statuses), None)


def _driver_container(pod: Any) -> str:
    names = [container.name for container in pod.spec.containers]
    return _DRIVER_CONTAINER if _DRIVER_CONTAINER in names else str(names[0])


def _terminated(pod: Any) -> Any:
    """How the driver's container ended; None if it runs. Others, such as a service mesh's proxy, may still run."""
    status = _driver_status(pod)
    return status.state.terminated if status is not None and status.state is not None else None


def _has_ended(pod: Any) -> bool:
    return pod.status.phase in _ENDED or _terminated(pod) is not None


def _reason(pod: Any) -> str:
    """Why the pod waits or has failed, as ``Reason: message`` in one line; may be empty."""
    status = _driver_status(pod)
    state = status.state if status is not None else None
    found: Any = (state.waiting or state.terminated) if state is not None else None
    if found is None or found.reason in ("ContainerCreating", "Completed"):
        conditions = pod.status.conditions or ()
        unscheduled = (each for each in conditions if each.type == "PodScheduled" and each.status == "False")
        found = next(unscheduled, pod.status)  # has the reason of an evicted pod
    exit_code = getattr(found, "exit_code", None)
    code = f"exit code {exit_code}" if exit_code else ""
    # The message of an ended container comes from the driver, so it may contain secrets.
    message = "" if exit_code is not None else " ".join(str(found.message or "").split())
    return shortened(": ".join(filter(None, [found.reason, code, message])))


def _message(body: Any) -> str:
    try:
        return str(json.loads(body)["message"])
    except (KeyError, TypeError, ValueError):
        return ""


def _moment(stamp: str) -> _Moment | None:
    """A time such as ``2026-01-31T06:00:00.123456789Z``, or with the offset of a node's zone; None if it is none.

    :return: seconds since 1970, and the fraction, which has more digits than Python keeps.
    """
    try:
        return datetime.fromisoformat(stamp).timestamp(), stamp[19:29]
    except ValueError:
        return None
