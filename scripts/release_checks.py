"""What a release must stand, beyond the suite: ``make test-wheel``, ``make test-lowest`` and ``make test-airflow-2``.

Each check makes environments of its own, where nothing of this checkout is on Python's path:

- ``wheel FILE``: the built wheel beside Airflow without Spark, as its users install it, and beside pyspark without
  Airflow. Each is used there: the provider is found, DAGs parse, the README's DAG runs, the engine merges.
- ``lowest``: the lowest versions that ``pyproject.toml`` allows beside Airflow 3. The tests that need no Spark run on
  them, then the README's DAG.
- ``airflow-2``: Airflow 2.11, where the tests of its own folder run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / "scripts" / "uv.sh"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROVIDER = "airflow-provider-delta-merge"
# Not a dependency, since nothing of ours touches pandas: PySpark 4.2 warns that it doesn't fully support pandas 3.
AS_THE_README_SAYS = "pandas<3"

# Airflow is installed by the list of packages that it was tested with. That list is on GitHub; what was on PyPI on the
# last day on which 3.1.0 was the newest Airflow is as good. (With newer ones, e.g. structlog 25.5, it doesn't start.)
LOWEST_AIRFLOW_3 = "apache-airflow>=3.1"
LAST_DAY_OF_LOWEST_AIRFLOW = "2025-10-26"
# Airflow 2.11.2 has no successor. What was on PyPI on a day on which the tests passed stays as good.
AIRFLOW_2, A_DAY_FOR_AIRFLOW_2 = "apache-airflow<3", "2026-11-20"
# These must be newer, with all lower bounds of ours and of theirs.
NEWER_THAN_LOWEST_AIRFLOW = (
    "apache-airflow-providers-apache-spark",
    "apache-airflow-providers-common-compat",
    "delta-spark",
    "deltalake",
    "grpcio-status",
    "pyspark",
    "pyspark-client",
)
# None of these starts a Spark.
TESTS_FOR_LOWEST = (
    "tests/unit",
    "tests/airflow/test_assets.py",
    "tests/airflow/test_connection.py",
    "tests/airflow/test_errors.py",
    "tests/airflow/test_lineage.py",
    "tests/airflow/test_mapped_tasks.py",
    "tests/airflow/test_operator.py",
    "tests/airflow/test_operator_in_a_run.py",
    "tests/airflow/test_parsing.py",
    "tests/airflow/test_patterns.py",
    "tests/airflow/test_recorded_merge.py",
    "tests/airflow/test_secrets.py",
    "tests/airflow/test_sensor.py",
    "tests/airflow/test_table_sensor.py",
    "tests/airflow/test_watcher.py",
    "tests/history/test_advice.py",
    "tests/history/test_command.py",
    "tests/history/test_table_history.py",
    "tests/history/test_terminal_page.py",
)
NOT_FOR_LOWEST = {
    "tests/airflow/test_assets.py::test_a_secret_does_not_get_into_it": "Airflow 3.1 warns in other words",
    "tests/airflow/test_connection.py::test_airflow_knows_the_type_and_its_form": "Airflow 3.1 shows no form",
    "tests/airflow/test_connection.py::test_an_extra_that_is_no_object_is_an_error": "Airflow 3.1.0 finds no such one",
    "tests/airflow/test_secrets.py::test_a_password_inside_a_url_is_hidden_where_airflow_shows_it": (
        "Airflow 3.1.0 masks what it keeps of a task by another list of secrets than its log"
    ),
    "tests/airflow/test_parsing.py::test_airflow_finds_the_decorator": "looks into a module that Airflow 3.1 hasn't",
    (
        "tests/airflow/test_table_sensor.py::test_a_later_check_that_fails_in_the_triggerer_is_treated_the_same"
        "[never_fail-error4-AirflowSkipException]"
    ): "Airflow 3.1.0 forgets never_fail when a task is resumed",
    "tests/airflow/test_table_sensor.py::test_a_log_that_is_read_amid_a_commit_is_read_again": "deltalake 1.3 reads it",
    "tests/unit/test_parquet_copy.py::test_moments_of_96_bits_become_those_of_64_of_utc": (
        "an old Arrow makes the test's file with a wrong date before 1970; it reads one by Spark right"
    ),
    **dict.fromkeys(
        (
            "tests/unit/test_store_drivers.py::test_hadoop_is_that_of_pyspark",
            "tests/unit/test_store_drivers.py::test_missing_jars_are_named_with_their_address",
            "tests/unit/test_store_drivers.py::test_every_class_that_they_name_is_there",
            "tests/unit/test_log_store.py::test_the_jar_is_made_from_its_sources",
        ),
        "the S3A driver is that of Spark 4.2's Hadoop",
    ),
}

PARSES_WITHOUT_SPARK = """
import importlib.util, json, sys
from pathlib import Path
import airflow
from jsonschema import Draft7Validator
from airflow.utils.db import initdb
from airflow.providers_manager import ProvidersManager
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.provider import get_provider_info

