"""The hook with real processes: bad input, missing prerequisites, killing. Nothing is committed in any of them."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_delta_merge.config import (
    MergeConfig,
    MergeGuards,
    MergeStatement,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.contract.outcome import JobError
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import EmptySourceError, MergeConfigError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.errors import error_of_job
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Upsert
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow import tables
from tests.airflow.conftest import SPARK
from tests.readable_ids import readable

UPSERT = Upsert(keys=["id"])
ENDLESS = "SELECT id, 'x' AS name FROM range(1000000000000) WHERE hash(id) = 1"


def config(target: Path | str, source: Any = "SELECT 1 AS id, 'x' AS name") -> MergeConfig:
    return MergeConfig(
        target=str(target),
        source=source,
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"executor_cores": True}, "executor_cores must be a whole number ≥ 1, got True"),
        ({"executor_cores": 0}, "executor_cores must be a whole number ≥ 1, got 0"),
        ({"total_executor_cores": "0"}, "total_executor_cores must be a whole number ≥ 1, got '0'"),
        ({"num_executors": -1}, "num_executors must be a whole number ≥ 0, got -1"),
        ({"driver_memory": "0g"}, "driver_memory must be a size such as 2g or 512m, got '0g'"),
        ({"executor_memory": "0"}, "executor_memory must be a size such as 2g or 512m, got '0'"),
        ({"keep_warm": True}, "keep_warm must be a number of seconds ≥ 0, got True"),
        ({"keep_warm": float("nan")}, "keep_warm must be a number of seconds ≥ 0, got nan"),
        ({"driver_memory": 2}, "driver_memory must be a string, got 2"),
        ({"verbose": "no"}, "verbose must be True or False, got 'no'"),
        ({"conn_id": None}, "conn_id must be a string, got None"),
        ({"conf": "spark.x=s3cr3t"}, "^conf must be a dict"),
        ({"conf": {5: "x"}}, "^conf has the name 5, which Spark ignores"),
        ({"conf": {"fs.s3a.endpoint": "x"}}, "^conf has the name 'fs.s3a.endpoint', .* with spark.hadoop."),
        ({"conf": {"spark.x": None}}, r"^conf\['spark.x'\] must be a string, a number or a bool, got None"),
        ({"conf": {"spark.x": ["s3cr3t"]}}, r"^conf\['spark.x'\] must be a string, .*, got a value of type list"),
        ({"conf": {"spark.x": {"a": "s3cr3t"}}}, r"^conf\['spark.x'\] must be .*, got a value of type dict"),
        ({"conf": {"spark.submit.deployMode": "cluster"}}, "^conf can't set spark.submit.deployMode"),
    ],
    ids=readable,
)
def test_options_are_refused_as_by_the_operator(arguments: dict[str, Any], sentence: str) -> None:
    for make in (DeltaMergeHook, partial(DeltaMergeOperator, task_id="merge", target="t", source="s", pattern=UPSERT)):
        with pytest.raises(MergeConfigError, match=sentence) as caught:
            make(**arguments)
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("attempts", [0, True, 1.5, "2"], ids=readable)
def test_attempts_are_refused_as_by_the_operator(attempts: Any) -> None:
    hook, merge = DeltaMergeHook(conf=SPARK), config("t")
    for run in (
        lambda: hook.merge(merge, max_commit_attempts=attempts),
        lambda: hook.merge_all([merge], max_commit_attempts=attempts),
        lambda: DeltaMergeOperator(
            task_id="merge", target="t", source="s", pattern=UPSERT, max_commit_attempts=attempts
        ),
    ):
        with pytest.raises(MergeConfigError, match=f"max_commit_attempts must be a whole number ≥ 1, got {attempts!r}"):
            run()


def test_a_flag_that_is_a_text_is_refused() -> None:
    with pytest.raises(MergeConfigError, match="explain must be True or False, got 'no'"):
        DeltaMergeHook(conf=SPARK).plan(config("t"), explain="no")  # type: ignore[arg-type]


def failure(merge: MergeConfig | MergeStatement, **arguments: Any) -> DeltaMergeException:
    with pytest.raises(DeltaMergeException) as caught:
        DeltaMergeHook(conf=SPARK, **arguments).merge(merge)
    assert list(Path(tempfile.gettempdir()).iterdir()) == [], "files were left behind"
    print("The error was:", caught.value)
    return caught.value


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for temporary files of this test's own."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Path]:
    """An empty table, which must be untouched at the end."""
    path = tables.create_table(tmp_path / "table")
    before = sorted(path.rglob("*"))
    yield path
    assert tables.versions(path) == [0]
    assert sorted(file for file in path.rglob("*") if not file.name.startswith(".")) == before


# Errors of merges that run through spark-submit, all in one Spark, which takes ten seconds to start.


def test_bad_input(table: Path, tmp_path: Path, connection: Callable[[str], None]) -> None:
    allowed = tmp_path / "allowed"
    connection(bounded(allowed_locations=[str(allowed)]))
    (allowed / "csv").mkdir(parents=True)
    (allowed / "csv" / "some.csv").write_text("id,name\n1,a\n")
    one, other = (tables.create_table(allowed / name) for name in ("one", "other"))
    merges = [
        config(allowed / "none"),
        config(allowed / "csv"),
        config(one, {"path": str(allowed / "none.csv"), "options": {"header": True}}),
        config(other, "SELECT 1 AS key, 'x' AS name"),
        config(table),
    ]
    outcome = DeltaMergeHook(conf=SPARK)._run(JobRequest(merges=merges))
    errors = [error_of_job(each.error, each.target) for each in outcome.merges if each.error is not None]
    no_table, no_delta_table, no_file, no_column, not_allowed = errors

    assert not isinstance(no_table, AirflowFailException), "the table may come to be"
    assert str(allowed / "none") in str(no_table)
    assert no_table.condition is not None
    assert not (allowed / "none").exists()

    assert "Delta" in str(no_delta_table)
    assert [path.name for path in (allowed / "csv").iterdir()] == ["some.csv"]

    assert no_file.condition == "PATH_NOT_FOUND"
    assert str(allowed / "none.csv") in str(no_file)
    assert not isinstance(no_file, AirflowFailException), "the file may come to be"

    assert isinstance(no_column, AirflowFailException)
    assert "id" in str(no_column)

    assert f"it is not under the allowed_locations of the Spark connection ({allowed})" in str(not_allowed)
    assert isinstance(not_allowed, AirflowFailException), "another try would do no better"

    assert (tables.versions(one), tables.versions(other)) == ([0], [0])
    assert list(Path(tempfile.gettempdir()).iterdir()) == [], "files were left behind"


# What never gets as far as Spark.


def test_java_missing(table: Path, no_java: None) -> None:
    assert "Install Java 17 or 21" in str(failure(config(table)))


def test_java_too_old(table: Path, fake_java: Path) -> None:
    assert f"{fake_java} is Java 11. Install Java 17 or 21" in str(failure(config(table)))


def test_jars_missing_and_offline(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_DELTA_MERGE_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("AIRFLOW_DELTA_MERGE_MAVEN", "file:///nowhere")
    assert "Without network, copy the file" in str(failure(config(table)))


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Define the connection ``spark_default`` as JSON."""
    return lambda text: monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", text)


