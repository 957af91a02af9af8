"""How Spark runs on the cluster: what its pods mount, and the rights of its drivers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyspark

from airflow_delta_merge.runtime.java import check_java
from tests.kubernetes.images import SPARK, SPARK_FOLDERS, SPARK_HOME
from tests.kubernetes.node import SERVICE_ADDRESS

SERVICE_ACCOUNT = "spark"
HOST_SPARK = Path(pyspark.__file__).parent
#: Debian's Java and Python, and what they have links to.
HOST_FOLDERS = ("/usr", "/etc/alternatives", "/etc/ssl", *map(str, Path("/etc").glob("java-*")))
#: A driver makes its executors and their ConfigMap, and deletes all of them by their label.
RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
]


def properties(namespace: str, shared: Path | None, image: str = SPARK) -> dict[str, str]:
    """The Spark properties that every application needs here (``Cluster.spark_conf``)."""
    conf = {
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.authenticate.driver.serviceAccountName": SERVICE_ACCOUNT,
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": "Never",
        # Without DNS, neither the API server nor the driver has a name.
        "spark.kubernetes.driver.master": f"https://{SERVICE_ADDRESS}:443",
        "spark.kubernetes.executor.useDriverPodIP": "true",
        "spark.kubernetes.driver.request.cores": "0.3",
        "spark.kubernetes.executor.request.cores": "0.3",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "600m",
        "spark.executor.cores": "1",
    }
    if image == SPARK:
        conf |= _of_host()
    if shared is not None:
        conf |= _volume("shared", str(shared), str(shared), read_only=False)
    return conf


def _of_host() -> dict[str, str]:
    """What an image needs that has nothing: the host's Java, Python and Spark."""
    java = java_home()
    conf = {
        "spark.kubernetes.driverEnv.JAVA_HOME": str(java),
        "spark.executorEnv.JAVA_HOME": str(java),
        # Not the virtual environment's: pods have nothing of it but Spark, as other clusters do.
        "spark.pyspark.python": "/usr/bin/python3",
    }
    for number, (host, pod) in enumerate(_mounts(java).items()):
        conf |= _volume(f"host-{number}", host, pod, read_only=True)
    return conf


def pod(
    name: str, folders: Iterable[str], container: Mapping[str, Any], *, writable: Path | None = None
) -> dict[str, Any]:
    """A pod, run as root, that has folders of the host at the same path.

    :param folders: these are read-only.
    :param container: the rest of its container.
    :param writable: another folder, which it may write to.
    """
    mounted = dict.fromkeys(folders, True)
    if writable is not None:
        mounted[str(writable)] = False
    volumes = {f"host-{number}": folder for number, folder in enumerate(mounted)}
    mounts = [{"name": key, "mountPath": path, "readOnly": mounted[path]} for key, path in volumes.items()]
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        "containers": [{"image": SPARK, "imagePullPolicy": "Never", "volumeMounts": mounts, **container}],
        "volumes": [{"name": key, "hostPath": {"path": path}} for key, path in volumes.items()],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _mounts(java: Path) -> dict[str, str]:
    """The folders of the host, and where pods see them."""
    folders = folders_with(java)
    spark = {str(HOST_SPARK / name): f"{SPARK_HOME}/{name}" for name in SPARK_FOLDERS}
    return {folder: folder for folder in folders} | spark


def _volume(name: str, host: str, pod: str, *, read_only: bool) -> dict[str, str]:
    conf = {}
    for role in ("driver", "executor"):
        prefix = f"spark.kubernetes.{role}.volumes.hostPath.{name}"
        conf[f"{prefix}.options.path"] = host
        conf[f"{prefix}.mount.path"] = pod
        conf[f"{prefix}.mount.readOnly"] = json.dumps(read_only)
    return conf


def folders_with(java: Path) -> list[str]:
    """The host's folders that programs need, and Java's."""
    return [*HOST_FOLDERS] if java.is_relative_to("/usr") else [*HOST_FOLDERS, str(java)]


def java_home() -> Path:
    """The host's Java."""
    return Path(check_java()[0]).resolve().parents[1]
