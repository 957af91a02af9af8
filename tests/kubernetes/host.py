"""What the cluster changes on its host, and how that is put back.

Programs of the cluster themselves change more than they are asked to: kubelet and the network plugins set kernel
parameters, kube-proxy writes nftables, and pods leave mounts, network namespaces and control groups.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from tests.kubernetes.programs import CannotRunError

#: The host as pods see it, and the pods' network. Docker's are others (172.17.0.0/16, on some machines 198.18.0.0/15).
ADDRESS = "10.244.0.1"
PODS = "10.244.0.0/24"
BRIDGE = "deltamerge0"
#: For sockets, whose paths must be short, and for what the next run needs to clean up after a killed one.
RUN = Path("/run/airflow_delta_merge_kubernetes")
_LOCK = "\0airflow_delta_merge_kubernetes"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_KERNEL_PARAMETERS = (
    "kernel.keys.root_maxbytes",
    "kernel.keys.root_maxkeys",
    "kernel.panic",
    "kernel.panic_on_oops",
    "net.ipv4.conf.all.route_localnet",
    "net.ipv4.ip_forward",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
)
#: Folders that programs create whatever folders they are configured to use. Those that existed before are kept.
_STRAY_FOLDERS = ("/opt/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods")
#: Docker sets the policy for what crosses the host to DROP, also from pod to pod where its kernel module is loaded.
_FORWARD = ["FORWARD", "-i", BRIDGE, "-o", BRIDGE, "-j", "ACCEPT"]
_BEFORE = RUN / "before.json"
_STATE = RUN / "state"


class Lock:
    """Held by the one cluster of this machine. It ends with the process that holds it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)

    def take(self) -> None:
        try:
            self._socket.bind(_LOCK)
        except OSError as error:
            raise CannotRunError(
                "Another run of these tests has a cluster on this machine: wait for its end."
            ) from error

    def release(self) -> None:
        self._socket.close()


def prepare(state: Path) -> None:
    """Note how the host is, and make the pods' network.

    :param state: the folder of the cluster's state, beneath which the mounts of pods will be.
    """
    _refuse_other_cluster()
    RUN.mkdir(mode=0o700)
    before = {
        "parameters": {name: file.read_text() for name in _KERNEL_PARAMETERS if (file := _parameter(name)).exists()},
        "stray": [folder for folder in _STRAY_FOLDERS if not Path(folder).exists()],
    }
    _STATE.write_text(str(state))
    _BEFORE.write_text(json.dumps(before))
    # By itself a bridge has the lowest address of its ports: when that pod ends, the others lose the host for 30 s.
    _run("ip", "link", "add", BRIDGE, "address", "02:00:0a:f4:00:01", "type", "bridge")
    _run("ip", "address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    _run("iptables", "--wait", "--insert", *_FORWARD)


def state_left_behind() -> Path | None:
    """The folder of the state of a cluster that was not stopped."""
    with suppress(FileNotFoundError):
        return Path(_STATE.read_text())
    return None


def kill_pods() -> None:
    """Kill what runs in pods, and the shims, which are each container's parent."""
    shims = [process for process in psutil.process_iter(["cmdline"]) if _is_our_shim(process.info["cmdline"] or [])]
    for shim in shims:
        with suppress(psutil.NoSuchProcess):
            shim.kill()
    psutil.wait_procs(shims, 10)
    deadline = time.monotonic() + 10
    while (pids := set(_pids_of_pods())) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def restore(state: Path) -> None:
    """Put the host back as it was. Nothing of the cluster may run any more."""
    unmount(state, RUN)
    _run("iptables", "--wait", "--delete", *_FORWARD, check=False)
    for family in ("ip", "ip6"):
        _run("nft", "delete", "table", family, "kube-proxy", check=False)
    _run("ip", "link", "delete", BRIDGE, check=False)
    _remove_control_groups()
    with suppress(FileNotFoundError):
        before = json.loads(_BEFORE.read_text())
        for name, value in before["parameters"].items():
            if _parameter(name).read_text() != value:
                _parameter(name).write_text(value)
        for folder in before["stray"]:
            _remove_tree(Path(folder))
    _remove_tree(RUN)


def unmount(*folders: Path) -> None:
    """Unmount what is mounted beneath these folders.

    :raises RuntimeError: when something stays mounted. Then nothing may be deleted there: it may be the host's.
    """
    for mount in reversed(mounts(*folders)):
        _run("umount", "--lazy", mount, check=False)
    if left := mounts(*folders):
        raise RuntimeError(f"Still mounted: {', '.join(left)}")


def mounts(*folders: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    return sorted(point for point in points if any(Path(point).is_relative_to(folder) for folder in folders))


def _refuse_other_cluster() -> None:
    found = [str(folder) for folder in _pods_groups()]
    if found:
        raise CannotRunError(f"Another Kubernetes node seems to run on this machine: {found[0]} exists.")


def _pods_groups() -> list[Path]:
    """The control group of all pods: one, or with version 1 one for each controller."""
    return [folder for folder in (_CONTROL_GROUPS / "kubepods", *_CONTROL_GROUPS.glob("*/kubepods")) if folder.is_dir()]


def _pids_of_pods() -> Iterator[int]:
    for group in _pods_groups():
        for file in group.rglob("cgroup.procs"):
            with suppress(OSError):
                yield from map(int, file.read_text().split())


def _remove_control_groups() -> None:
    for group in _pods_groups():
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)


def _is_our_shim(command: list[str]) -> bool:
    return bool(command) and "containerd-shim" in command[0] and any(str(RUN) in part for part in command)


def _remove_tree(folder: Path) -> None:
    """Delete a folder; one that is mounted stays."""
    if folder.exists():
        unmount(folder)
        _run("rm", "--recursive", "--force", "--one-file-system", str(folder))


def _parameter(name: str) -> Path:
    return Path("/proc/sys", *name.split("."))


def _run(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
