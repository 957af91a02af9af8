"""The two images of the cluster, as archives that containerd imports. They have next to nothing inside.

Spark, Java and Python come from the host: pods mount its folders (``spark_conf``).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PAUSE = "localhost/pause:1"
SPARK = "localhost/spark-host:1"
SPARK_HOME = "/opt/spark"
#: Where pods see the folders of the same names in the host's ``pyspark``.
SPARK_FOLDERS = ("bin", "examples", "jars", "python", "sbin")
ENTRYPOINT = Path(__file__).parents[2] / "deploy" / "kubernetes" / "entrypoint.sh"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Layer:
    """The files of an image, all of root's."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115  (content closes it)

    def folder(self, *names: str, mode: int = 0o755) -> None:
        for name in names:
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, mode
            self._tar.addfile(info)

    def link(self, name: str, target: str) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(info)

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), mode
        self._tar.addfile(info, io.BytesIO(content))

    def content(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


def write_pause(archive: Path, program: Path) -> None:
    """Write the image of the container that every pod has besides its own."""
    layer = _Layer()
    layer.file("pause", program.read_bytes(), 0o755)
    _write(archive, PAUSE, layer.content(), ["/pause"])


def write_spark(archive: Path) -> None:
    """Write the image of drivers and executors: mount points, and the entrypoint of ``deploy/kubernetes``."""
    layer = _Layer()
    layer.folder("dev", "etc", "opt", "opt/spark", "proc", "root", "run", "sys", "usr", "var")
    layer.folder("tmp", "var/tmp", mode=0o1777)
    # A ConfigMap is mounted at conf, hence /opt/spark is the image's own, not one folder of the host.
    layer.folder(*(f"opt/spark/{name}" for name in (*SPARK_FOLDERS, "conf", "work-dir")))
    for name in ("bin", "lib", "lib64", "sbin"):
        layer.link(name, f"usr/{name}")
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n")
    layer.file("etc/group", b"root:x:0:\n")
    layer.file("opt/entrypoint.sh", ENTRYPOINT.read_bytes(), 0o755)
    environment = {"SPARK_HOME": SPARK_HOME}
    _write(archive, SPARK, layer.content(), ["/opt/entrypoint.sh"], environment, f"{SPARK_HOME}/work-dir")


def _write(
    archive: Path,
    reference: str,
    layer: bytes,
    entrypoint: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: str = "/",
) -> None:
    """Write an image as ``docker save`` does."""
    variables = {"PATH": _PATH, **(environment or {})}
    settings = {
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Entrypoint": list(entrypoint),
        "WorkingDir": folder,
    }
    image = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "airflow_delta_merge tests"}],
    }
    config = json.dumps(image).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for member, content in ((name, config), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
