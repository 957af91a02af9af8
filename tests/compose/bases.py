"""The base images of the compose file: the real ones, or stand-ins of Debian's packages where none can be pulled."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.compose.engine import Engine
from tests.compose.machine import FOLDER, CheckError, install, run

PYTHON = "python:3.11.14-slim-bookworm"
POSTGRES = "postgres:15.15-bookworm"
_LABEL = "stand-in"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_IMAGE = [
    "ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    f"ENV SSL_CERT_FILE={_CERTIFICATES} PIP_CERT={_CERTIFICATES} REQUESTS_CA_BUNDLE={_CERTIFICATES}",
    f"LABEL {_LABEL}=debian",
]


class Bases:
    """The base images on an engine.

    :param engine: gets them. One that isn't the check's own loses its stand-ins again at the end.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: list[str] = []

    def provide(self) -> str:
        """See to all base images, and return what they are."""
        described = []
        for image, make in ((PYTHON, self._make_python), (POSTGRES, self._make_postgres)):
            if not self._is_there(image):
                print(f"{image} can't be pulled: a stand-in is made of Debian's packages", flush=True)
                make()
                self._made.append(image)
            described.append(f"{image} ({'stand-in of Debian' if self._is_stand_in(image) else 'real'})")
        return ", ".join(described)

    def remove(self) -> None:
        """Remove the stand-ins from an engine where others would take them for the real images."""
        if not self._engine.is_own and self._made:
            self._engine.docker("image", "rm", "--force", *self._made)

    def _is_there(self, image: str) -> bool:
        for command in (["image", "inspect"], ["pull", "--quiet"]):
            with suppress(CheckError):
                self._engine.docker(*command, image)
                return True
        return False

    def _is_stand_in(self, image: str) -> bool:
        return _LABEL in self._engine.docker("image", "inspect", "--format", "{{json .Config.Labels}}", image)

    def _make_python(self) -> None:
        """Debian with its Python, and with the certificates that this machine trusts."""
        if not shutil.which("debootstrap"):
            install("debootstrap")
        root, archive = FOLDER / "debian", FOLDER / "debian.tar"
        shutil.rmtree(root, ignore_errors=True)
        packages = "ca-certificates,python3,python3-venv"
        run(["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root, _mirror()])
        (root / _CERTIFICATES.lstrip("/")).write_bytes(Path(_CERTIFICATES).read_bytes())
        for name in ("python", "python3"):
            (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
        for folder in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(root / folder)
            (root / folder / "partial").mkdir(parents=True)
        run(["tar", "--directory", root, "--create", "--file", archive, "."])
        shutil.rmtree(root)
        self._engine.docker("import", *_changes(_IMAGE), archive, PYTHON)
        archive.unlink()

    def _make_postgres(self) -> None:
        self._engine.docker("build", "--quiet", "--tag", POSTGRES, Path(__file__).with_name("postgres"))


def _mirror() -> str:
    """The mirror that this machine's apt uses, if it is Debian's of that release."""
    with suppress(CheckError, FileNotFoundError, subprocess.SubprocessError):
        found = run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Codename: bookworm", "Created-By: Packages"]
        )
        if lines := found.split():
            return lines[0]
    return "http://deb.debian.org/debian"


def _changes(instructions: Sequence[str]) -> list[str]:
    return [word for each in instructions for word in ("--change", each)]
