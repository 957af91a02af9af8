"""What becomes of drivers and executors in a namespace."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.kubernetes.cluster import Cluster


class Pods:
    """The pods of a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def all(self, role: str) -> list[Any]:
        pods = self._cluster.api.list_namespaced_pod(self._namespace, label_selector=f"spark-role={role}").items
        return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp)

    def names(self, role: str) -> list[str]:
        return [pod.metadata.name for pod in self.all(role)]

    def delete(self, role: str) -> None:
        """Delete all of a role at once, as a node that fails does."""
        for name in self.names(role):
            self._cluster.api.delete_namespaced_pod(name, self._namespace, grace_period_seconds=0)

    def is_at_work(self) -> bool:
        """Whether an executor has begun a task."""
        for name in self.names("executor"):
            with suppress(Exception):  # it may not have started
                if "Running task" in self._cluster.log(self._namespace, name):
                    return True
        return False
