"""An Airflow connection of type ``kubernetes``: how spark-submit reaches the cluster, and where pods run."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from airflow_delta_merge.connections.fields import ConnectionFields
from airflow_delta_merge.exceptions import SparkConnectionError

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, kw_only=True)
class KubernetesAccess:
    """What a connection of type ``kubernetes`` says.

    :param namespace: the namespace for pods.
    :param context: the context of the kubeconfig; None for the current one.
    :param config_path: the path of a kubeconfig on the worker.
    :param config: a kubeconfig as JSON.
    """

    namespace: str | None = None
    context: str | None = None
    config_path: str | None = None
    config: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, conn_id: str) -> KubernetesAccess:
        """Read a connection.

        :raises SparkConnectionError: when there is no such connection, it has another type, or a field of a wrong type.
        """
        fields = _KubernetesConnection.of(conn_id, "Kubernetes", parameter="kubernetes_conn_id", types=("kubernetes",))
        config = fields.value("kube_config")
        return cls(
            namespace=fields.text("namespace"),
            context=fields.text("cluster_context"),
            config_path=fields.text("kube_config_path"),
            config=json.dumps(config) if isinstance(config, dict) else fields.text("kube_config"),
        )


class _KubernetesConnection(ConnectionFields):
    error = SparkConnectionError


def own_namespace() -> str | None:
    """The namespace of the pod in which this process runs; None outside Kubernetes."""
    try:
        return (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def own_pod() -> str | None:
    """The name of the pod in which this process runs; None outside Kubernetes."""
    return os.environ.get("HOSTNAME") if "KUBERNETES_SERVICE_HOST" in os.environ else None


def own_address(master: str) -> str:
    """This machine's or pod's address in the network through which it reaches the API server.

    :param master: such as ``k8s://https://kubernetes.internal:6443``.
    """
    with suppress(OSError, ValueError):
        server = urlsplit(master.removeprefix("k8s://"))
        address = (server.hostname or "", server.port or 443)
        family, kind, _, _, target = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as found:
            found.connect(target)  # sends nothing, and chooses a route
            return str(found.getsockname()[0])
    return socket.gethostname()
