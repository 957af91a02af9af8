"""What Spark prints: the lines that the task's log shows, the reason of a failure, and the file that has all of it."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.local_application import LocalApplication
from airflow_delta_merge.launch.spark_log import FOLDER, SparkLog
from airflow_delta_merge.launch.spark_output import SparkOutput
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.task_exceptions import DeltaMergeException
from airflow_delta_merge.triggers import delta_merge as triggers_delta_merge
from airflow_delta_merge.triggers.delta_merge import DeltaMergeTrigger
from tests.airflow import tables
from tests.airflow.conftest import SPARK

# As Spark 4.2 prints them on the worker: a whole good merge.
GOOD = """\
WARNING: Using incubator modules: jdk.incubator.vector
26/11/27 13:58:08 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using builtin-java
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/27 13:58:10 INFO SparkContext: Running Spark version 4.2.0
26/11/27 13:58:10 INFO SparkContext: OS info Linux, 6.18.44, amd64
26/11/27 13:58:10 INFO SparkContext: Java version 17.0.21.1+2-1-deb12u1-Debian
26/11/27 13:58:10 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1; using 192.0.2.2 instead
26/11/27 13:58:10 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Setting Spark log level to "WARN".
Merge: Spark application local-1795787890725
26/11/27 13:58:12 WARN SparkStringUtils: Truncated the string representation of a plan since it was too large.
Merge: Read the source: 100 rows, 0.0 MB

26/11/27 13:58:35 WARN MapPartitionsRDD: RDD 20 was locally checkpointed, its lineage has been truncated and cannot be
Calling System.exit() with exit code 0 because spark.submit.callSystemExitOnMainExit=true
"""
YARN = """\
26/11/27 13:59:24 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Exception in thread "main" org.apache.spark.SparkException: When running with master 'yarn' either HADOOP_CONF_DIR or \
YARN_CONF_DIR must be set in the environment.
\tat org.apache.spark.deploy.SparkSubmitArguments.error(SparkSubmitArguments.scala:670)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""
MISSING_FILE = """\
26/11/27 13:58:42 WARN FileStreamSink: Assume no metadata directory. Error while looking for metadata directory in the \
path: /in/day.csv.
java.io.FileNotFoundException: File /in/day.csv does not exist
\tat org.apache.hadoop.fs.RawLocalFileSystem.deprecatedGetFileStatus(RawLocalFileSystem.java:980)
\tat org.apache.spark.sql.catalyst.analysis.ResolveDataSource$$anonfun$apply$1.$anonfun$applyOrElse$2(Resolve.scala:62)
\tat java.base/java.lang.Thread.run(Thread.java:840)
The merge failed: [PATH_NOT_FOUND] Path does not exist: file:/in/day.csv. SQLSTATE: 42K03
org.apache.spark.SparkUserAppException: User application exited with 1
\tat org.apache.spark.deploy.PythonRunner$.main(PythonRunner.scala:127)
"""


def read(text: str) -> tuple[list[str], str]:
    """The lines that are shown, and the reason."""
    output = SparkOutput()
    shown = [line for line in text.splitlines() if output.read(line)]
    return shown, output.reason


def test_lines_of_every_good_run_are_kept_out() -> None:
    shown, _ = read(GOOD)
    assert shown == ["Merge: Spark application local-1795787890725", "Merge: Read the source: 100 rows, 0.0 MB"]


def test_a_missing_file_is_logged_without_a_stack_trace() -> None:
    assert read(MISSING_FILE)[0] == [
        "The merge failed: [PATH_NOT_FOUND] Path does not exist: file:/in/day.csv. SQLSTATE: 42K03"
    ]


