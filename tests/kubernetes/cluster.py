"""A Kubernetes of one node on this machine, without Docker, for tests of Spark on Kubernetes.

It needs root, and nothing from outside but Debian's packages and the Go modules that its programs are built from. There
is no cluster DNS: pods reach each other, the API server and the host (``10.244.0.1``) by address, nothing by name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from kubernetes import client, config

from tests.kubernetes import host, images, node, spark
from tests.kubernetes.processes import Processes
from tests.kubernetes.programs import ROOT, CannotRunError, binaries, install_packages

FOLDER = ROOT / ".cache" / "kubernetes" / "node"


class Cluster:
    """The cluster. There is one at a time on a machine, as its addresses are fixed.

    :param folder: for all its state, on a disk. It is deleted at the start, and all but the logs at the end.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder.absolute()
        self._lock = host.Lock()
        self._processes = Processes(host.RUN, self.folder / "logs")

    def start(self) -> None:
        """Start the cluster, after what a killed run left behind is cleaned up.

        :raises CannotRunError: when this machine can't run it.
        """
        if os.geteuid() != 0:
            raise CannotRunError("The cluster needs root: it makes containers, a network bridge and mounts.")
        install_packages()
        built = binaries()
        self._lock = host.Lock()
        self._lock.take()
        try:
            self._clean_up(host.state_left_behind() or self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)
            (self.folder / "logs").mkdir(parents=True)
            host.prepare(self.folder)
            self._start(node.Node(self.folder, built, self._processes))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the cluster and put the host back as it was. The logs stay in ``folder/logs``."""
        self._clean_up(self.folder)
        self._lock.release()

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """The API server: ``--master k8s://<address>``."""
        return f"https://{host.ADDRESS}:{node.PORT}"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self.folder / "admin.kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """With these variables a client, such as spark-submit, reaches the cluster as administrator."""
        addresses = f"{host.ADDRESS},{node.SERVICE_ADDRESS}"
        return {"KUBECONFIG": str(self.kubeconfig), "NO_PROXY": addresses, "no_proxy": addresses}

    @property
    def api(self) -> client.CoreV1Api:
        """The API for pods and the like, as administrator."""
        return client.CoreV1Api(self.client)

    def namespace(self, name: str) -> str:
        """Create a namespace with the service account ``spark``, which has a driver's rights there and nowhere else.

        :return: its name.
        """
        rights = client.RbacAuthorizationV1Api(self.client)
        account = {"metadata": {"name": spark.SERVICE_ACCOUNT}}
        self.api.create_namespace({"metadata": {"name": name}})
        self.api.create_namespaced_service_account(name, account)
        rights.create_namespaced_role(name, account | {"rules": spark.RULES})
        binding = {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": spark.SERVICE_ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": spark.SERVICE_ACCOUNT, "namespace": name}],
        }
        rights.create_namespaced_role_binding(name, account | binding)
        return name

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace and all that is in it; its pods end a little later."""
        self.api.delete_namespace(name)

    def import_image(self, archive: Path) -> None:
        """Give the node the images of an archive as ``docker save`` writes it."""
        node.import_image(archive)

    def spark_conf(self, namespace: str, shared: Path | None = None, image: str = images.SPARK) -> dict[str, str]:
        """The Spark properties that every application needs here.

        Pods run as root. Spark, Java and Python 3.11 are the host's, read-only; of Python packages there are only
        ``pyspark`` and ``py4j``. Clients sign in by ``environment``.

        :param namespace: one that ``namespace`` made.
        :param shared: a folder of the host that driver and executors may write to, at the same path.
        :param image: another image, which has Spark, Java and Python.
        """
        return spark.properties(namespace, shared, image)

    def run(self, namespace: str, name: str, *command: str) -> None:
        """Start a pod that runs a program of the host's, as root."""
        container = {"name": "main", "command": list(command)}
        self.api.create_namespaced_pod(namespace, spark.pod(name, spark.HOST_FOLDERS, container))

    def phase(self, namespace: str, pod: str) -> str:
        """A pod's phase: Pending, Running, Succeeded or Failed."""
        return str(self.api.read_namespaced_pod(pod, namespace).status.phase)

    def log(self, namespace: str, pod: str) -> str:
        """What a pod has written so far."""
        # Otherwise the client makes another text of what looks like JSON.
        answer = self.api.read_namespaced_pod_log(pod, namespace, _preload_content=False)
        return bytes(answer.data).decode()

    def wait_for_end(self, namespace: str, pod: str) -> str:
        """Wait until a pod has ended, at most two minutes.

        :return: its phase, Succeeded or Failed.
        """
        self.wait_for(f"the end of {pod}", lambda: self.phase(namespace, pod) in ("Succeeded", "Failed"))
        return self.phase(namespace, pod)

    def wait_for(self, what: str, condition: Callable[[], Any]) -> None:
        """Wait until a condition holds, at most two minutes."""
        self._processes.wait_for(what, condition)

    def _start(self, of: node.Node) -> None:
        of.write_files()
        of.start_server(self._is_ready)
        of.start_parts()
        self._processes.wait_for("the node", self._has_node)
        # Pods are refused before there is one.
        self._processes.wait_for(
            "service accounts", lambda: self.api.read_namespaced_service_account("default", "default")
        )

    def _is_ready(self) -> bool:
        answer = self.client.request("GET", f"{self.address}/readyz", _preload_content=False)
        return bool(answer.status == 200)

    def _has_node(self) -> bool:
        conditions = self.api.read_node(node.NAME).status.conditions or []
        return any(each.type == "Ready" and each.status == "True" for each in conditions)

    @property
    def client(self) -> Any:
        """What the APIs of ``kubernetes.client`` are made of, as administrator."""
        settings = client.Configuration()
        config.load_kube_config(str(self.kubeconfig), client_configuration=settings)
        settings.proxy = None
        return client.ApiClient(settings)

    def _clean_up(self, state: Path) -> None:
        """End all processes and put the host back. Does nothing where there is nothing to clean up."""
        if host.state_left_behind() is None:
            return
        self._processes.kill(*node.PROCESSES)
        host.kill_pods()
        host.restore(state)
        for entry in state.iterdir() if state.exists() else ():
            if entry.is_dir() and entry.name != "logs":
                shutil.rmtree(entry)
