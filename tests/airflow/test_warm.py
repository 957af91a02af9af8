"""Merges in a kept Spark: real processes and signals, and one Spark for most of these tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.contract.frames import KIND, LONGEST_PATH, SERVER_LOCK, receive, send
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import KeptSparkError, MergeConfigError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch import keeper, kept_spark, waiter
from airflow_delta_merge.launch.keeper import LOCK
from airflow_delta_merge.launch.kept_spark import KeptSpark
from airflow_delta_merge.launch.local_application import LocalApplication
from airflow_delta_merge.launch.preparation import Preparation
from airflow_delta_merge.launch.results import outcome_of
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.staging import stage
from airflow_delta_merge.launch.warm import WarmMerge, waiting_command
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Upsert
from airflow_delta_merge.runtime.java import takes_option
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow import tables
from tests.airflow.conftest import SPARK
from tests.airflow.processes import naming
from tests.cluster import deferred
from tests.waiting import wait_until

SECRET = "a-password-of-these-tests"
CONF = SPARK | {
    "spark.hadoop.tests.password": SECRET,
    # The serial collector of the other tests never has less memory than it begins with.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseG1GC",
}
ENDLESS = "SELECT id, 'x' AS name FROM range(0, 1000000000000, 1, 1) WHERE hash(id) = 1"  # one task: a core is left
FINITE = "SELECT id, 'x' AS name FROM range(3)"
WHO = MergeIdentity(
    application_id="me", generation=7, task_instance=TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r")
)
linux_only = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="keep_warm is for Linux")
pytestmark = linux_only


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Temporary files of these tests, in a folder whose path leaves room for a socket's name."""
    tmp_path_factory.getbasetemp()  # pytest's own files are elsewhere
    before, folder = tempfile.tempdir, Path(tempfile.mkdtemp(prefix="warm-"))
    variable = os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    yield folder
    for process in processes(folder):
        process.kill()
    tempfile.tempdir = before
    os.environ.pop("TMPDIR")
    if variable is not None:
        os.environ["TMPDIR"] = variable
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another folder of the kind, for one test."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        monkeypatch.undo()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tables.create_table(tmp_path / "table")


def config(table: Path, source: str = FINITE, **others: Any) -> MergeConfig:
    return MergeConfig(
        target=str(table),
        source=source,
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
        **others,
    )


def merge(
    table: Path, source: str = FINITE, identity: MergeIdentity | None = None, keep_warm: float = 300, **others: Any
) -> tuple[MergeResult, str]:
    """What a merge did, and in which Spark application."""
    applications: list[Any] = []
    hook = DeltaMergeHook(conf=CONF, keep_warm=keep_warm)
    result = hook.merge(config(table, source, **others), identity=identity, on_application=applications.append)
    (application,) = applications
    return result, application.id


def processes(folder: Path) -> list[psutil.Process]:
    return naming(f"{folder}/airflow_delta_merge_")


def the_kept_spark() -> KeptSpark:
    (kept,) = KeptSpark.all()
    return kept


# In the order in which they stand, in one Spark, which the last one but one kills.


def test_the_next_merge_uses_the_same_application(
    table: Path, home: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "airflow_delta_merge.launch.warm")
    first, application = merge(table)
    (starting, _) = caplog.messages
    assert starting.startswith("Starting a Spark that stays for 300 s after its last merge")
    capfd.readouterr()
    caplog.clear()
    again, same = merge(table)
    assert (first.num_inserted_rows, again.num_updated_rows, same) == (3, 3, application)
    (merging,) = caplog.messages
    assert merging.startswith("Merging in the kept Spark of process ")
    said = capfd.readouterr().out
    assert f"Merge: Spark application {application}" in said
    assert "Merge: Ready to commit: 3 rows updated" in said
    # What nobody else may see.
    (kept,) = home.glob("airflow_delta_merge_*")
    assert kept.stat().st_mode & 0o777 == 0o700
    seen = [" ".join([*process.cmdline(), *process.environ().values()]) for process in processes(home)]
    assert len(seen) >= 3, "the keeper, Java and Python"
    assert not any(SECRET in each for each in seen)
    assert not any(SECRET.encode() in file.read_bytes() for file in kept.iterdir() if file.is_file())
    assert all(os.getpgid(process.pid) != os.getpgid(0) for process in processes(home))


