"""Merges that the Spark operator starts on Kubernetes, each by a resource of kind ``SparkApplication``.

The operator (https://github.com/kubeflow/spark-operator) runs spark-submit in its own pod. It logs the command, so
Spark properties with secrets are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_delta_merge.connections.secrets import holds_secrets
from airflow_delta_merge.exceptions import SparkConnectionError
from airflow_delta_merge.launch.cluster_manager import ClusterApplication, shortened
from airflow_delta_merge.launch.kubernetes import APPLICATION, REQUEST_TIMEOUT, SUBMISSION, KubernetesNamespace
from airflow_delta_merge.launch.spark_output import SparkOutput

_GROUP, _VERSION, _PLURAL = "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
_ENDED = ("COMPLETED", "FAILED")
#: Spark properties for options of spark-submit.
_PROPERTIES = {
    "--archives": "spark.archives",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--packages": "spark.jars.packages",
    "--exclude-packages": "spark.jars.excludes",
    "--repositories": "spark.jars.repositories",
    "--num-executors": "spark.executor.instances",
    "--total-executor-cores": "spark.cores.max",
    "--executor-cores": "spark.executor.cores",
    "--executor-memory": "spark.executor.memory",
    "--driver-memory": "spark.driver.memory",
}
#: Options that name files, and the fields of ``spec.deps`` for them.
_FILES = {"--jars": "jars", "--py-files": "pyFiles", "--files": "files"}
_NAME_OF_SECRET = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\.")
_WITHOUT_VALUE = ("--verbose", "--load-spark-defaults")
#: The operator chooses these itself; the properties are passed as they are.
_LEFT_OUT = ("--master", "--deploy-mode", "--name", "--queue", "--properties-file")


@dataclass(frozen=True, kw_only=True)
class SparkOperatorNamespace(KubernetesNamespace):
    """A namespace in which the Spark operator starts drivers."""

    kind = "spark_operator"

    def create(self, resource: Mapping[str, Any]) -> None:
        """Create a ``SparkApplication``.

        :param resource: from :func:`spark_application`.
        :raises ClusterManagerError: when the API refuses it, e.g. because the Spark operator isn't installed.
        """
        with self._api_errors("create a SparkApplication, a resource of the Spark operator,"):
            self._resources.create_namespaced_custom_object(
                _GROUP, _VERSION, self.namespace, _PLURAL, dict(resource), _request_timeout=REQUEST_TIMEOUT
            )

    def find(self, submission: str) -> ClusterApplication | None:
        """The driver's pod; the resource while there is no pod."""
        if (driver := super().find(submission)) is not None:
            return driver
        return next(map(self._without_pod, self._list(SUBMISSION, submission)), None)

    def running(self, application: str) -> list[str]:
        waiting = [_name(each) for each in self._list(APPLICATION, application) if _state(each) not in _ENDED]
        return [*super().running(application), *waiting]

    def kill(self, submission: str) -> list[str]:
        found = self.find(submission)
        if found is None or (found.has_ended and found.log is not None):
            return []  # the operator deletes the pod with the resource, and its log can still be read
        deleted = self._delete_resources(SUBMISSION, submission)
        return [*super().kill(submission), *deleted]

    def kill_all(self, application: str) -> list[str]:
        deleted = self._delete_resources(APPLICATION, application)
        return [*super().kill_all(application), *deleted]

    def clean_up(self, submission: str) -> None:
        self._delete_resources(SUBMISSION, submission)
        super().clean_up(submission)

    @cached_property
    def _resources(self) -> Any:
        return self._client("custom_object_client")

    def _list(self, label: str, value: str) -> list[dict[str, Any]]:
        with self._api_errors("list SparkApplications, resources of the Spark operator,"):
            answer = self._resources.list_namespaced_custom_object(
                *(_GROUP, _VERSION, self.namespace, _PLURAL),
                label_selector=f"{label}={value}",
                _request_timeout=REQUEST_TIMEOUT,
            )
        return list(answer["items"])

    def _delete_resources(self, label: str, value: str) -> list[str]:
        """Delete resources, and return the names of those that hadn't ended."""
        resources = self._list(label, value)
        for each in resources:
            with self._api_errors("delete a SparkApplication", ignored=404):  # already gone
                self._resources.delete_namespaced_custom_object(
                    *(_GROUP, _VERSION, self.namespace, _PLURAL, _name(each)), _request_timeout=REQUEST_TIMEOUT
                )
        return [_name(each) for each in resources if _state(each) not in _ENDED]

    def _without_pod(self, resource: Mapping[str, Any]) -> ClusterApplication:
        state = _state(resource)
        message = resource.get("status", {}).get("applicationState", {}).get("errorMessage", "")
        output = SparkOutput()
        for line in message.splitlines():
            output.read(line)
        why = output.reason or message if state else "waits for the Spark operator"
        return ClusterApplication(
            id=_name(resource),
            state=state or "NEW",
            has_ended=state in _ENDED,
            succeeded=state == "COMPLETED",
            was_killed=False,
            address=None,
            diagnostics=shortened(" ".join(why.split())),
            log_command=f"kubectl describe sparkapplication --namespace {self.namespace} {_name(resource)}",
        )


