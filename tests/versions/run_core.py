"""Runs the marked differential cases in the environment of one combination; prints each outcome as a line of JSON.

Called by ``make test-versions`` with that environment's Python, which has pyspark and no Airflow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.outcomes import Failed

import airflow_delta_merge
from airflow_delta_merge.config import (
    MergeConfig,
    MergeEngine,
    MergeStatement,
    MergeTarget,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.engine import merge
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.exceptions import (
    BadRowsError,
    MergeConfigError,
    MergeGuardError,
    SourceExpectationError,
    StaleMergeError,
)
from tests.differential.cases import Case, Table
from tests.differential.harness import WAYS, Harness
from tests.differential.outcome import Outcome
from tests.differential.running import NUM_ROWS
from tests.session import SESSION_SETTINGS
from tests.versions.marked_cases import cases_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult

# Three files: ids 0 to 3, 4 to 7, 8 to 11.
FILES = Table("id INT, v INT", ", ".join(f"({i}, {i})" for i in range(12)), files=3)
PAIRS = "VALUES (2, 20), (3, 30), (7, 70), (40, 400) AS s(id, v)"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


class EngineHarness(Harness):
    """Runs the cases by an engine as the operator does: by a config, in place of :class:`Harness`'s statement."""

    engine: str
    jars: str
    wrong_jar: str

    def _ours(self, case: Case, folder: Path, *, once: bool = False) -> Iterator[Outcome]:
        if self.engine == "delta_merge":
            yield from super()._ours(case, folder, once=once)
        else:
            yield self.runner.run(case, folder / "ours", self.merge_ours)

    def merge_ours(self, statement: str, outcome: Outcome) -> None:
        config = MergeStatement(sql=statement, engine=self.engine)
        outcome.result = merge(self.spark, config, max_commit_attempts=1)
        outcome.num_rows = tuple(getattr(outcome.result, name) for name in NUM_ROWS)
        self._forget(outcome.path)


# --- what a config adds to a statement --------------------------------------------------------------------------------


def committed_once(harness: EngineHarness, table: str, path: Path) -> None:
    who = MergeIdentity(application_id="a", generation=64)
    first, again = merged(harness, table, identity=who), merged(harness, table, identity=who)
    assert (first.num_updated_rows, first.num_inserted_rows, first.already_committed) == (3, 1, False)
    assert (again.num_updated_rows, again.num_inserted_rows, again.already_committed) == (3, 1, True)
    assert first.version == again.version == 2
    assert len([*(path / "_delta_log").glob("*.json")]) == 3
    with pytest.raises(StaleMergeError):
        merged(harness, table, identity=MergeIdentity(application_id="a", generation=0))


def guarded(harness: EngineHarness, table: str, path: Path) -> None:
    files = sorted(path.rglob("*"))
    with pytest.raises(MergeGuardError, match="num_updated_rows is 3"):
        merged(harness, table, guards={"fail_if": {"num_updated_rows": 2}})
    assert sorted(path.rglob("*")) == files, "something was written"


def without_outdated_rows(harness: EngineHarness, table: str, path: Path) -> None:
    source = "SELECT * FROM VALUES (1, 10), (1, 11), (50, 1) AS s(id, v)"
    for on_ties, rows in (("fail", (1, 1)), ("pick", (2, 0))):
        result = upserted(harness, table, source, source_dedupe={"latest_by": "v", "on_ties": on_ties})
        assert (result.num_updated_rows, result.num_inserted_rows) == rows


def without_bad_rows(harness: EngineHarness, table: str, path: Path) -> None:
    file = path.with_name(f"{path.name}.csv")
    file.write_text("id,v\n1,2\n3\n")
    with pytest.raises(BadRowsError, match="1 of the source's 2 rows are bad"):
        upserted(harness, table, {"path": str(file), "options": {"header": True, "inferSchema": True}})


def expected(harness: EngineHarness, table: str, path: Path) -> None:
    source = "SELECT 1 AS id, CAST(NULL AS INT) AS v"
    for sample in ("rows", "keys"):
        with pytest.raises(SourceExpectationError, match="v is NULL in 1 row"):
            upserted(harness, table, source, guards={"expect_source": {"not_null": ["v"], "sample": sample}})


def as_a_job(harness: EngineHarness, table: str, path: Path) -> None:
    """As the hook runs it: by spark-submit, config and result as files."""
    outcome = run_job(harness, table, path.with_name(f"{path.name}_files"), harness.jars)
    (merged,) = outcome["merges"]
    assert merged["result"]["num_updated_rows"] == 3, outcome
    assert merged["result"]["version"] == 2, outcome


def with_the_jar_of_another_spark(harness: EngineHarness, table: str, path: Path) -> None:
    outcome = run_job(harness, table, path.with_name(f"{path.name}_files"), harness.wrong_jar)
    assert "is built for Spark" in outcome["error"]["message"], outcome
    assert len([*(path / "_delta_log").glob("*.json")]) == 2