def test_what_one_merge_sets_does_not_reach_the_next(table: Path) -> None:
    # Delta's own MERGE takes the identity from the session's settings.
    merge(table, identity=WHO, engine="builtin")
    result, _ = merge(table)
    assert (result.already_committed, result.version) == (False, 2)


def test_a_merge_that_fails_says_why_and_leaves_the_others_alone(table: Path) -> None:
    _, application = merge(table)
    with pytest.raises(AirflowFailException, match="nowhere"):
        merge(table, "SELECT id AS nowhere, 'x' AS name FROM range(3)")
    assert merge(table)[1] == application


def test_a_killed_task_cancels_its_merge_and_no_other(tmp_path: Path, home: Path) -> None:
    one, other = tables.create_table(tmp_path / "one"), tables.create_table(tmp_path / "other")
    _, application = merge(other)
    # The same environment makes the same kind, and importing these tests gives them another Airflow.
    code = "import os, sys; from pathlib import Path; before = dict(os.environ)\n"
    code += "from tests.airflow.test_warm import ENDLESS, merge\nos.environ.update(before)\n"
    code += "merge(Path(sys.argv[1]), ENDLESS)"
    said = tmp_path / "said"
    with said.open("w") as out:
        command = [sys.executable, "-u", "-c", code, str(one)]
        task = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    wait_until(lambda: f"Merge: Spark application {application}" in said.read_text() or task.poll() is not None, 120)
    assert task.poll() is None, said.read_text()
    assert not the_kept_spark().end_if_idle()
    # Another one goes on at the same time, and after it was killed.
    assert merge(other)[1] == application
    before = output()
    os.kill(task.pid, signal.SIGKILL)
    task.wait()
    wait_until(lambda: was_cancelled(output().removeprefix(before)), 60)
    assert merge(other)[1] == application
    assert tables.versions(one) == [0]


