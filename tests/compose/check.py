"""``make compose-check``: the compose file and its images without Docker.

``python -m tests.compose.check [STAGE …]`` lints the files, makes the images by the very steps of their Dockerfiles,
and runs the services by the very commands, settings and health checks of the compose file, in namespaces of Linux: each
with a root folder, volumes and a user of its own, all in one network that has nothing else in it. Whatever becomes of
this process, the kernel ends the others. Without the stage ``images`` those of the last time are taken.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from tests.compose.compose_file import ROOT, Service, make_env_file, services
from tests.compose.composition import POSTGRES_PROGRAMS
from tests.compose.lint import LintError, lint

FOLDER = ROOT / ".cache" / "compose"
UV_CACHE = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
#: Folder and process are the children's; setpriv lets the kernel end unshare with this process, and unshare all others.
_APART = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child"]


STAGES = ("lint", "images", "services")


class CheckError(Exception):
    """The check can't go on; the message says why."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make compose-check", description="docker-compose.yaml without Docker.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)}; by default all")
    stages = set(parser.parse_args().stages or STAGES)
    if unknown := stages - set(STAGES):
        parser.error(f"there is no stage {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, _leave)
    try:
        _check(stages, time.time())
    except (CheckError, LintError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("The check was stopped.", file=sys.stderr)
        return 130
    return 0


def _check(stages: set[str], started: float) -> None:
    def say(text: str) -> None:
        print(f"[{time.time() - started:4.0f} s] {text}", flush=True)

    if "lint" in stages:
        say(lint(FOLDER / "node"))
    if stages != {"lint"}:
        _remove("run")
        env_file = make_env_file(FOLDER / "run" / "project")
        composed = services(env_file)
        _check_machine(composed)
        dockerfiles = sorted({each.dockerfile for each in composed.values() if each.dockerfile})
    if "images" in stages:
        _make_images(dockerfiles, say)
    if "services" in stages:
        if missing := [each for each in dockerfiles if not (FOLDER / "images" / Path(each).parent.name).is_dir()]:
            raise CheckError(f"The images of {', '.join(missing)} are missing: run the stage images first.")
        _apart(["--net"], "tests.compose.inside", FOLDER / "images", FOLDER / "run", env_file, started)
    say("Done")


def _check_machine(composed: Mapping[str, Service]) -> None:
    """Whether this machine has what stands for Docker, with Debian's Postgres installed if it is missing.

    :raises CheckError: when it hasn't.
    """
    if os.geteuid() != 0:
        raise CheckError("The check needs root, for users and folders like those of containers: run it in a container.")
    if not shutil.which("unshare") or subprocess.run([*_APART, "--net", "/bin/true"], check=False).returncode != 0:
        raise CheckError("No namespaces can be made on this machine (unshare fails), so nothing stands for containers.")
    postgres = next(each.image for each in composed.values() if each.image.startswith("postgres:"))
    version = re.sub(r"postgres:(\d+).*", r"\1", postgres)
    if not (POSTGRES_PROGRAMS / version / "bin" / "postgres").exists():
        _install_postgres(version)


def _install_postgres(version: str) -> None:
    package = f"postgresql-{version}"
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "--no-install-recommends", package]):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if not shutil.which("apt-get") or subprocess.run(command, env=environment, check=False).returncode != 0:
            raise CheckError(f"Postgres {version} is missing: install Debian's package {package}.")
    # The package has started a server of its own, which nobody asked for.
    subprocess.run(["pg_ctlcluster", version, "main", "stop"], check=False, capture_output=True)


def _make_images(dockerfiles: list[str], say: Callable[[str], None]) -> None:
    _remove("images")
    UV_CACHE.mkdir(parents=True, exist_ok=True)
    for dockerfile in dockerfiles:
        _apart([], "tests.compose.image", dockerfile, FOLDER / "images", UV_CACHE)
        say(f"{dockerfile}: its steps ran in a clean folder")


def _remove(name: str) -> None:
    """Remove what the last time has left in a folder."""
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    (FOLDER / name).mkdir(parents=True)


def _apart(options: list[str], module: str, *arguments: object) -> None:
    """Run a module of Python in namespaces of its own.

    :raises CheckError: when it fails; it has said why.
    """
    command = [*_APART, *options, sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        if process.wait() != 0:
            raise CheckError(f"{module} ended with exit code {process.returncode}.")
    finally:
        process.kill()
        process.wait()


def _leave(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
