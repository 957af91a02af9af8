"""Images without Docker: the steps of a Dockerfile, run in a folder that is their root."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compose.compose_file import ROOT, Dockerfile
from tests.compose.container import Container, make_base

_DEBIAN_PACKAGES = re.compile(r"(?:\S*/)?deploy/debian\.sh (?P<packages>.+)")
#: How this machine reaches registries; Docker's builds have settings of their own for that.
_NETWORK = re.compile(
    r"(PIP|UV)_(CERT|INDEX_URL|DEFAULT_INDEX|SYSTEM_CERTS)|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|\w+_proxy", re.IGNORECASE
)
#: Not looked at: what they say counts when a container starts.
_LATER = ("ENV", "WORKDIR", "USER", "CMD", "ENTRYPOINT")


class ImageError(Exception):
    """An image can't be made; the message says why."""


def build(dockerfile: str, image: Path, uv_cache: Path, log: Path) -> None:
    """Make an image: a folder with all that its steps leave.

    Debian's packages are not installed, but looked for: the machine's own stand for them.

    :param dockerfile: its path from the project's root.
    :param image: the folder to be made.
    :param uv_cache: the folder of wheels that were fetched before.
    :param log: what the steps print is added to it.
    """
    told = Dockerfile.read(ROOT / dockerfile)
    make_base(image)
    folder = "/"
    environment: dict[str, str] = {}
    for instruction, value in told.steps:
        if instruction == "WORKDIR":
            folder = value
            (image / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "ENV":
            environment |= dict(part.split("=", 1) for part in shlex.split(value))
        elif instruction == "COPY":
            _copy(image, folder, *shlex.split(value))
        elif instruction == "RUN":
            _run(image, folder, value, environment, uv_cache, log)
        elif instruction not in _LATER:
            raise ImageError(f"{dockerfile} has a {instruction}, which isn't known here.")


def _copy(image: Path, folder: str, *paths: str) -> None:
    *sources, target = paths
    destination = image / Path(folder, target).as_posix().lstrip("/")
    for source in sources:
        path = ROOT / source
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, destination, dirs_exist_ok=True, ignore=ignored)
        else:
            into = target.endswith("/") or len(sources) > 1
            to = destination / path.name if into else destination
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)


def _run(image: Path, folder: str, command: str, environment: dict[str, str], uv_cache: Path, log: Path) -> None:
    if found := _DEBIAN_PACKAGES.fullmatch(command):
        _look_for(found["packages"].split())
        return
    # The wheels are the only thing that this build has from an earlier one.
    network = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
    with_cache = {"UV_NO_CACHE": "0", "UV_CACHE_DIR": "/uv-cache"}
    own = network | environment | with_cache | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    container = Container(image, [(uv_cache, "/uv-cache")], own, folder=folder)
    with log.open("ab") as output:
        done = container.start(["/bin/sh", "-c", command], output).wait()
    if done != 0:
        raise ImageError(f"The step {command!r} ends with exit code {done}:\n{log.read_text()[-2000:]}")


def _look_for(packages: list[str]) -> None:
    """Whether Debian has these packages and they could be installed."""
    command = ["/usr/bin/apt-get", "install", "--simulate", "--no-install-recommends", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"Debian's packages {' '.join(packages)} can't be installed: {done.stderr.strip()}")


def main(dockerfile: str, images: str, uv_cache: str) -> None:
    name = Path(dockerfile).parent.name
    image = Path(images, name)
    image.mkdir()
    try:
        build(dockerfile, image, Path(uv_cache), Path(images, f"{name}.log"))
    except ImageError as error:
        shutil.rmtree(image)
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