def spark_application(
    options: Sequence[str],
    properties: Mapping[str, str],
    *,
    application: str,
    arguments: Sequence[str],
    for_driver: Callable[[str], str],
    spark_version: str,
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """The resource with which the operator runs what spark-submit would.

    :param options: spark-submit's options.
    :param properties: Spark properties, with those of
        :class:`~airflow_delta_merge.launch.kubernetes.KubernetesNamespace`.
    :param application: the Python file.
    :param arguments: its arguments.
    :param for_driver: makes of a file of this machine, or a URI, the URI by which the driver reads it.
    :param spark_version: the image's Spark.
    :param labels: of the resource.
    :raises SparkConnectionError: when an option or a property can't be given to the operator.
    """
    # These properties name Kubernetes' secrets.
    values = {name: value for name, value in properties.items() if not _NAME_OF_SECRET.match(name)}
    if secrets := holds_secrets(values):
        raise SparkConnectionError(
            f"The merge has Spark properties with secrets ({', '.join(sorted(secrets))}), which the Spark operator "
            "would log. Give the driver's pod access by its service account or by "
            "spark.kubernetes.driver.secretKeyRef.… instead."
        )
    conf, deps, spec = dict(properties), dict[str, list[str]](), dict[str, str]()
    pairs = iter(each for each in options if each not in _WITHOUT_VALUE)
    for option, value in zip(pairs, pairs, strict=True):
        if option == "--conf":
            name, _, text = value.partition("=")
            conf[name] = text
        elif option in _PROPERTIES:
            conf[_PROPERTIES[option]] = value
        elif option in _FILES:
            deps[_FILES[option]] = [for_driver(file) for file in value.split(",")]
        elif option == "--proxy-user":
            spec["proxyUser"] = value
        elif option not in _LEFT_OUT:
            name = option.lstrip("-").replace("-", "_")
            raise SparkConnectionError(f"{name} is not available with spark_operator. Remove one of them.")
    return {
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "kind": "SparkApplication",
        "metadata": {
            # So the operator gives the pod the name that is in the properties.
            "name": conf.pop("spark.kubernetes.driver.pod.name").removesuffix("-driver"),
            "namespace": conf["spark.kubernetes.namespace"],
            "labels": dict(labels),
        },
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": spark_version,
            "mainApplicationFile": for_driver(application),
            "arguments": list(arguments),
            "sparkConf": conf,
            "deps": deps,
            "restartPolicy": {"type": "Never"},  # Airflow retries
            "driver": {},
            "executor": {},
            **spec,
        },
    }


def _name(resource: Mapping[str, Any]) -> str:
    return str(resource["metadata"]["name"])


def _state(resource: Mapping[str, Any]) -> str:
    """The operator's word; empty until it has seen the resource."""
    return str(resource.get("status", {}).get("applicationState", {}).get("state", ""))
