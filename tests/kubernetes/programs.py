"""The programs of a Kubernetes node. Kubernetes, etcd and the Spark operator are built from source once; Debian has the
others.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "binaries"
#: A folder that has the programs already. Nothing is built then.
BINARIES = "DELTA_MERGE_KUBERNETES_BINARIES"
BUILT = ROOT / ".cache" / "kubernetes" / "bin"
STAMP = ".sources"
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet")
OPERATOR = "spark-operator"
#: A folder with the kinds of resources that the operator serves.
OPERATOR_RESOURCES = "spark-operator.resources"
PROGRAMS = (*KUBERNETES, "etcd", "pause", OPERATOR)
#: Debian's packages, and a program that each of them has.
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "conntrack": "conntrack",
    "iproute2": "ip",
    "iptables": "iptables",
    "nftables": "nft",
}
PLUGINS_PACKAGE = "containernetworking-plugins"
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


class CannotRunError(Exception):
    """This machine can't run the cluster; the message says why."""


def install_packages() -> None:
    """Install what is missing with apt-get.

    :raises CannotRunError: when a package is missing and can't be installed.
    """
    missing = missing_packages()
    if not missing:
        return
    names = " ".join(missing)
    if shutil.which("apt-get") is None:
        raise CannotRunError(f"The cluster needs {names}, and this is no Debian: install them by hand.")
    print(f"Installing {names} with apt-get …", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
    for command in (["apt-get", "update", "--quiet"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if still_missing := missing_packages():
        raise CannotRunError(f"apt-get did not install {' '.join(still_missing)}:\n{done.stdout}{done.stderr}")


def missing_packages() -> list[str]:
    missing = [package for package, program in PACKAGES.items() if shutil.which(program) is None]
    return missing if plugins() else [*missing, PLUGINS_PACKAGE]


def plugins() -> Path | None:
    """The folder of the network plugins."""
    return next((folder for folder in PLUGIN_FOLDERS if (folder / "bridge").exists()), None)


def binaries() -> Path:
    """The folder with these programs and the operator's resources. The first call builds them, in some minutes.

    :raises CannotRunError: when a program is missing, or the build fails.
    """
    named = os.environ.get(BINARIES)
    if named:
        absent = [name for name in (*PROGRAMS, OPERATOR_RESOURCES) if not Path(named, name).exists()]
        if absent:
            raise CannotRunError(f"{BINARIES} is {named}, where {', '.join(absent)} is missing.")
        return Path(named)
    stamp, digest = BUILT / STAMP, _digest()
    if not (stamp.exists() and stamp.read_text() == digest):
        build(BUILT)
        stamp.write_text(digest)
    return BUILT


def version() -> str:
    """The version of Kubernetes that is built, e.g. ``1.34.2``."""
    found = re.search(r"k8s\.io/kubernetes v(\d+\.\d+\.\d+)", (SOURCES / "go.mod").read_text())
    assert found is not None
    return found[1]


def build(folder: Path) -> None:
    """Build Kubernetes, etcd, pause and the Spark operator from source, as pinned in ``binaries``."""
    if shutil.which("go") is None:
        raise CannotRunError(
            f"Go is missing, which builds Kubernetes: install it (https://go.dev/dl), or set {BINARIES} to a folder "
            f"that has {', '.join(PROGRAMS)}."
        )
    major, minor, _ = version().split(".")
    print(
        f"Building Kubernetes {version()}, etcd and the Spark operator in {folder} (once; some minutes) …", flush=True
    )
    folder.mkdir(parents=True, exist_ok=True)
    package = "k8s.io/component-base/version"
    # Otherwise they call themselves v0.0.0, and the API server refuses a node of that version.
    flags = f"-X {package}.gitVersion=v{version()} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    _go_build(SOURCES, f"{folder}/", *(f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES), flags=flags)
    _go_build(SOURCES / "etcd", str(folder / "etcd"), "go.etcd.io/etcd/server/v3")
    # Alone in its image, without a C library.
    _go_build(SOURCES / "pause", str(folder / "pause"), ".", environment={"CGO_ENABLED": "0"})
    of_operator = "github.com/kubeflow/spark-operator/v2"
    _go_build(SOURCES / OPERATOR, str(folder / OPERATOR), f"{of_operator}/cmd/operator")
    (sources,) = _go("list", "-m", "-f", "{{.Dir}}", of_operator, folder=SOURCES / OPERATOR).split()
    shutil.copytree(Path(sources, "config", "crd", "bases"), folder / OPERATOR_RESOURCES, dirs_exist_ok=True)


def _go_build(
    module: Path, output: str, *packages: str, flags: str = "", environment: dict[str, str] | None = None
) -> None:
    options = ["-trimpath", "-ldflags", f"-s -w {flags}".strip(), "-o", output]
    _go("build", *options, *packages, folder=module, environment=environment)


def _go(*arguments: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    command = ["go", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotRunError(f"{' '.join(command)} fails in {folder}:\n{done.stderr}")
    return done.stdout


def _digest() -> str:
    """What the sources are, by their contents."""
    digest = hashlib.sha256()
    for file in sorted(file for file in SOURCES.rglob("*") if file.is_file()):
        digest.update(file.relative_to(SOURCES).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
