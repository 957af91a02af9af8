"""What can be said of the compose file by reading it. ``make compose-check`` runs what it describes."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values

from tests.compose import lint
from tests.compose.compose_file import (
    COMPOSE_FILE,
    EXAMPLE,
    ROOT,
    Dockerfile,
    Service,
    make_env_file,
    resolved,
    services,
)

SECRET = re.compile(r"PASSWORD|SECRET|FERNET|ACCESS_KEY")
EXACT_TAG = re.compile(r"[a-z0-9-]+:\d+\.\d+(\.\d+)?[\w.-]*")


@pytest.fixture(scope="module")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ``.env`` as users make it."""
    return make_env_file(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def composed(env_file: Path) -> dict[str, Service]:
    return services(env_file)


def test_the_schema_of_the_compose_specification() -> None:
    lint.lint_schema()


def test_the_linter_of_dockerfiles() -> None:
    lint.lint_dockerfiles()


def test_all_that_runs_on_has_a_health_check(composed: dict[str, Service]) -> None:
    assert [each.name for each in composed.values() if each.health is None] == ["airflow-init"]
    assert len(composed) == 10


def test_images_are_pinned(composed: dict[str, Service]) -> None:
    dockerfiles = {each.dockerfile for each in composed.values() if each.dockerfile}
    assert dockerfiles == {path.relative_to(ROOT).as_posix() for path in lint.DOCKERFILES}
    bases = {Dockerfile.read(ROOT / path).base for path in dockerfiles}
    images = {each.image for each in composed.values()} | bases
    assert [image for image in images if not EXACT_TAG.fullmatch(image)] == []


def test_no_image_runs_as_root() -> None:
    assert {Dockerfile.read(path).user for path in lint.DOCKERFILES} == {(50000, 50000)}


def test_secrets_come_from_the_env_file_only(env_file: Path) -> None:
    """Each value that is a secret is a variable, or has one where the secret stands."""
    told = yaml.safe_load(COMPOSE_FILE.read_text())
    settings = [
        (name, value)
        for service in told["services"].values()
        for name, value in service.get("environment", {}).items()
        if SECRET.search(name) or "://" in str(value) or '"password"' in str(value)
    ]
    literal = [
        (name, value) for name, value in settings if not name.endswith(("_FILE", "_URL")) and "${" not in str(value)
    ]
    # The Spark connections have an address and no secret.
    assert {name for name, _ in literal} == {"AIRFLOW_CONN_SPARK_DEFAULT", "AIRFLOW_CONN_SPARK_S3"}
    assert {name for name in dotenv_values(EXAMPLE).items() if name[1]} == set()
    variables = set(re.findall(r"\$\{(\w+)", COMPOSE_FILE.read_text()))
    assert variables == set(dotenv_values(EXAMPLE))


@pytest.mark.parametrize("missing", sorted(dotenv_values(EXAMPLE)))
def test_it_refuses_to_start_without_a_secret(missing: str, env_file: Path, tmp_path: Path) -> None:
    lines = env_file.read_text().splitlines()
    without = tmp_path / ".env"
    without.write_text("\n".join(line for line in lines if not line.startswith(f"{missing}=")))
    with pytest.raises(RuntimeError, match=rf"{missing}.*make a \.env with deploy/new_env\.sh"):
        resolved(without)


def test_it_refuses_to_start_with_the_example(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"make a \.env with deploy/new_env\.sh"):
        resolved(Path(shutil.copy(EXAMPLE, tmp_path / ".env")))


def test_a_new_env_file(env_file: Path) -> None:
    values = dotenv_values(env_file)
    assert set(values) == set(dotenv_values(EXAMPLE))
    assert len(set(values.values())) == len(values)
    assert all(re.fullmatch(r"[\w-]{43}=", str(value)) for value in values.values())
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o600
    again = subprocess.run([env_file.parent / "deploy" / "new_env.sh"], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "There is a .env already" in again.stderr
    assert dotenv_values(env_file) == values


def test_ports_are_this_machines_own(env_file: Path) -> None:
    told: dict[str, Any] = yaml.safe_load(resolved(env_file))["services"]
    ports = [port for service in told.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_lake_is_where_the_workers_see_it(composed: dict[str, Service]) -> None:
    with_lake = {name for name, each in composed.items() if ("lake", "/lake") in each.volumes}
    assert {"spark-worker-1", "spark-worker-2", "airflow-scheduler", "s3"} <= with_lake
    assert composed["airflow-scheduler"].environment["FLIGHTS_DEMO_FOLDER"].startswith("/lake/")


def test_the_page_tells_of_each_service(composed: dict[str, Service]) -> None:
    table = (ROOT / "docs/how_to/compose.md").read_text().partition("## The services")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)} == set(composed)
