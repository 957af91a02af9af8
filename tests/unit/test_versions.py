"""Which Spark is there, which of Delta's jars fit it, on what the engine runs, and the matrix of what was tried."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta_merge.engine.delta_jvm.versions import (
    TRIED,
    Versions,
    condition_of,
    minor,
    require_fitting_jars,
    require_tried,
)
from airflow_delta_merge.exceptions import DeltaJarsError, MergeConfigError
from airflow_delta_merge.runtime import jars
from airflow_delta_merge.runtime.jars import jars_for
from airflow_delta_merge.runtime.spark_home import SparkHome
from airflow_delta_merge.runtime.store_drivers import S3A
from tests.versions.__main__ import BEGIN, matrix, with_matrix
from tests.versions.combinations import COMBINATIONS, Combination
from tests.versions.marked_cases import cases_of

ROOT = Path(__file__).resolve().parents[2]


def spark(folder: Path, version: str, *, scala: str = "2.13", hadoop: str = "3.5.0") -> Path:
    """The folder of a Spark, as far as its versions show."""
    (folder / "jars").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in (
        f"spark-core_{scala}-{version}.jar",
        f"hadoop-client-api-{hadoop}.jar",
        "spark-connect_2.13-9.9.9.jar",
    ):
        (folder / "jars" / name).touch()
    (folder / "bin" / "spark-submit").touch()
    return folder


# --- the Spark of this machine ----------------------------------------------------------------------------------------


def test_spark_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark(tmp_path / "named", "4.1.4")))
    other = spark(tmp_path / "other", "4.0.5")
    assert SparkHome.of(str(other / "bin" / "spark-submit")).version == "4.1.4"


def test_spark_home_falls_back_to_that_of_spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    home = spark(tmp_path / "spark", "3.5.9", scala="2.12", hadoop="3.3.4")
    link = tmp_path / "spark-submit"
    link.symlink_to(home / "bin" / "spark-submit")
    found = SparkHome.of(str(link))
    assert (found.path, found.version, found.scala, found.hadoop) == (home, "3.5.9", "2.12", "3.3.4")


def test_then_the_pyspark_of_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    import pyspark

    found = SparkHome.of(str(tmp_path / "bin" / "spark-submit"))
    assert (found.path, found.version) == (Path(pyspark.__file__).parent, pyspark.__version__)
    assert found == SparkHome.of()


def test_a_folder_without_jars_tells_nothing(tmp_path: Path) -> None:
    home = SparkHome(tmp_path)
    assert (home.version, home.scala, home.hadoop) == (None, None, None)
    assert SparkHome(None).version is None


# --- the jars that fit it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "artifact", "delta"),
    [
        ("3.5.9", "delta-spark_2.12", "3.3.3"),
        ("4.0.1", "delta-spark_4.0_2.13", "4.4.0"),
        ("4.1.4", "delta-spark_4.1_2.13", "4.4.0"),
        ("4.2.0", "delta-spark_4.2_2.13", "4.4.0"),
    ],
)
def test_each_spark_has_jars_of_its_own(tmp_path: Path, version: str, artifact: str, delta: str) -> None:
    home = SparkHome(spark(tmp_path / "spark", version, scala=artifact[-4:]))
    assert jars_for(home) == jars_for(version)
    assert (jars_for(home)[0].artifact, {jar.version for jar in jars_for(home)}) == (artifact, {delta})


def test_jars_are_those_that_the_matrix_was_made_with() -> None:
    tried = {each.spark.rsplit(".", 1)[0]: set(each.jars) for each in COMBINATIONS}  # the last of each Spark counts
    assert {version: set(of_delta) for version, of_delta in jars.JARS_OF_SPARK.items()} == tried


@pytest.mark.parametrize(("version", "scala"), [("4.3.0", "2.13"), ("3.4.4", "2.12"), ("3.5.9", "2.13")])
def test_another_spark_is_refused(tmp_path: Path, version: str, scala: str) -> None:
    home = SparkHome(spark(tmp_path / "spark", version, scala=scala))
    with pytest.raises(DeltaJarsError, match=r"Merges run on Spark 3\.5, 4\.0, 4\.1, 4\.2"):
        jars_for(home)


def test_the_s3a_driver_is_for_one_hadoop(tmp_path: Path) -> None:
    home = SparkHome(spark(tmp_path / "spark", "4.1.4", hadoop="3.4.2"))
    with pytest.raises(DeltaJarsError, match=r"org\.apache\.hadoop:hadoop-aws:3\.4\.2 to packages"):
        S3A.fetched(home)


class Jvm:
    """A JVM, as far as a look at Delta's jar goes."""

    def __init__(self, jar: str, version: str) -> None:
        path = SimpleNamespace(getPath=lambda: f"/opt/jars/{jar}")
        source = SimpleNamespace(getLocation=lambda: path)
        domain = SimpleNamespace(getCodeSource=lambda: source)
        self.delta = SimpleNamespace(_java_lang_class=SimpleNamespace(getProtectionDomain=lambda: domain))
        self.version = version

    def __getattr__(self, name: str) -> Any:
        if name == "io.delta.package$":
            return self.delta
        version = self.version

        class Package:
            def __getattr__(self, name: str) -> Any:
                return SimpleNamespace(SPARK_VERSION=lambda: version)

        return Package()