assert importlib.util.find_spec("pyspark") is None, "there is a pyspark here"
schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
errors = list(Draft7Validator(schema).iter_errors(get_provider_info()))
assert not errors, errors
assert "airflow-provider-delta-merge" in ProvidersManager().providers
initdb()
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1], bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
(dag,) = bag.dags.values()
assert isinstance(dag.get_task("merge"), DeltaMergeOperator), dag.tasks
"""

MERGES_WITHOUT_AIRFLOW = """
import importlib.util, sys
from pyspark.sql import SparkSession
from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.engine import merge
from airflow_delta_merge.runtime.jars import delta_jars

assert importlib.util.find_spec("airflow") is None, "there is an Airflow here"
table = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", ",".join(delta_jars()))
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
try:
    spark.sql("SELECT 1 AS id, 'Ada' AS name UNION ALL SELECT 2, 'Grace'").write.format("delta").save(table)
    config = MergeConfig(
        target=table,
        source="SELECT 2 AS id, 'Grace Hopper' AS name UNION ALL SELECT 3, 'Edsger'",
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
    )
    result = merge(spark, config)
    assert (result.num_updated_rows, result.num_inserted_rows) == (1, 1), result
    rows = sorted(tuple(row) for row in spark.read.format("delta").load(table).collect())
    assert rows == [(1, "Ada"), (2, "Grace Hopper"), (3, "Edsger")], rows
finally:
    spark.stop()
