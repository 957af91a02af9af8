"""What ``docker-compose.yaml`` and its Dockerfiles say, read as by a compose: with variables and anchors."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yaml"
EXAMPLE = ROOT / ".env.example"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Dockerfile:
    """How an image is made.

    :param base: the image that it is made from.
    :param steps: its instructions after that, each with its value.
    """

    base: str
    steps: list[tuple[str, str]]

    @classmethod
    def read(cls, path: Path) -> Dockerfile:
        parsed = DockerfileParser(fileobj=path.open("rb"))
        steps = [(each["instruction"], each["value"]) for each in parsed.structure if each["instruction"] != "COMMENT"]
        assert steps[0][0] == "FROM", f"{path} begins with something else than FROM"
        return cls(steps[0][1], steps[1:])

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.steps if name == instruction]

    @property
    def environment(self) -> dict[str, str]:
        return dict(part.split("=", 1) for value in self.values("ENV") for part in shlex.split(value))

    @property
    def user(self) -> tuple[int, int]:
        """The ids of user and group."""
        uid, gid = self.values("USER")[-1].split(":")
        return int(uid), int(gid)

    @property
    def folder(self) -> str:
        return (self.values("WORKDIR") or ["/"])[-1]


@dataclass(frozen=True)
class HealthCheck:
    """How a service tells that it is well; times are in seconds."""

    test: list[str]
    interval: float
    timeout: float
    retries: int
    start_period: float


@dataclass(frozen=True)
class Service:
    """One service of the file."""

    name: str
    image: str
    dockerfile: str | None
    command: list[str]
    environment: dict[str, str]
    hostname: str
    volumes: list[tuple[str, str]] = field(default_factory=list)
    depends_on: dict[str, str] = field(default_factory=dict)
    health: HealthCheck | None = None


def make_env_file(project: Path) -> Path:
    """An ``.env`` as users make it, of a copy of the example.

    :param project: a folder, made if it isn't there, that stands for the checkout.
    """
    (project / "deploy").mkdir(parents=True)
    shutil.copy(EXAMPLE, project)
    subprocess.run([shutil.copy(ROOT / "deploy" / "new_env.sh", project / "deploy")], check=True)
    return project / ".env"


def services(env_file: Path) -> dict[str, Service]:
    """The services, by their names, with the variables of a file like ``.env``.

    :raises RuntimeError: when the file can't be read so; the message is podman-compose's.
    """
    parsed = yaml.safe_load(resolved(env_file))
    return {name: _service(name, each) for name, each in parsed["services"].items()}


def resolved(env_file: Path) -> str:
    """The whole file as YAML, without variables and anchors."""
    command = [Path(sys.executable).parent / "podman-compose", "--dry-run", "--file", COMPOSE_FILE]
    # Without the caller's environment, whose variables would go before those of the file.
    done = subprocess.run(
        [*command, "--env-file", env_file, "config"],
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd=env_file.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def _service(name: str, told: dict[str, Any]) -> Service:
    command = told.get("command", [])
    volumes = [volume.split(":")[:2] for volume in told.get("volumes", [])]
    return Service(
        name=name,
        image=told["image"],
        dockerfile=told.get("build", {}).get("dockerfile"),
        command=[str(part) for part in command] if isinstance(command, list) else shlex.split(command),
        environment={key: _text(value) for key, value in told.get("environment", {}).items()},
        hostname=told.get("hostname", name),
        volumes=[(source, target) for source, target in volumes],
        depends_on={other: how["condition"] for other, how in told.get("depends_on", {}).items()},
        health=_health(told.get("healthcheck", {})),
    )


def _health(told: dict[str, Any]) -> HealthCheck | None:
    if not told or told.get("disable"):
        return None
    kind, *test = told["test"]
    assert kind in ("CMD", "CMD-SHELL"), told
    return HealthCheck(
        test=test if kind == "CMD" else ["/bin/sh", "-c", *test],
        interval=_seconds(told["interval"]),
        timeout=_seconds(told["timeout"]),
        retries=int(told["retries"]),
        start_period=_seconds(told["start_period"]),
    )


def _seconds(duration: str) -> float:
    parts = re.findall(r"(\d+)(ms|s|m|h)", duration)
    assert "".join(number + unit for number, unit in parts) == duration, f"{duration} is no duration"
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
