"""Merges whose driver runs on the cluster: where their result is written, and how they are found and ended.

The driver writes its result to ``<result_path>/<application>/<submission>.json``, on storage that the worker can reach.
``<application>`` is the same for every try of a task instance, so fetching a result also removes the files of earlier
tries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.connections.spark import ConnectionSettings
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.exceptions import SparkConnectionError
from airflow_delta_merge.launch.yarn import ResourceManager

if TYPE_CHECKING:
    from airflow_delta_merge.launch.staging import Staging

_TAG_PREFIX = "airflow_delta_merge_"
_TAG_DIGITS = 32
_TAGS = "spark.yarn.tags"


def check_cluster_mode(conn_id: str, master: str, settings: ConnectionSettings) -> None:
    """Check that a connection with deploy mode cluster has the required settings.

    :raises SparkConnectionError: when it doesn't.
    """
    problem = ""
    if master.startswith("spark://"):
        problem = "in which Spark can't run Python applications on a standalone cluster. Use deploy mode client."
    elif not master.startswith(("yarn", "k8s://")):
        problem = f"which Spark doesn't support with the master {master}. Use deploy mode client."
    elif settings.result_path is None:
        problem = (
            "but no result_path in its extra. Set it to the URI of a folder that the cluster and this worker can both "
            "reach (hdfs:///…, s3a://…, file:///…), or use deploy mode client."
        )
    elif master.startswith("yarn") and settings.resource_manager is None:
        problem = (
            "but no yarn_resourcemanager_webapp_address in its extra, which is needed to end applications. Set it, "
            "e.g. to http://rm.internal:8088, or use deploy mode client."
        )
    if problem:
        raise SparkConnectionError(f"The Spark connection {conn_id!r} has deploy mode cluster, {problem}")


def check_deferrable(conn_id: str, master: str) -> None:
    """Check that a triggerer can follow a merge whose driver runs on the cluster.

    :raises SparkConnectionError: when it can't.
    """
    if not master.startswith("yarn"):
        raise SparkConnectionError(
            f"The Spark connection {conn_id!r} has deploy mode cluster on Kubernetes, where a merge can't be deferred. "
            "Set deferrable=False, or use deploy mode client."
        )


@dataclass(frozen=True, kw_only=True)
class ClusterMode:
    """How one merge runs with its driver on the cluster; JSON types by :meth:`to_dict`, for deferred tasks.

    :param result_path: the folder for results, as a URI.
    :param application: names all tries of a task instance, or only this one for a merge without identity.
    :param submission: names this try.
    :param resource_manager: YARN's ResourceManager; None for Kubernetes.
    :param waits: whether spark-submit waits for the application's end; it may not wait only on YARN.
    """

    result_path: str
    application: str
    submission: str
    resource_manager: ResourceManager | None
    waits: bool = True

    @classmethod
    def of(
        cls,
        settings: ConnectionSettings,
        staging: Staging,
        identity: MergeIdentity | None,
        *,
        on_yarn: bool,
        waits: bool,
    ) -> ClusterMode:
        """Build it for the merge with these staged files; the connection must have been checked before."""
        assert settings.result_path is not None
        application = submission = staging.folder.name
        if identity is not None:
            digest = hashlib.sha256(identity.application_id.encode()).hexdigest()
            application = f"{_TAG_PREFIX}{digest[:_TAG_DIGITS]}"
        return cls(
            result_path=settings.result_path,
            application=application,
            submission=submission,
            resource_manager=ResourceManager(settings.resource_manager or "") if on_yarn else None,
            waits=waits,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ClusterMode:
        """Restore it from :meth:`to_dict`."""
        resource_manager = data["resource_manager"]
        return cls(**{**data, "resource_manager": resource_manager and ResourceManager(**resource_manager)})

    @property
    def result_folder(self) -> str:
        """The folder with the results of all tries."""
        return f"{self.result_path.rstrip('/')}/{self.application}"

    @property
    def result(self) -> str:
        """The URI of this try's result."""
        return f"{self.result_folder}/{self.submission}.json"

    @property
    def driver_pod(self) -> str:
        """The name of the driver pod on Kubernetes."""
        return f"{self.submission.replace('_', '-')}-driver"

    def properties(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """``conf`` with the properties for cluster mode."""
        if self.resource_manager is None:
            waits = {"spark.kubernetes.submission.waitAppCompletion": "true"}
            return {**conf, **waits, "spark.kubernetes.driver.pod.name": self.driver_pod}
        once = {"spark.yarn.maxAppAttempts": "1"}  # Airflow, not YARN, retries a failed driver
        tags = [conf.get(_TAGS), *dict.fromkeys([self.application, self.submission])]
        waits = {"spark.yarn.submit.waitAppCompletion": str(self.waits).lower()}
        return {**once, **conf, **waits, _TAGS: ",".join(filter(None, tags))}

    def end_predecessors(self) -> list[str]:
        """End applications of earlier tries that still run on YARN, and return their ids.

        :raises ResourceManagerError: when YARN can't be reached.
        """
        return self.resource_manager.end(self.application) if self.resource_manager else []