"""


class CheckFailed(Exception):
    """A sentence about what a release may not be like."""


class Environment:
    """An environment of Python in a folder, and commands that run in it and know nothing of this checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        _run("uv venv", UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")

    def install(self, *arguments: str | Path) -> None:
        _run("uv pip install", UV, "pip", "install", "--quiet", "--python", self.python, *arguments)

    def install_dependencies(self, airflow: str, *how: str) -> None:
        """Install the package with all extras, and what its tests need.

        :param airflow: which Airflow, of those that the package allows.
        :param how: options of ``uv pip compile``.
        """
        only, versions = self.folder / "only.txt", self.folder / "versions.txt"
        only.write_text(airflow)
        what = ("--all-extras", ROOT / "pyproject.toml", "--constraint", only, "--python", self.python)
        _run("uv pip compile", UV, "pip", "compile", "--quiet", "--no-annotate", *how, *what, "--output-file", versions)
        bounds = _direct_dependencies()
        direct = [line for line in versions.read_text().splitlines() if line.partition("==")[0] in bounds]
        print("  " + "\n  ".join(direct), flush=True)
        self.install("--requirements", versions, "--constraints", versions, "pytest", "hypothesis")
        self.install("--no-deps", ROOT)

    def run_tests(self, what: str, *arguments: str) -> None:
        """Run tests of this checkout, on the environment's packages."""
        tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
        lines = self.check(what, "python", *tests, cwd=ROOT).splitlines()
        print("  " + next(line for line in lines if " passed" in line))

    def check(self, what: str, *command: str | Path, cwd: Path | None = None) -> str:
        """Run a program of the environment, with an Airflow home of the environment's own; what it printed."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        env |= {
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DELTA_MERGE__CLASS_ARCHIVE": "False",  # made in the background, it would outlive this environment
        }
        printed = _run(what, self.python.parent / command[0], *command[1:], cwd=cwd or self.folder, env=env)
        print(f"  {what}", flush=True)
        return printed

    def run_readme_dag(self) -> None:
        """Run the README's DAG by the command that the README names, and look whether the numbers are the README's."""
        dag, said = _readme_dag(self.folder)
        self.check("Airflow's database is made", "airflow", "db", "migrate")
        log = self.check("the README's DAG runs", "airflow", "dags", "test", dag)
        if said not in log:
            raise CheckFailed(f"The README's DAG did not log {said!r}:\n{log[-5000:]}")


def check_wheel(wheel: Path) -> None:
    """Install the wheel in three kinds of environments and use it there."""
    with _environment("Airflow without Spark") as airflow:
        # What a DAG processor or an API server needs. The version is the one the suite runs with.
        airflow.install(f"apache-airflow=={_locked('apache-airflow')}")
        airflow.install("--no-deps", wheel)
        _readme_dag(airflow.folder)
        airflow.check("DAGs parse without pyspark", "python", "-c", PARSES_WITHOUT_SPARK, airflow.folder / "dags")

    with _environment("as users install it") as users:
        users.install(wheel, AS_THE_README_SAYS)
        _run("uv pip check", UV, "pip", "check", "--quiet", "--python", users.python)
        if PROVIDER not in users.check("Airflow lists the provider", "airflow", "providers", "list"):
            raise CheckFailed(f"airflow providers list doesn't show {PROVIDER}.")
        users.run_readme_dag()

    with _environment("pyspark without Airflow") as spark:
        spark.install(_dependency("pyspark"))
        spark.install("--no-deps", wheel)
        spark.check("the engine merges without Airflow", "python", "-c", MERGES_WITHOUT_AIRFLOW, spark.folder / "table")


def check_lowest() -> None:
    """Run what needs no Spark, and the README's DAG, on the lowest versions allowed."""
    with _environment("the lowest versions allowed") as lowest:
        newer = [f"--exclude-newer-package={name}=false" for name in NEWER_THAN_LOWEST_AIRFLOW]
        lowest.install_dependencies(
            LOWEST_AIRFLOW_3, "--resolution=lowest-direct", f"--exclude-newer={LAST_DAY_OF_LOWEST_AIRFLOW}", *newer
        )
        left_out = [f"--deselect={test}" for test in NOT_FOR_LOWEST]
        lowest.run_tests("tests without Spark", *left_out, *TESTS_FOR_LOWEST)
        lowest.run_readme_dag()


def check_airflow_2() -> None:
    """Run the tests for Airflow 2."""
    with _environment("Airflow 2") as airflow_2:
        airflow_2.install_dependencies(AIRFLOW_2, f"--exclude-newer={A_DAY_FOR_AIRFLOW_2}")
        airflow_2.run_tests("tests for Airflow 2", "tests/airflow_2")


@contextmanager
def _environment(name: str) -> Iterator[Environment]:
    print(name, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="release_of_airflow_delta_merge_"))
    try:
        yield Environment(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(what: str, *command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, text=True, check=False, **both)
    if done.returncode:
        raise CheckFailed(f"Failed: {what} (exit code {done.returncode}).\n{done.stdout[-5000:]}")
    return done.stdout


def _readme_dag(folder: Path) -> tuple[str, str]:
    """Put the README's DAG into the folder ``dags``; its id, and what its first run logs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    (folder / "dags").mkdir(exist_ok=True)
    (folder / "dags" / "customers_upsert.py").write_text(code.replace("/tmp/", f"{folder}/"), encoding="utf-8")  # noqa: S108
    return "customers_upsert", re.findall(r"`(\d new customers, [^`]*)`", readme)[0]


def _locked(name: str) -> str:
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    (version,) = [str(package["version"]) for package in lock["package"] if package["name"] == name]
    return version


def _dependency(name: str) -> str:
    (found,) = [each for each in PYPROJECT["project"]["dependencies"] if _name(each) == name]
    return str(found)


def _direct_dependencies() -> set[str]:
    project = PYPROJECT["project"]
    return {_name(each) for each in chain(project["dependencies"], *project["optional-dependencies"].values())}


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~\[]", requirement)[0]


def main() -> int:
    """Run one check; on failure a sentence, what the failed command printed, and exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    checks = parser.add_subparsers(dest="check", required=True)
    checks.add_parser("wheel").add_argument("file", type=Path)
    checks.add_parser("lowest")
    checks.add_parser("airflow-2")
    arguments = parser.parse_args()
    try:
        if arguments.check == "wheel":
            check_wheel(arguments.file.resolve())
        elif arguments.check == "lowest":
            check_lowest()
        else:
            check_airflow_2()
    except CheckFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