def test_master_unreachable(table: Path, connection: Callable[[str], None]) -> None:
    connection('{"conn_type": "spark", "host": "spark://127.0.0.1:1,localhost:2"}')
    start = time.monotonic()
    said = str(failure(config(table)))
    assert "No Spark master answers at spark://127.0.0.1:1,localhost:2 (127.0.0.1:1: [Errno 111]" in said
    assert "connection 'spark_default'" in said
    assert time.monotonic() - start < 30, "Spark itself tries for a minute"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"conn_type": "spark", "host": "spark://h:7077", "extra": {"deploy-mode": "cluster"}}', "deploy mode client"),
        ('{"conn_type": "spark"}', "Set its host"),
    ],
)
def test_connection_that_cannot_do(table: Path, connection: Callable[[str], None], text: str, sentence: str) -> None:
    connection(text)
    assert sentence in str(failure(config(table)))


def test_connection_missing(table: Path) -> None:
    said = str(failure(config(table), conn_id="my_cluster"))
    assert "There is no Airflow connection 'my_cluster'" in said


def test_spark_submit_missing(table: Path) -> None:
    assert "/no/spark-submit was not found" in str(failure(config(table), spark_binary="/no/spark-submit"))


def test_output_that_is_no_text_does_not_end_the_merge(tmp_path: Path) -> None:
    submit = tmp_path / "spark-submit"
    submit.write_text("#!/bin/sh\nprintf 'M\\374nchen\\n'\necho last\nexit 3\n")
    submit.chmod(0o755)
    said = str(failure(config("t"), spark_binary=str(submit)))
    assert "Spark ended with exit code 3 and left no result: last" in said


