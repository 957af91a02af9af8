"""Airflow's connections to the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.processes import SMALL
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.images import SPARK


def environment(
    cluster: Cluster,
    namespace: str,
    shared: Path,
    results: Path,
    *,
    kube: dict[str, Any] | None = None,
    conf: dict[str, str] | None = None,
    image: str = SPARK,
) -> dict[str, str]:
    """Variables with connections in cluster mode (``pods``), the same by the Spark operator (``operator``), and in
    client mode (``pods_of_executors``).

    :param shared: the folder that pods and this machine share.
    :param results: a folder in it for results.
    :param kube: the extra of the connection ``kube``, by which both reach the API server; by default the path of the
        administrator's kubeconfig.
    :param conf: more Spark properties.
    :param image: the image of drivers and executors.
    """
    properties = {
        **SMALL,
        "spark.executor.instances": 1,
        **cluster.spark_conf(namespace, shared, image),
        **(conf or {}),
    }
    client = {"kubernetes_conn_id": "kube", "conf": properties}
    of_cluster = {**client, "deploy-mode": "cluster", "result_path": results.as_uri()}
    host = {"conn_type": "delta_merge", "host": f"k8s://{cluster.address}"}
    kubernetes = {"conn_type": "kubernetes", "extra": kube or {"kube_config_path": str(cluster.kubeconfig)}}
    return {
        # The kubeconfig comes from the connection.
        **{name: value for name, value in cluster.environment.items() if name != "KUBECONFIG"},
        "AIRFLOW_CONN_KUBE": json.dumps(kubernetes),
        "AIRFLOW_CONN_OPERATOR": json.dumps(host | {"extra": of_cluster | {"spark_operator": True}}),
        "AIRFLOW_CONN_PODS": json.dumps(host | {"extra": of_cluster}),
        "AIRFLOW_CONN_PODS_OF_EXECUTORS": json.dumps(host | {"extra": client}),
    }