@pytest.mark.parametrize(
    ("jar", "version"),
    [
        ("delta-spark_4.2_2.13-4.4.0.jar", "4.2.0"),
        ("delta-spark_2.12-3.3.3.jar", "3.5.9"),
        ("delta-spark_2.13-4.0.1.jar", "4.0.5"),
        ("of-our-own.jar", "4.1.4"),
    ],
)
def test_a_jar_that_fits(monkeypatch: pytest.MonkeyPatch, jar: str, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    require_fitting_jars(Jvm(jar, version))


@pytest.mark.parametrize(
    ("jar", "made_for", "version"),
    [
        ("delta-spark_4.2_2.13-4.4.0.jar", "4.2", "4.1.4"),
        ("delta-spark_4.0_2.13-4.4.0.jar", "4.0", "4.2.0"),
        ("delta-spark_2.12-3.3.3.jar", "3.5", "4.0.5"),
    ],
)
def test_a_jar_for_another_spark(monkeypatch: pytest.MonkeyPatch, jar: str, made_for: str, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(MergeConfigError, match=f"{jar} is built for Spark {made_for}, but this is Spark {version}"):
        require_fitting_jars(Jvm(jar, version))


def test_a_pyspark_of_another_version() -> None:
    with pytest.raises(MergeConfigError, match="install pyspark and pyspark-client in the same version"):
        require_fitting_jars(Jvm("delta-spark_4.1_2.13-4.4.0.jar", "4.1.4"))


# --- where the engine runs --------------------------------------------------------------------------------------------


def test_the_engine_runs_on_the_combinations_of_the_version_run() -> None:
    tried = {(minor(each.spark), minor(each.delta)) for each in COMBINATIONS if each.is_tried}
    assert {(of_spark, delta) for of_spark, deltas in TRIED.items() for delta in deltas} == tried
    for each in COMBINATIONS:
        assert Versions(each.spark, each.delta).are_tried == each.is_tried


@pytest.mark.parametrize(
    ("of_spark", "delta"), [("4.3.0", "4.5.0"), ("4.2.0", "4.5.0"), ("3.5.9", "3.2.1"), ("?", "?")]
)
def test_elsewhere_it_is_refused(of_spark: str, delta: str) -> None:
    with pytest.raises(MergeConfigError, match="does not support"):
        require_tried(Versions(of_spark, delta))


def test_what_spark_4_calls_a_condition_spark_3_calls_a_class() -> None:
    old, new = SimpleNamespace(getErrorClass=lambda: "A"), SimpleNamespace(getCondition=lambda: "B")
    assert [condition_of(error) for error in (old, new)] == ["A", "B"]  # type: ignore[arg-type]


# --- the cases of the version run -------------------------------------------------------------------------------------


def test_the_version_run_imports_no_package_that_other_environments_lack() -> None:
    block = "import sys; sys.modules.update(dict.fromkeys(['airflow', 'deltalake', 'duckdb', 'hypothesis', 'pandas']));"
    subprocess.run(
        [sys.executable, "-c", f"{block} import tests.versions.run_core as run; run.cases_of((4, 4))"],
        cwd=ROOT,
        check=True,
    )


def test_older_versions_of_delta_run_all_cases_but_those_of_newer_ones() -> None:
    assert {name.partition(":")[0] for name in cases_of((4, 4)).keys() - cases_of((3, 2)).keys()} == {
        "generated_columns",
        "identity_columns",
    }


def test_every_version_can_run_the_marked_cases() -> None:
    for case in cases_of((4, 4)).values():
        assert not case.evolves, f"{case}: Spark 3.5 has no WITH SCHEMA EVOLUTION"
        assert not case.executor, f"{case}: the built-in engine has another executor"
        assert not any("ALTER TABLE" in each for each in case.table.then), f"{case}: ALTER TABLE fails in Delta 4.1.0"


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_the_matrix_counts_what_passed() -> None:
    def result(combination: Combination, engine: str) -> dict[str, Any]:
        if combination.name == "4.1-4.2":
            return {"checks": {"a": None, "b": "why", "c": None}, "ended": engine == "builtin"}
        if combination.name == "3.5-3.2" and engine == "delta_merge":
            return {"checks": {"refused": None}, "ended": True}
        return {"checks": {}, "ended": False}

    table = matrix(result)
    assert "| 4.1.4 | 4.2.0 | 2.13 | 2 of 3, the rest not run | 2 of 3 |" in table
    assert "| 4.2.0 | 4.4.0 | 2.13 | not run | not run |" in table
    assert "| 3.5.9 | 3.2.1 | 2.12 | refused, as never tried | not run |" in table


def test_the_page_has_a_place_for_it() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    written = with_matrix(text, "| here |")
    assert f"{BEGIN}\n\n| here |\n\n" in written
    assert text.count(BEGIN) == 1