def test_without_connection_spark_runs_here() -> None:
    from airflow_delta_merge.launch.spark_submit import SparkSubmit

    submit = SparkSubmit()
    assert (submit.master, submit.is_local) == ("local[*]", True)


def test_connection_decides(connection: Callable[[str], None]) -> None:
    from airflow_delta_merge.launch.spark_submit import SparkSubmit

    connection('{"conn_type": "spark", "host": "spark://h", "port": 7077, "extra": {"queue": "q"}}')
    submit = SparkSubmit()
    submit.add_jars(["/a.jar"])
    assert (submit.master, submit.is_local) == ("spark://h:7077", False)
    command = " ".join(submit._build_spark_submit_command("job.py"))
    assert "--jars /a.jar" in command
    assert "--queue q" in command
    connection('{"conn_type": "spark", "host": "local[1]"}')
    assert SparkSubmit().master == "local[1]"


# What the connection allows.


def bounded(**extra: Any) -> str:
    return json.dumps({"conn_type": "spark", "host": "local[1]", "extra": extra})


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"conf": {"spark.sql.ansi.enabled": "true", "spark.driver.extraJavaOptions": "-x"}}, "extraJavaOptions"),
        ({"conf": {"spark.sqlx": "1"}}, "spark.sqlx"),
        ({"jars": "/tmp/evil.jar"}, "spark.jars"),
        ({"packages": "evil:evil:1"}, "spark.jars.packages"),
        ({"keytab": "/of/others", "principal": "other"}, "spark.kerberos.keytab, spark.kerberos.principal"),
        ({"proxy_user": "other"}, "proxy_user"),
    ],
    ids=readable,
)
def test_only_allowed_properties(connection: Callable[[str], None], arguments: dict[str, Any], refused: str) -> None:
    connection(bounded(allowed_conf=["spark.sql.*", "spark.driver.memory"]))
    with pytest.raises(DeltaMergeException, match=rf"set {refused if 'conf' not in arguments else '.*' + refused}\."):
        DeltaMergeHook(**arguments).merge(config("/no/table"))


def test_bounds_are_lists(connection: Callable[[str], None]) -> None:
    connection(bounded(allowed_locations="/data"))
    with pytest.raises(
        DeltaMergeException, match=r"allowed_locations in the extra of .* must be a list of strings, got '/data'"
    ):
        DeltaMergeHook().merge(config("/data/table"))


# Death. A merge that would take for ever is ended by various hands.


