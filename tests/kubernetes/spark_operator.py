"""The Spark operator on the cluster: its kinds of resources, and its controller in a pod."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml
from kubernetes import client

from tests.kubernetes import spark
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import OPERATOR, OPERATOR_RESOURCES, binaries

GROUP, VERSION, PLURAL = "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
POD = "spark-operator"


@contextmanager
def kinds_of_resources(cluster: Cluster) -> Iterator[None]:
    """Make the cluster know ``SparkApplication`` and what else the operator serves."""
    definitions = client.ApiextensionsV1Api(cluster.client)
    files = sorted((binaries() / OPERATOR_RESOURCES).glob("*.yaml"))
    made = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    for each in made:
        definitions.create_custom_resource_definition(each)
    names = [each["metadata"]["name"] for each in made]
    cluster.wait_for("the operator's resources", lambda: all(_is_served(definitions, name) for name in names))
    yield
    for name in names:
        definitions.delete_custom_resource_definition(name)


def _is_served(definitions: client.ApiextensionsV1Api, name: str) -> bool:
    conditions = definitions.read_custom_resource_definition(name).status.conditions or []
    return any(each.type == "Established" and each.status == "True" for each in conditions)


def start(cluster: Cluster, namespace: str) -> None:
    """Start a controller that serves one namespace, from a pod in it."""
    account = {"metadata": {"name": POD}}
    cluster.api.create_namespaced_service_account(namespace, account)
    binding = {
        "metadata": {"name": f"{POD}-{namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": POD, "namespace": namespace}],
    }
    client.RbacAuthorizationV1Api(cluster.client).create_cluster_role_binding(binding)
    program = binaries() / OPERATOR
    # It runs spark-submit, of the host's Spark.
    java = spark.java_home()
    folders = [*spark.folders_with(java), str(spark.HOST_SPARK), str(program.parent)]
    options = [f"--namespaces={namespace}", "--enable-ui-service=false", "--zap-devel"]
    container = {
        "name": "main",
        "command": [str(program), "controller", "start", *options],
        "env": [
            {"name": "SPARK_HOME", "value": str(spark.HOST_SPARK)},
            {"name": "JAVA_HOME", "value": str(java)},
        ],
    }
    pod = spark.pod(POD, folders, container)
    pod["spec"]["serviceAccountName"] = POD
    cluster.api.create_namespaced_pod(namespace, pod)
    cluster.wait_for("the Spark operator", lambda: cluster.phase(namespace, POD) == "Running")


def resources(cluster: Cluster, namespace: str) -> list[str]:
    """The names of the namespace's ``SparkApplication``."""
    listed = client.CustomObjectsApi(cluster.client).list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL)
    return [each["metadata"]["name"] for each in listed["items"]]
