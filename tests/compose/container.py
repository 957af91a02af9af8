"""What a container is made of without Docker: a folder as root, and namespaces of Linux.

Files of the base image are those of this Debian, ``/usr`` and a few more. All else is the container's own, so a path
that the image doesn't make and the compose file doesn't mount isn't there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ENTER = Path(__file__).with_name("enter.sh")
_FROM_THE_MACHINE = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_SETTINGS = (
    *("alternatives", "ca-certificates", "group", "java-17-openjdk", "ld.so.cache", "localtime", "mime.types"),
    *("nsswitch.conf", "passwd", "protocols", "resolv.conf", "services", "ssl"),
)


@dataclass(frozen=True)
class Container:
    """A container that commands can be run in.

    :param root: its root folder.
    :param mounts: folders of this machine, each with the path that it has in the container.
    :param environment: what its commands have.
    :param user: the ids of user and group.
    :param folder: where its commands begin.
    :param hostname: its name.
    """

    root: Path
    mounts: Sequence[tuple[Path, str]] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: tuple[int, int] = (0, 0)
    folder: str = "/"
    hostname: str = "image"

    def start(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a command; the process that is returned becomes the command's own."""
        mounts = [part for source, target in [*_base_mounts(), *self.mounts] for part in (str(source), target)]
        uid, gid = map(str, self.user)
        enter = [str(ENTER), self.hostname, uid, gid, self.folder, str(self.root), *mounts, "--", *command]
        return subprocess.Popen(
            ["/usr/bin/unshare", "--mount", "--uts", *enter],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8", **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def make_base(root: Path) -> None:
    """Make the root folder of a base image."""
    for name in ("tmp", "var/tmp", "run", "var/run", "var/log", "etc", "root", "home", "opt", "dev"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp", "run", "var/run"):
        (root / name).chmod(0o1777)
    for path in map(Path, _FROM_THE_MACHINE):
        if path.is_symlink():
            (root / path.name).symlink_to(os.readlink(path))
    for setting in _SETTINGS:
        path = Path("/etc", setting)
        if path.is_dir():
            shutil.copytree(path, root / "etc" / setting, symlinks=True)
        elif path.exists():
            shutil.copy(path, root / "etc" / setting)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")


def _base_mounts() -> list[tuple[Path, str]]:
    """What each container has of this machine."""
    paths = [Path(path) for path in _FROM_THE_MACHINE if not Path(path).is_symlink() and Path(path).exists()]
    mounts = [(path, str(path)) for path in [*paths, Path("/dev")]]
    # The Python that runs this stands for that of the base image, which is in /usr/local; its library is where it was.
    if sys.base_prefix != "/usr":
        mounts += [(Path(sys.base_prefix), path) for path in ("/usr/local", sys.base_prefix)]
    return mounts
