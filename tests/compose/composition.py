"""The services of ``docker-compose.yaml`` on a Docker engine, as a project of the check's own."""

from __future__ import annotations

import json
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from scripts.real_airflow import free_port
from tests.compose.engine import Engine
from tests.compose.machine import FOLDER, ROOT, CheckError, run

COMPOSE_FILE = ROOT / "docker-compose.yaml"
EXAMPLE = ROOT / ".env.example"
PROJECT = "delta-merge-check"
_SECONDS_TO_BE_HEALTHY = 300


class Composition:
    """The composition, with secrets, ports and a folder of DAGs of its own.

    :param engine: runs it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        shutil.rmtree(FOLDER / "project", ignore_errors=True)
        env_file = make_env_file(FOLDER / "project")
        self.secrets = {name: str(value) for name, value in dotenv_values(env_file).items()}
        self.ports = {"AIRFLOW_PORT": str(free_port()), "SPARK_PORT": str(free_port())}
        dags = _copy_dags(FOLDER / "project" / "dags")
        files = ["--file", COMPOSE_FILE, "--file", Path(__file__).with_name("check.yaml"), "--env-file", env_file]
        self._command = [*engine.compose_command(), "--project-name", PROJECT, "--project-directory", ROOT, *files]
        # Secrets, too: variables of the caller's would go before those of the file.
        self._environment = {**engine.environment, **self.secrets, **self.ports, "CHECK_DAGS": str(dags)}
        self._environment["COMPOSE_PROGRESS"] = "plain"
        config = json.loads(self.compose("config", "--format", "json"))
        self.services: dict[str, dict[str, Any]] = config["services"]
        self.running = [name for name in self.services if name != "airflow-init"]

    def compose(self, *arguments: object) -> str:
        return run([*self._command, *arguments], self._environment)

    def up(self) -> None:
        """Start all services as the README says, and wait until they are healthy."""
        self.compose("up", "--build", "--wait")

    def down(self, *options: str) -> None:
        self.compose("down", *options)

    def container(self, service: str) -> str:
        return self.compose("ps", "--all", "--quiet", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        return dict(json.loads(self.engine.docker("inspect", self.container(service)))[0])

    def run_inside(self, service: str, *command: object, text: str | None = None) -> str:
        """Run a command in a service's container, and return what it prints."""
        return self.engine.docker("exec", "--interactive", self.container(service), *command, text=text)

    def kill_inside(self, service: str) -> None:
        """Kill all processes of a service at once, as a crash does; Docker restarts it then."""
        before = self.inspect(service)["RestartCount"]
        with suppress(CheckError):  # it kills itself, too
            self.run_inside(service, "sh", "-c", "kill -KILL -1")
        deadline = time.monotonic() + _SECONDS_TO_BE_HEALTHY
        while self.inspect(service)["RestartCount"] == before:
            if time.monotonic() > deadline:
                raise CheckError(f"Docker doesn't restart {service} after all its processes were killed.")
            time.sleep(0.5)

    def wait_until_healthy(self, *services: str) -> None:
        """Wait until services are healthy.

        :raises CheckError: when one isn't in time.
        """
        deadline = time.monotonic() + _SECONDS_TO_BE_HEALTHY
        for service in services:
            while (state := self.inspect(service)["State"])["Health"]["Status"] != "healthy":
                if time.monotonic() > deadline:
                    raise CheckError(f"{service} is {state['Status']}, {json.dumps(state['Health'])[-1000:]}")
                time.sleep(1)


def make_env_file(project: Path) -> Path:
    """An ``.env`` as users make it, of a copy of the example.

    :param project: a folder, made if it isn't there, that stands for the checkout.
    """
    (project / "deploy").mkdir(parents=True)
    shutil.copy(EXAMPLE, project)
    run([shutil.copy(ROOT / "deploy" / "new_env.sh", project / "deploy")])
    return project / ".env"


def _copy_dags(folder: Path) -> Path:
    """The example DAGs, and the check's own.

    The examples without catch-up end with their data here: else they would run for yesterday, too, which has none.
    """
    folder.mkdir()
    for path in (ROOT / "dags").glob("*.py"):
        ends = "catchup=False,\n    end_date=pendulum.datetime(2013, 12, 31),"
        (folder / path.name).write_text(re.sub(r"catchup=False,", ends, path.read_text()))
    for path in Path(__file__).with_name("dags").glob("*.py"):
        shutil.copy(path, folder)
    return folder
