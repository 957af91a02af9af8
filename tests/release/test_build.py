"""What is in the wheel and in the sdist. That they work when installed, ``make test-wheel`` looks at."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import airflow_delta_merge

ROOT = Path(__file__).parents[2]
PACKAGE = {
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "airflow_delta_merge").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
NAME = f"airflow_provider_delta_merge-{airflow_delta_merge.__version__}"


def build(source: Path, folder: Path, kind: str) -> Path:
    command = [ROOT / "scripts" / "uv.sh", "build", "--quiet", f"--{kind}", "--out-dir", folder, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = [path for path in folder.iterdir() if path.suffix in (".whl", ".gz")]
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = {name for name in names if name.startswith(f"{NAME}.dist-info/")}
    assert names - about == PACKAGE
    assert "airflow_delta_merge/py.typed" in names
    assert f"{NAME}.dist-info/licenses/LICENSE" in about


def test_the_sdist_has_what_the_wheel_is_made_from_and_nothing_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {member.name.removeprefix(f"{NAME}/") for member in archive.getmembers() if member.isfile()}
    beside = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}  # hatch adds the last
    assert names == PACKAGE | beside


def test_the_sdist_makes_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    assert build(sdist, tmp_path, "wheel").read_bytes() == wheel.read_bytes()


def test_the_version_is_that_of_the_package(metadata: Message) -> None:
    assert metadata["Version"] == airflow_delta_merge.__version__
    assert f"## [{metadata['Version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_airflow_comes_with_the_package_and_only_one_pyspark(metadata: Message) -> None:
    requirements = {found.name: found for found in map(Requirement, metadata.get_all("Requires-Dist", []))}
    assert requirements["apache-airflow"].marker is None, "whoever installs an Airflow provider gets what it needs"
    # Both fill the folder pyspark.
    assert requirements["pyspark"].specifier == requirements["pyspark-client"].specifier
