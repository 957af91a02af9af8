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
from airflow_delta_merge.launch.cluster_manager import ClusterManager
from airflow_delta_merge.launch.kubernetes import KubernetesNamespace
from airflow_delta_merge.launch.spark_operator import SparkOperatorNamespace
from airflow_delta_merge.launch.yarn import ResourceManager

if TYPE_CHECKING:
    from airflow_delta_merge.launch.staging import Staging

_TAG_PREFIX = "airflow_delta_merge_"
_TAG_DIGITS = 32
_MANAGERS: dict[str, type[ResourceManager | KubernetesNamespace]] = {
    each.kind: each for each in (ResourceManager, KubernetesNamespace, SparkOperatorNamespace)
}


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
    elif settings.spark_operator and not settings.result_path.startswith("file:///"):
        problem = (
            f"and the Spark operator, which can't start a merge from the result_path {settings.result_path}. Set "
            "result_path to a folder that the worker and the driver's pod mount at the same path (file:///…), or "
            "remove spark_operator."
        )
    elif master.startswith("yarn") and settings.resource_manager is None:
        problem = (
            "but no yarn_resourcemanager_webapp_address in its extra, which is needed to end applications. Set it, "
            "e.g. to http://rm.internal:8088, or use deploy mode client."
        )
    if problem:
        raise SparkConnectionError(f"The Spark connection {conn_id!r} has deploy mode cluster, {problem}")


@dataclass(frozen=True, kw_only=True)
class ClusterMode:
    """How one merge runs with its driver on the cluster; JSON types by :meth:`to_dict`, for deferred tasks.

    :param result_path: the folder for results, as a URI.
    :param application: names all tries of a task instance, or only this one for a merge without identity.
    :param submission: names this try.
    :param manager: the cluster.
    :param waits: whether spark-submit waits for the application's end. If not, the application is followed through
        the cluster's API.
    """

    result_path: str
    application: str
    submission: str
    manager: ClusterManager
    waits: bool

    @classmethod
    def of(
        cls,
        settings: ConnectionSettings,
        staging: Staging,
        identity: MergeIdentity | None,
        manager: ClusterManager,
        *,
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
            manager=manager,
            waits=waits,
        )

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        return {**data, "manager": {"kind": self.manager.kind, **data["manager"]}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ClusterMode:
        """Restore it from :meth:`to_dict`."""
        arguments = dict(data["manager"])
        manager = _MANAGERS[arguments.pop("kind")](**arguments)
        return cls(**{**data, "manager": manager})

    def properties(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """``conf`` with the Spark properties by which the cluster finds this merge."""
        return self.manager.properties(
            conf,
            application=self.application,
            submission=self.submission,
            result_folder=self.result_folder,
            waits=self.waits,
        )

    @property
    def result_folder(self) -> str:
        """The folder with the results of all tries."""
        return f"{self.result_path.rstrip('/')}/{self.application}"

    @property
    def result(self) -> str:
        """The URI of this try's result."""
        return f"{self.result_folder}/{self.submission}.json"