class Running:
    """A merge without end, in a thread, up to where its Python process runs."""

    def __init__(self, table: Path) -> None:
        self.hook = DeltaMergeHook(conf=SPARK)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._merge, args=(table,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Running:
        deadline = time.monotonic() + 120
        while not self._find_python():
            assert self.error is None, self.error
            assert time.monotonic() < deadline, "the job never started"
            time.sleep(0.1)
        return self

    def __exit__(self, *error: object) -> None:
        self.hook.on_kill()

    def _merge(self, table: Path) -> None:
        try:
            self.hook.merge(config(table, ENDLESS))
        except BaseException as error:
            self.error = error

    def _find_python(self) -> bool:
        submit = getattr(self.hook._running, "_submit_sp", None)
        if submit is None:
            return False
        self.leader = submit.pid
        self.group = [process for process in psutil.process_iter() if _group_of(process.pid) == self.leader]
        python = [process for process in self.group if _is_job(process)]
        self.python = python[0].pid if python else 0
        return bool(python)

    def ended(self) -> str:
        """Wait for the end; all processes must be gone within ten seconds."""
        self._thread.join(timeout=10)
        assert not self._thread.is_alive(), "the merge goes on"
        _, alive = psutil.wait_procs(self.group, timeout=10)
        assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        return str(self.error)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _is_job(process: psutil.Process) -> bool:
    command = _command(process)
    return len(command) > 1 and Path(command[0]).name != "java" and command[1].endswith("_job.py")


def _command(process: psutil.Process) -> list[str]:
    """The command line; empty for a process that is gone, or just starting."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_on_kill_ends_the_jvm_and_the_python_under_it(table: Path) -> None:
    with Running(table) as running:
        commands = " ".join(" ".join(_command(process)) for process in running.group)
        assert len(running.group) >= 2
        running.hook.on_kill()
        assert "Airflow ended this task, and Spark with it" in running.ended()
    # Every user of the machine can read command lines: neither the config nor a property may stand there.
    assert "1000000000000" not in commands
    assert "snapshotPartitions" not in commands


@pytest.mark.parametrize("victim", ["leader", "python"])
def test_job_killed_from_outside(table: Path, victim: str) -> None:
    with Running(table) as running:
        os.kill(getattr(running, victim), signal.SIGKILL)
        assert "Spark was killed from outside by SIGKILL" in running.ended()


def test_what_spark_says_is_masked() -> None:
    from airflow.sdk.log import mask_secret

    from airflow_delta_merge.launch.spark_submit import SparkSubmit

    mask_secret("a secret of this test")
    submit = SparkSubmit()
    assert list(submit._process_lines(iter(["key=a secret of this test\n", "\n"]))) == ["key=***\n"]
    assert submit.output.reason == "key=***"


@pytest.mark.slow
def test_a_dry_run_counts_and_leaves_the_table_alone(table: Path) -> None:
    plan = DeltaMergeHook(conf=SPARK).plan(config(table, "SELECT id, 'x' AS name FROM range(3)"), explain=True)
    assert (plan.num_source_rows, plan.num_inserted_rows, plan.num_updated_rows, plan.num_touched_files) == (3, 3, 0, 0)
    assert "inserted rows" in plan.spark_plans
    assert list(Path(tempfile.gettempdir()).iterdir()) == [], "files were left behind"


@pytest.mark.slow
def test_a_dry_run_fails_as_the_merge_would(table: Path) -> None:
    with pytest.raises(DeltaMergeException, match="nowhere"):
        DeltaMergeHook(conf=SPARK).plan(config(table, "SELECT nowhere AS id, 'x' AS name"))


def test_an_empty_source_skips_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """``tests/history/test_merged_tables.py`` has the report of a real job."""

    def run(*_: Any) -> NoReturn:
        raise error_of_job(JobError.of(EmptySourceError("The source has no rows, so nothing was merged.")), "t")

    monkeypatch.setattr(DeltaMergeHook, "_run", run)
    operator = DeltaMergeOperator(
        task_id="merge", target="t", source="s", pattern=Upsert(keys=["id"]), on_empty_source="skip", exactly_once=False
    )
    with pytest.raises(AirflowSkipException, match="The source has no rows, so nothing was merged"):
        operator.execute({})  # type: ignore[typeddict-item]


@pytest.mark.slow
def test_a_statement_with_an_unknown_column_fails(table: Path) -> None:
    statement = MergeStatement(sql=f"MERGE INTO delta.`{table}` AS t USING (SELECT 1 AS id) AS s ON t.id = s.nowhere "
                               "WHEN MATCHED THEN DELETE")  # fmt: skip
    error = failure(statement)
    assert f"The merge into delta.`{table}` failed" in str(error)
    assert "nowhere" in str(error)


@pytest.mark.slow
def test_a_guard_that_trips_fails_a_statement_without_retries(table: Path) -> None:
    source = "(SELECT 1 AS id, 'x' AS name) AS s"
    sql = f"MERGE INTO delta.`{table}` AS t USING {source} ON t.id = s.id WHEN NOT MATCHED THEN INSERT *;"
    error = failure(MergeStatement(sql=sql, guards=MergeGuards(fail_if=("num_inserted_rows > 0",))))
    assert "by its guard num_inserted_rows > 0: num_inserted_rows is 1." in str(error)
    assert isinstance(error, AirflowFailException)
