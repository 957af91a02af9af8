"""Where a driver finds pyspark: pip's own, which is compiled, if that is the Spark that runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import py4j
import pyspark
import pytest

from airflow_delta_merge.job.python_path import prefer_installed_pyspark

SITE_PACKAGES = Path(pyspark.__file__).parents[1]
LIBRARY = SITE_PACKAGES / "pyspark" / "python" / "lib"


def test_pyspark_and_py4j_of_pip_are_imported_instead_of_their_zips() -> None:
    zips = sorted(map(str, LIBRARY.glob("*.zip")))
    assert len(zips) == 2
    code = (
        f"import sys; sys.path[:0] = {zips!r}\n"
        "from airflow_delta_merge.job.python_path import prefer_installed_pyspark\n"
        "prefer_installed_pyspark()\n"
        "import py4j, pyspark\n"
        "print(py4j.__file__, pyspark.__file__, *sys.path[:2], sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert lines[:2] == [py4j.__file__, pyspark.__file__], done.stderr
    assert not set(lines) & set(zips)


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Two packages in a folder like site-packages, and zips beside them; returns the zips' folder."""
    for package in ("pyspark", "py4j"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "py4j-1.2.dist-info").mkdir()
    library = tmp_path / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    return library


@pytest.mark.parametrize(
    ("zips", "kept"),
    [
        (["pyspark.zip", "py4j-1.2-src.zip"], []),
        (["pyspark.zip", "py4j-1.3-src.zip"], ["py4j-1.3-src.zip"]),
        (["other.zip"], ["other.zip"]),
    ],
    ids=["both are installed", "another py4j is installed", "something else"],
)
def test_only_what_is_installed_beside_a_zip_replaces_it(
    spark_home: Path, zips: list[str], kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site_packages = str(spark_home.parents[2])
    monkeypatch.setattr(sys, "path", [*(str(spark_home / name) for name in zips), site_packages])
    prefer_installed_pyspark()
    assert sys.path == [*(str(spark_home / name) for name in kept), site_packages]


def test_the_zips_of_a_spark_stay_if_another_pyspark_would_be_imported(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(spark_home / "pyspark.zip"), str(SITE_PACKAGES), str(spark_home.parents[2])]
    for path in (paths, paths[:2], paths[:1]):
        monkeypatch.setattr(sys, "path", [*path])
        prefer_installed_pyspark()
        assert sys.path == path
