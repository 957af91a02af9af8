"""The programs of the cluster's one node: how each is configured, and in which order they start."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kubernetes import images
from tests.kubernetes.certificates import Certificates
from tests.kubernetes.host import ADDRESS, BRIDGE, PODS, RUN
from tests.kubernetes.processes import Processes
from tests.kubernetes.programs import plugins

NAME = "node1"
PORT = 6443
SERVICES = "10.96.0.0/16"
#: The API server as pods know it: the first address of the services.
SERVICE_ADDRESS = "10.96.0.1"
ETCD = "http://127.0.0.1:23790"
ETCD_PEERS = "http://127.0.0.1:23800"
SOCKET = RUN / "containerd.sock"
PROCESSES = ("etcd", "containerd", "apiserver", "controller-manager", "scheduler", "kubelet", "proxy")
_PARTS = {
    "controller-manager": "system:kube-controller-manager",
    "proxy": "system:kube-proxy",
    "scheduler": "system:kube-scheduler",
}
_SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_CONTAINERD = """\
version = 2
root = "{state}/containerd"
state = "{run}/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  stream_server_address = "127.0.0.1"
  disable_apparmor = true
  # runc fails with "EOF" where even root may not lower a process's oom_score_adj.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{state}/network"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{run}/runc"
"""


class Node:
    """Starts the node's programs.

    :param state: a new folder, on a disk: overlayfs of containers doesn't work everywhere.
    :param binaries: the folder of the built programs.
    """

    def __init__(self, state: Path, binaries: Path, processes: Processes) -> None:
        self._state, self._binaries, self._processes = state, binaries, processes
        self.server = f"https://{ADDRESS}:{PORT}"
        self.kubeconfig = self._kubeconfig("admin")

    def write_files(self) -> None:
        """Write certificates, kubeconfigs, images and the programs' configuration."""
        self._write_certificates()
        images.write_pause(self._state / "pause.tar", self._binaries / "pause")
        images.write_spark(self._state / "spark.tar")
        values = {"state": self._state, "run": RUN, "socket": SOCKET, "pause": images.PAUSE, "plugins": plugins()}
        (self._state / "containerd.toml").write_text(_CONTAINERD.format(**values))
        (self._state / "network").mkdir()
        for name, content in (
            ("network/bridge.conflist", self._network()),
            ("kubelet.json", self._kubelet()),
            ("proxy.json", self._proxy()),
        ):
            (self._state / name).write_text(json.dumps(content, indent=1))

    def start_server(self, ready: Callable[[], Any]) -> None:
        """Start etcd, containerd and the API server, until the API server is ready."""
        start, wait_for, state = self._processes.start, self._processes.wait_for, self._state
        etcd = {
            "data-dir": state / "etcd",
            "listen-client-urls": ETCD,
            "advertise-client-urls": ETCD,
            "listen-peer-urls": ETCD_PEERS,
            "initial-advertise-peer-urls": ETCD_PEERS,
            "initial-cluster": f"default={ETCD_PEERS}",
        }
        start("etcd", [self._binaries / "etcd", *_flags(etcd), "--unsafe-no-fsync"])
        start("containerd", ["containerd", "--config", state / "containerd.toml"])
        wait_for("etcd", lambda: is_healthy(f"{ETCD}/health"))
        start("apiserver", [self._binaries / "kube-apiserver", *_flags(self._server_options())])
        wait_for("containerd", lambda: containerd("version"))
        for image in ("pause", "spark"):
            import_image(state / f"{image}.tar")
        wait_for("the API server", ready)

    def start_parts(self) -> None:
        """Start what works by the API server: controllers, scheduler, kubelet and the services' network."""
        for name in ("controller-manager", "scheduler"):
            kubeconfig = self._kubeconfig(name)
            options: dict[str, object] = {
                "kubeconfig": kubeconfig,
                "authentication-kubeconfig": kubeconfig,
                "authorization-kubeconfig": kubeconfig,
                "bind-address": "127.0.0.1",
                "leader-elect": "false",
            }
            if name == "controller-manager":
                options["use-service-account-credentials"] = "true"
                options["service-account-private-key-file"] = self._pki("service-accounts.key")
                options["root-ca-file"] = self._pki("ca.crt")
            self._processes.start(name, [self._binaries / f"kube-{name}", *_flags(options)])
        kubelet = {
            "config": self._state / "kubelet.json",
            "kubeconfig": self._kubeconfig("kubelet"),
            "hostname-override": NAME,
            "node-ip": ADDRESS,
            "root-dir": self._state / "kubelet",
        }
        self._processes.start("kubelet", [self._binaries / "kubelet", *_flags(kubelet)])
        self._processes.start("proxy", [self._binaries / "kube-proxy", "--config", self._state / "proxy.json"])
        self._processes.wait_for("kube-proxy", lambda: is_healthy("http://127.0.0.1:10256/healthz"))

    def _write_certificates(self) -> None:
        certificates = Certificates(self._state / "pki")
        names = [*_SERVER_NAMES, "127.0.0.1", ADDRESS, SERVICE_ADDRESS]
        certificates.issue("apiserver", "kube-apiserver", reached_at=names)
        certificates.issue("admin", "admin", group="system:masters")
        certificates.issue("kubelet", f"system:node:{NAME}", group="system:nodes", reached_at=[ADDRESS, NAME])
        for name, user in _PARTS.items():
            certificates.issue(name, user)
        certificates.issue_key_pair("service-accounts")
        for name in ("admin", "kubelet", *_PARTS):
            certificates.write_kubeconfig(self._kubeconfig(name), name, self.server)

    def _server_options(self) -> dict[str, object]:
        pki = self._pki
        return {
            "etcd-servers": ETCD,
            "bind-address": ADDRESS,
            "advertise-address": ADDRESS,
            "secure-port": PORT,
            "tls-cert-file": pki("apiserver.crt"),
            "tls-private-key-file": pki("apiserver.key"),
            "client-ca-file": pki("ca.crt"),
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": pki("service-accounts.pub"),
            "service-account-signing-key-file": pki("service-accounts.key"),
            "service-cluster-ip-range": SERVICES,
            # The node's name can't be resolved, and logs are read from the node.
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": pki("admin.crt"),
            "kubelet-client-key": pki("admin.key"),
            "kubelet-certificate-authority": pki("ca.crt"),
        }

    def _network(self) -> dict[str, Any]:
        ranges = [[{"subnet": PODS, "rangeStart": "10.244.0.10", "gateway": ADDRESS}]]
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            "isDefaultGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": str(self._state / "addresses"), "ranges": ranges},
        }
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}

    def _kubelet(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "healthzBindAddress": "127.0.0.1",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._pki("ca.crt"))},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(self._pki("kubelet.crt")),
            "tlsPrivateKeyFile": str(self._pki("kubelet.key")),
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            # The machine need not have systemd, nor version 2 of control groups.
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(self._state / "logs" / "pods"),
            # No DNS: a name fails at once, where the host's servers would let a pod wait.
            "resolvConf": "",
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
            # An image that is removed can't be had again.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }

    def _proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._kubeconfig("proxy"))},
            "mode": "nftables",
            "bindAddress": ADDRESS,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "clusterCIDR": PODS,
            "hostnameOverride": NAME,
            # 0: leave the host's own limits.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }

    def _kubeconfig(self, name: str) -> Path:
        return self._state / f"{name}.kubeconfig"

    def _pki(self, name: str) -> Path:
        return self._state / "pki" / name


def containerd(*arguments: str) -> bool:
    """Run ``ctr`` of the node's containerd."""
    subprocess.run(["ctr", "--address", str(SOCKET), *arguments], capture_output=True, check=True)
    return True


def import_image(archive: Path) -> None:
    """Give the node the images of an archive as ``docker save`` writes it."""
    containerd("--namespace", "k8s.io", "images", "import", str(archive))


def is_healthy(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as answer:
        return bool(answer.status == 200)


def _flags(options: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]