def test_a_dry_run_with_templates_counts(table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, application = merge(tables.create_table(tmp_path / "other"))
    (tmp_path / "2026-01-31.csv").write_text("id,name\n1,Ada\n2,Grace\n")
    before = sorted(table.rglob("*"))
    capfd.readouterr()
    dry = DeltaMergeOperator(
        task_id="merge",
        target=str(table),
        source={"path": f"{tmp_path}/{{{{ ds }}}}.csv", "options": {"header": True, "inferSchema": True}},
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
        conf=CONF,
        keep_warm=300,
    )
    dry.dry_run(logical_date=datetime(2026, 1, 31, tzinfo=UTC))
    said = capfd.readouterr().out
    assert re.search(r"rows +inserted +2 +files +touched +0\n +updated +0 .*\n +deleted +0\n", said)
    assert "MERGE INTO" in said
    # Spark's application says what it is at.
    assert f"Merge: Spark application {application}" in said
    assert "Merge: The source is not kept: the table has no files" in said
    assert sorted(file for file in table.rglob("*") if not file.name.startswith(".")) == before


def start(table: Path, source: str = FINITE, identity: MergeIdentity | None = None) -> LocalApplication:
    """Start a merge as a task that is deferred does."""
    request = JobRequest(merges=config(table, source), identity=identity)
    begun = DeltaMergeHook(conf=CONF, keep_warm=300).start(request)
    assert isinstance(begun, LocalApplication)
    return begun


def test_a_deferred_task_uses_the_same_application(table: Path, home: Path) -> None:
    _, application = merge(table)
    here = len(processes(home))
    begun = start(table)
    seen = [" ".join([*process.cmdline(), *process.environ().values()]) for process in processes(home)]
    assert len(seen) <= here + 2, "only the keeper and what waits for the merge"
    assert not any(SECRET in each for each in seen)
    end = deferred.followed(begun)
    assert end.application is not None
    assert (end.exit_code, end.error, end.application.id) == (0, None, application)
    hook = DeltaMergeHook(conf=CONF)
    result = hook.result_of(hook.finish(begun, end), str(table), exactly_once=False)
    assert (result.num_updated_rows, result.version) == (3, 2)
    wait_until(lambda: not begun.folder.exists() and len(processes(home)) == here, 20)


def test_a_deferred_task_that_fails_says_why(table: Path) -> None:
    begun = start(table, "SELECT id AS nowhere, 'x' AS name FROM range(3)")
    hook = DeltaMergeHook(conf=CONF)
    with pytest.raises(AirflowFailException, match="nowhere"):
        hook.result_of(hook.finish(begun, deferred.followed(begun)), str(table), exactly_once=False)


def test_ending_a_deferred_task_cancels_its_merge_and_no_other(table: Path, home: Path) -> None:
    _, application = merge(table)
    before = output()
    begun = start(table, ENDLESS, WHO)
    again = start(table, ENDLESS, replace(WHO, task_instance=replace(WHO.task_instance, try_number=2)))
    assert again.folder == begun.folder, "the next try follows the same merge"
    wait_until(lambda: begun.follow() or begun.application is not None, 60)
    begun.kill()
    assert not begun.folder.exists()
    wait_until(lambda: was_cancelled(output().removeprefix(before)), 60)
    assert merge(table)[1] == application
    # The same if the waiting process alone is killed.
    before = output()
    begun = start(table, ENDLESS)
    wait_until(lambda: waiting(home), 20)
    waiting(home)[0].kill()
    wait_until(lambda: was_cancelled(output().removeprefix(before)), 60)
    wait_until(lambda: begun.poll()[1] is not None, 20)
    begun.kill()
    assert tables.versions(table) == [0, 1, 2]


def output() -> str:
    return (the_kept_spark().folder / "output").read_text()


def was_cancelled(lines: str) -> bool:
    return re.search(r"^Cancelling (merge-\d+), (.|\n)*^\1 has ended\.", lines, re.MULTILINE) is not None


def waiting(home: Path) -> list[psutil.Process]:
    """What waits for deferred merges, without its keepers."""
    commands = {process: process.cmdline() for process in processes(home)}
    return [each for each, said in commands.items() if waiter.__file__ in said and keeper.__file__ not in said]


@pytest.mark.skipif(shutil.which("jcmd") is None, reason="a runtime of Java without its tools")
def test_an_idle_spark_returns_its_free_memory(table: Path, home: Path) -> None:
    merge(table)
    (java,) = [each.pid for each in processes(home) if each.name() == "java"]

    def free_share() -> float:
        said = subprocess.run(["jcmd", str(java), "GC.heap_info"], capture_output=True, text=True, check=True).stdout
        ((total, used),) = re.findall(r"total (\d+)K, used (\d+)K", said)
        return 1 - int(used) / int(total)

    wait_until(lambda: free_share() < 0.4, seconds=30)  # it collects after five; Java's default leaves 0.7
    trims = takes_option("-XX:TrimNativeHeapInterval=5000")
    options = subprocess.run(["jcmd", str(java), "VM.command_line"], capture_output=True, text=True, check=True)
    assert ("-XX:TrimNativeHeapInterval=5000" in options.stdout) == trims


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused(home: Path) -> None:
    """Even if the folder's mode would let it in."""
    kept = the_kept_spark()
    opened = [home, kept.folder, kept.socket_path]
    modes = [path.stat().st_mode & 0o777 for path in opened]
    for path in opened:
        path.chmod(0o777)
    try:
        child = os.fork()
        if child == 0:
            os.setgid(65534)
            os.setuid(65534)
            os._exit(_answered(kept.socket_path))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 10, "it was answered, or could not even connect"
        with pytest.raises(KeptSparkError, match="mode 0777"):
            kept.connect()
    finally:
        for path, mode in zip(opened, modes, strict=True):
            path.chmod(mode)
    wait_until(lambda: "Another user's process was refused." in (kept.folder / "output").read_text(), 10)


def _answered(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        try:
            connection.connect(str(path))
        except OSError:
            return 11
        try:
            send(connection, {"end": "if idle"})
            return 10 if receive(connection) is None else 12
        except ConnectionError:
            return 10


def test_a_kept_spark_that_is_killed_fails_its_merges_and_the_next_try_merges_once(table: Path, home: Path) -> None:
    _, application = merge(table, "SELECT id, 'x' AS name FROM range(0)")
    before = tables.versions(table)
    errors: list[BaseException] = []
    begun = threading.Event()

    def merge_endlessly() -> None:
        try:
            hook = DeltaMergeHook(conf=CONF, keep_warm=300)
            hook.merge(config(table, ENDLESS), identity=WHO, on_application=lambda _: begun.set())
        except DeltaMergeException as error:
            errors.append(error)

    kept = the_kept_spark()
    task = threading.Thread(target=merge_endlessly)
    task.start()
    assert begun.wait(60)
    deferring = start(table, ENDLESS)
    time.sleep(2)  # so that its jobs run
    os.kill(int((kept.folder / SERVER_LOCK).read_text()), signal.SIGKILL)
    task.join(60)
    (error,) = errors
    assert "Its kept Spark ended during the merge" in str(error)
    assert "If it did commit, the next try finds that in the table's log" in str(error)
    assert not isinstance(error, AirflowFailException)
    end = deferred.followed(deferring)
    deferring.kill()
    assert (end.outcome, end.another_try_helps) == (None, True)
    assert str(end.error) in str(error)
    retry = replace(WHO, task_instance=replace(WHO.task_instance, try_number=2))
    result, other = merge(table, FINITE, retry, keep_warm=1)
    assert (result.already_committed, result.num_inserted_rows, other != application) == (False, 3, True)
    assert merge(table, FINITE, retry, keep_warm=1)[0].already_committed
    assert len(tables.versions(table)) == len(before) + 1
    # It was kept for a second only: nothing is left of either.
    wait_until(lambda: not processes(home) and not list(home.glob("airflow_delta_merge_*")), 60)
    left = [path.name for path in home.iterdir() if not path.name.startswith("tests_of_")]  # of the killed task
    assert left == [f"airflow-delta-merge-{os.getuid()}"]


# Without Spark.


def kind(request: JobRequest, conf: dict[str, str] = CONF, **arguments: Any) -> str:
    arguments = {"name": "n"} | arguments
    return Preparation("spark_default", conf, arguments).for_warm_merge(request).kind


def test_what_a_spark_is_started_with_makes_its_kind(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = JobRequest(merges=config(table))
    here = kind(request)
    monkeypatch.setenv("AIRFLOW_CTX_TASK_ID", "another")
    monkeypatch.setenv("__AIRFLOW_SUPERVISOR_FD", "14")  # which dag.test() sets for each task
    assert kind(JobRequest(merges=config(tmp_path / "another")), name="another") == here
    assert SECRET not in here
    others = [
        kind(request, CONF | {"spark.hadoop.tests.password": "another"}),
        kind(request, driver_memory="2g"),
        kind(request, jars="/another.jar"),
    ]
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    others.append(kind(request))
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    monkeypatch.setenv("AWS_PROFILE", "another")
    others.append(kind(request))
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.chdir(tmp_path)
    others.append(kind(request))
    assert len({here, *others}) == 7


def test_a_merge_in_a_kept_spark_has_no_log_of_sparks_own(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That of the merge that started Spark has its lines; there was a warning for want of a folder."""
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path / "logs"))
    submit = Preparation("spark_default", CONF, {"name": "n"}).for_warm_merge(JobRequest(merges=config(table))).submit
    submit.log_lines(["Merge: Searching 1 of 2 files"])
    assert caplog.text == ""
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("killed", [False, True])
def test_a_merge_whose_spark_is_gone_says_so_and_is_tried_again(table: Path, killed: bool) -> None:
    merge = WarmMerge(Preparation("spark_default", CONF, {}), JobRequest(merges=config(table)), 60)
    ours, theirs = socket.socketpair()
    send(theirs, {"log": "Merge: Spark application local-1"})
    theirs.close()
    merge.killed = killed
    with ours:
        end = merge._follow(ours, SparkSubmit())
    with pytest.raises(DeltaMergeException) as caught:
        outcome_of(end, "t", killed=killed, exactly_once=True, conn_id="spark_default")
    assert ("Airflow ended this task" if killed else "Its kept Spark ended during the merge") in str(caught.value)
    assert "If it did commit, the next try finds that in the table's log" in str(caught.value)
    assert not isinstance(caught.value, AirflowFailException)


def test_what_waits_for_a_merge_ends_with_its_keeper(empty: Path) -> None:
    """However the keeper ends, since the end of the connection is what cancels the merge."""
    staging = stage()
    kept = LocalApplication(staging.folder)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            kept.start_keeper(waiting_command(staging), os.environ, stdin=theirs)
        wait_until(lambda: waiting(empty), 20)
        time.sleep(1.5)
        assert waiting(empty)
        os.kill(int((staging.folder / LOCK).read_text()), signal.SIGKILL)
        ours.settimeout(10)
        assert ours.recv(1) == b""
    wait_until(lambda: not waiting(empty), 10)


def test_a_folder_that_others_may_enter_is_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"airflow-delta-merge-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(DeltaMergeException, match=r"with mode 0700, but it belongs to user .* and has mode 0755"):
        merge(table)
    folder.rmdir()
    folder.symlink_to(home_of_another := tmp_path / "another")
    home_of_another.mkdir(mode=0o700)
    with pytest.raises(DeltaMergeException, match="with mode 0700"):
        merge(table)


def test_a_temporary_folder_with_a_long_path_is_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / ("x" * LONGEST_PATH)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(DeltaMergeException, match=r"the path is too long\. Set TMPDIR to a shorter path"):
        merge(table)
    assert list(folder.glob("airflow_delta_merge_*")) == []


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (
            '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}',
            "not available with deploy mode cluster",
        ),
        (
            '{"conn_type": "spark", "host": "spark://nowhere:7077"}',
            "No Spark master answers at spark://nowhere:7077",
        ),
    ],
    ids=["cluster mode", "a missing master"],
)
def test_where_no_spark_can_be_kept_or_started(
    table: Path, monkeypatch: pytest.MonkeyPatch, connection: str, message: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    with pytest.raises(DeltaMergeException, match=message):
        merge(table)
    with pytest.raises(DeltaMergeException, match=message):
        start(table)


def test_what_the_next_merge_finds_of_a_killed_one_is_ended_and_removed(empty: Path) -> None:
    dead, stray = stage(), stage()
    for staging in (dead, stray):
        KeptSpark.make(staging, "kind")
        (staging.folder / LOCK).touch()
    code = "import fcntl, os, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)\n"
    code += "print(os.getpid(), file=f, flush=True); time.sleep(100)"
    lock = stray.folder / SERVER_LOCK
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], start_new_session=True) as process:
        wait_until(lambda: lock.exists() and lock.read_text().endswith("\n"), 20)
        assert KeptSpark.find("kind") is None
        kept_spark.remove_orphans()
        assert process.wait(20) == -signal.SIGKILL
    assert list(empty.iterdir()) == []


def test_a_spark_that_takes_no_more_merges_is_not_found(empty: Path) -> None:
    staging = stage()
    kept = KeptSpark.make(staging, "kind")
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); input()"
    lock = staging.folder / LOCK
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE) as process:
        wait_until(lambda: kept.takes_merges, 20)
        assert (KeptSpark.find("kind"), KeptSpark.find("other")) == (kept, None)
        (staging.folder / KIND).unlink()
        assert KeptSpark.find("kind") is None
        process.kill()


def test_a_connection_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = '"extra": {"keep_warm": %s}'
    connection = '{"conn_type": "delta_merge", "host": "local", ' + extra + "}"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection % "60")
    assert DeltaMergeHook().settings.keep_warm == 60
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection % '"long"')
    with pytest.raises(DeltaMergeException, match="keep_warm that is not a number of seconds"):
        DeltaMergeHook().settings.keep_warm  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep_warm": -1}, "keep_warm must be a number of seconds ≥ 0, got -1"),
        ({"keep_warm": True}, "keep_warm must be a number of seconds ≥ 0, got True"),
        ({"keep_warm": 10**400}, "keep_warm must be a number of seconds ≥ 0, got 1000"),
    ],
    ids=["negative", "no number", "beyond a double"],
)
def test_what_cannot_be_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(MergeConfigError, match=message):
        DeltaMergeOperator(task_id="merge", target="t", source="s", pattern=Upsert(keys=["id"]), **arguments)