def run_job(harness: EngineHarness, table: str, folder: Path, jars: str) -> dict[str, Any]:
    folder.mkdir(parents=True)
    request, result = folder / "request.json", folder / "result.json"
    sql = f"MERGE INTO {table} AS t USING ({PAIRS}) AS s ON t.id = s.id {UPSERT}"
    request.write_text(JobRequest(merges=MergeStatement(sql=sql, engine=harness.engine)).to_json(), "utf-8")
    options = [
        "--master",
        "local[2]",
        "--driver-class-path",
        jars.replace(",", ":"),
        "--conf",
        "spark.ui.enabled=false",
    ]
    spark_submit, job = (
        Path(sys.executable).parent / "spark-submit",
        Path(airflow_delta_merge.__file__).parent / "job" / "application.py",
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_HOME"):
        environment.pop(name, None)
    command = [str(spark_submit), *options, str(job), "--request", str(request), "--result", str(result)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert result.is_file(), done.stderr[-2000:]
    outcome: dict[str, Any] = json.loads(result.read_text("utf-8"))
    return outcome


def refused(harness: EngineHarness, table: str, path: Path) -> None:
    """Where the engine was not tried, before anything is written, with what to do."""
    files = sorted(path.rglob("*"))
    with pytest.raises(MergeConfigError, match='or set engine="builtin" to run Delta'):
        merged(harness, table)
    assert sorted(path.rglob("*")) == files, "something was written"


def without_guards(harness: EngineHarness, table: str, path: Path) -> None:
    """What Delta's statement can't be held to is refused beforehand."""
    for guards in ({"fail_if": {"num_updated_rows": 2}}, {"on_empty_source": "fail"}):
        with pytest.raises(MergeConfigError, match="needs a check before the commit"):
            merged(harness, table, guards=guards)
    assert len([*(path / "_delta_log").glob("*.json")]) == 2


OPTIONS: dict[str, Callable[[EngineHarness, str, Path], None]] = {
    "exactly once": committed_once,
    "a guard that trips": guarded,
    "a source of several rows for a key": without_outdated_rows,
    "a source with bad rows": without_bad_rows,
    "as a job": as_a_job,
    "a job with the jar of another Spark": with_the_jar_of_another_spark,
}


def upserted(harness: EngineHarness, table: str, source: Any, **options: Any) -> MergeResult:
    clauses: Any = [when_matched_update_all(), when_not_matched_insert_all()]
    keys: Any = ["id"]
    target = MergeTarget.of(table)
    config = MergeConfig(
        target=target, source=source, on=keys, clauses=clauses, engine=MergeEngine.of(harness.engine), **options
    )
    return merge(harness.spark, config)


def merged(
    harness: EngineHarness, table: str, *, identity: MergeIdentity | None = None, **options: object
) -> MergeResult:
    sql = f"MERGE INTO {table} AS t USING ({PAIRS}) AS s ON t.id = s.id {UPSERT}"
    config = MergeStatement(sql=sql, engine=harness.engine, **options)  # type: ignore[arg-type]
    return merge(harness.spark, config, identity=identity)


# --- all of it --------------------------------------------------------------------------------------------------------


def checks(harness: EngineHarness, home: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    versions, options = Gateway(harness.spark).versions, OPTIONS
    if not versions.are_tried:
        if harness.engine == "delta_merge":
            options = {"refused": refused}
        else:
            options = {name: check for name, check in OPTIONS.items() if check is not guarded}
            options["guards are refused"] = without_guards
    elif harness.engine == "delta_merge":
        options = {**OPTIONS, "a source that is not as expected": expected}
    if versions.are_tried or harness.engine == "builtin":
        for name, case in cases_of(versions.delta_minor).items():
            yield name, lambda case=case: harness.check(case)  # type: ignore[misc]
    for name, option in options.items():

        def check(option: Callable[[EngineHarness, str, Path], None] = option, name: str = name) -> None:
            path = home / harness.engine / name.replace(" ", "_")
            for statement in FILES.statements:
                harness.spark.sql(statement.replace("{t}", f"delta.`{path}`"))
            option(harness, f"delta.`{path}`", path)

        yield name, check


def run(harness: EngineHarness, home: Path, word: str, done: Sequence[str]) -> None:
    """Run the checks and print for each, as a line of JSON, why it failed."""
    for name, check in checks(harness, home):
        if word in name and name not in done:
            failure = None
            try:
                check()
            except (Exception, Failed) as error:
                failure = str(error) or type(error).__name__
                print(f"{harness.engine}: {name}\n{failure}", file=sys.stderr)
                if not isinstance(error, (AssertionError, Failed)):
                    traceback.print_exc()
            print(json.dumps({"check": name, "failure": failure}), flush=True)


@contextmanager
def session(jars: str, home: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ.update(TZ="UTC", PYSPARK_PYTHON=sys.executable)
    time.tzset()
    builder = SparkSession.builder.master("local[2]").appName("airflow_delta_merge versions")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.jars", jars).config("spark.sql.warehouse.dir", str(home / "warehouse"))
    builder = builder.config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jars", required=True)
    parser.add_argument("--wrong-jar", required=True, help="Delta's jar for another Spark")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--word", default="", help="only checks whose name has it")
    parser.add_argument("--done", action="append", default=[], help="a check to leave out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, session(options.jars, Path(folder)) as spark:
        harness = EngineHarness(spark, Path(folder) / options.engine, ways=[*WAYS], fresh=True)
        harness.engine, harness.jars, harness.wrong_jar = options.engine, options.jars, options.wrong_jar
        run(harness, Path(folder), options.word, options.done)
    print(json.dumps({"end": True}))


if __name__ == "__main__":
    main()