def test_a_warning_of_a_real_trouble_is_shown() -> None:
    warning = "26/11/27 13:58:08 WARN TaskSetManager: Lost task 0.0 in stage 1.0: java.io.IOException: No space left"
    assert read(f"{warning}\n\tat java.base/java.io.FileOutputStream.write(FileOutputStream.java:1)")[0] == [warning]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            YARN,
            "When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.",
        ),
        ("Exception in thread \"main\" a.B$CException: Oh.\n\tat a.B.c(B.java:1)\nCaused by: a.D: no\n", "Oh."),
        (
            "Exception in thread \"main\" a.AException: Outside.\n\tat a.B.c(B.java:1)\nCaused by: a.BError: Inside.\n"
            "\t... 3 more\n26/11/27 13:58:08 INFO ShutdownHookManager: Shutdown hook called",
            "Outside. Caused by: Inside.",
        ),
        ("a.AException: Out, as: In.\nCaused by: a.BError: In.", "Out, as: In."),
        (
            "Error occurred during initialization of VM\nCould not reserve enough space for 4KB object heap\n",
            "Could not reserve enough space for 4KB object heap",
        ),
        (
            "Invalid maximum heap size: -Xmx1z\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Invalid maximum heap size: -Xmx1z",
        ),
        ("Traceback (most recent call last):\n  File \"x.py\", line 1\nImportError: no pyarrow", "no pyarrow"),
        ("Error: Missing application resource.", "Missing application resource."),
        ("a.AException: Got over it.\nMerge: Read the source: 1 rows, 0.0 MB\nKilled", "Killed"),
        (MISSING_FILE, "The merge failed: [PATH_NOT_FOUND] Path does not exist: file:/in/day.csv. SQLSTATE: 42K03"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_reason_is_the_exceptions_own_message(text: str, reason: str) -> None:
    assert read(text)[1] == reason


def test_another_triggerer_knows_what_was_read() -> None:
    first = SparkOutput()
    lines = GOOD.splitlines() + YARN.splitlines()
    for line in lines[:-2]:
        first.read(line)
    second = SparkOutput.from_dict(json.loads(json.dumps(first.to_dict())))
    assert second == first
    for line in lines[-2:]:
        second.read(line)
    assert second.reason == read(YARN)[1]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for Airflow's logs of this test's own."""
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path / "logs"))
    return tmp_path / "logs"


def test_sparks_own_log_is_whole(logs: Path) -> None:
    submit = SparkSubmit(name="dag.merge")
    submit.open_log()
    shown = list(submit._process_lines(iter(GOOD.splitlines(keepends=True))))
    assert len(shown) == 2
    (file,) = (logs / FOLDER / "dag.merge").iterdir()
    assert file.read_text() == GOOD


def test_verbose_shows_all_lines(logs: Path) -> None:
    submit = SparkSubmit(verbose=True)
    assert list(submit._process_lines(iter(GOOD.splitlines()))) == GOOD.splitlines()


def test_sparks_own_log_has_a_name_that_leads_nowhere_else(logs: Path) -> None:
    path = SparkLog.of("../../etc/a b{{").path
    assert path is not None
    assert path.parent == logs / FOLDER / "_.._etc_a_b_"
    assert path.suffix == ".log"  # what Airflow's chart removes when it is old
    assert SparkLog.of("..").path.parent == logs / FOLDER / "merge"  # type: ignore[union-attr]


def test_sparks_own_log_is_kept_for_the_longest_names(logs: Path) -> None:
    for name in (f"{'d' * 250}.{'t' * 250}", "ü" * 250):
        spark_log = SparkLog.of(name)
        assert spark_log.open()
        assert spark_log.path is not None
        assert spark_log.path.parent.name == name[: len(spark_log.path.parent.name)]


def test_a_merge_goes_on_without_a_place_for_sparks_own_log(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs.write_text("a file where a folder should be")
    submit = SparkSubmit()
    submit.open_log()
    assert len(list(submit._process_lines(iter(GOOD.splitlines())))) == 2
    assert "Spark's own log is not kept, because " in caplog.text


def merge(source: Any, target: Path | str) -> MergeConfig:
    return MergeConfig(
        target=str(target),
        source=source,
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
    )


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> str:
    """A connection to YARN, on a machine without YARN's configuration."""
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_ON_YARN", json.dumps({"conn_type": "spark", "host": "yarn"}))
    return "on_yarn"


def test_a_failed_spark_submit_tells_its_reason(logs: Path, yarn: str) -> None:
    """By a real spark-submit."""
    with pytest.raises(DeltaMergeException) as caught:
        DeltaMergeHook(conn_id=yarn).merge(merge("SELECT 1 AS id", "/lake/t"))
    said = str(caught.value)
    assert re.search(
        r"exit code 1 and left no result: When running with master 'yarn' either HADOOP_CONF_DIR or ", said
    )
    assert "The Airflow connection 'on_yarn' points to YARN." in said
    assert "org.apache.spark" not in said
    (file,) = logs.rglob("*.log")
    assert "at org.apache.spark.deploy.SparkSubmit.main" in file.read_text()


def test_a_failed_spark_submit_of_a_deferred_merge_tells_its_reason(
    logs: Path, yarn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a real spark-submit, which a keeper starts and a trigger follows."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(triggers_delta_merge, "_SECONDS_BEFORE_EVENT", 0.0)
    hook = DeltaMergeHook(conn_id=yarn)
    who = MergeIdentity(application_id="words", generation=1)
    started = hook.start(JobRequest(merges=merge("SELECT 1 AS id", "/lake/t"), identity=who))
    assert isinstance(started, LocalApplication)
    trigger = DeltaMergeTrigger(started=started.to_dict())
    event = asyncio.run(anext(trigger.run())).payload
    assert event["reason"].startswith("When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR")
    started.kill()
    (file,) = logs.rglob("*.log")
    assert "at org.apache.spark.deploy.SparkSubmit.main" in file.read_text()


def test_a_missing_source_file_leaves_one_line_that_helps(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a real Spark."""
    tables.create_table(tmp_path / "t")
    with pytest.raises(DeltaMergeException, match=r"Path does not exist: \S+none.csv. .* Check the path in source"):
        DeltaMergeHook(conf=SPARK).merge(merge(str(tmp_path / "none.csv"), tmp_path / "t"))
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    expected = ("Spark's own log: ", "Spark-Submit cmd: ", "Merge: Spark application ", "The merge failed: [PATH_NOT")
    assert [start for line in lines for start in expected if line.startswith(start)] == list(expected)
    assert len(lines) == len(expected), lines
    (file,) = logs.rglob("*.log")
    assert "FileNotFoundException" in file.read_text()
