"""A Postgres of the tests' own, from Debian's package, and the driver's jar."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_delta_merge.runtime.jars import Jar, fetched
from tests.airflow.canary import CANARY
from tests.object_storage.server import serving

DRIVER = Jar(
    "org.postgresql", "postgresql", "42.7.8", "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7"
)
USER, PASSWORD = "ada", f"{CANARY} of 'ada'"
_PACKAGE = "postgresql"


@dataclass(frozen=True)
class Postgres:
    """A server with the database ``shop``.

    :param programs: the folder of Postgres' programs.
    :param folder: where its socket and its log are.
    :param port: where it listens.
    """

    programs: Path
    folder: Path
    port: int

    def run(self, sql: str) -> str:
        """What a statement of the superuser prints, through the socket that needs no password."""
        command = [self.programs / "psql", "-qtA", "-h", self.folder, "-p", str(self.port), "-U", "root", "-d", "shop"]
        done = subprocess.run([*command, "-c", sql], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    @property
    def log(self) -> str:
        """All statements that it has run, and by whom logins failed."""
        return (self.folder / "log").read_text()


def driver_jar() -> str:
    (path,) = fetched([DRIVER])
    return path


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A new cluster in a folder of its own, which other users than root can reach, as Postgres wants it."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="airflow_delta_merge_postgres_"))
    try:
        os.chmod(folder, 0o755)
        user = _user()
        if user is not None:
            shutil.chown(folder, user)
        initdb = [programs / "initdb", "-D", folder / "data", "-U", "root", "--auth-local=trust", "--no-sync"]
        subprocess.run([*initdb, "--auth-host=scram-sha-256"], check=True, capture_output=True, user=user, cwd=folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            server = Postgres(programs, folder, free.getsockname()[1])
        settings = [f"port={server.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}"]
        settings += ["fsync=off", "log_statement=all"]
        command = [programs / "postgres", "-D", folder / "data", *(f"-c{setting}" for setting in settings)]
        with serving(folder / "log", command, is_up=lambda: _is_up(server), user=user):
            quoted = PASSWORD.replace("'", "''")
            server.run(f"CREATE ROLE {USER} LOGIN PASSWORD '{quoted}'")
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_up(server: Postgres) -> bool:
    command = [server.programs / "createdb", "-h", server.folder, "-p", str(server.port), "-U", "root", "shop"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _user() -> str | None:
    """As whom it runs: Postgres refuses root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _programs() -> Path:
    """The folder of Postgres' programs, installed first where that takes no password."""
    if (found := _installed()) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", _PACKAGE]):
            subprocess.run(["apt-get", *command], check=False, capture_output=True, env=environment)
        found = _installed()
    if found is None:
        pytest.skip(f'There is no Postgres: install it with "sudo apt-get install --no-install-recommends {_PACKAGE}".')
    return found


def _installed() -> Path | None:
    if (on_path := shutil.which("postgres")) and shutil.which("initdb"):
        return Path(on_path).resolve().parent
    # Debian keeps them off the PATH, by version.
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None
