"""Applications that run while their tasks are deferred: real processes, in place of Spark a shell."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.log import mask_secret

from airflow_delta_merge.config import MergeConfig, when_matched_delete
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.lineage import ColumnLineage
from airflow_delta_merge.contract.outcome import JobError, JobOutcome, MergeOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.launch import keeper as application_keeper
from airflow_delta_merge.launch import local_application
from airflow_delta_merge.launch.local_application import LONGEST_LINEAGE, LocalApplication, fingerprint
from airflow_delta_merge.launch.spark_log import SparkLog
from airflow_delta_merge.launch.staging import Staging, stage
from airflow_delta_merge.triggers import delta_merge as triggers_delta_merge
from airflow_delta_merge.triggers.delta_merge import DeltaMergeTrigger
from tests.airflow.processes import naming
from tests.waiting import wait_until

CONFIG = MergeConfig(target="t", source="s", on=["id"], clauses=[when_matched_delete()])
WHO = MergeIdentity(application_id="me", generation=7)
HERE = socket.gethostname()
DID = MergeResult(table="/t", version_read=0, version=1, executor="E", executor_reason="why")
RESULT = JobOutcome(merges=(MergeOutcome(target="t", result=DID),)).to_dict()
FAILED = JobOutcome(error=JobError(type="ValueError", message="It failed.")).to_dict()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where merges are staged; at the end nothing that runs may have to do with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # No scheduler here that could be overtaken.
    monkeypatch.setattr(triggers_delta_merge, "_SECONDS_BEFORE_EVENT", 0.0)
    monkeypatch.setattr(triggers_delta_merge, "_POLL_SECONDS", 0.1)
    yield tmp_path
    for process in processes(tmp_path):
        process.kill()


def processes(folder: Path) -> list[psutil.Process]:
    return naming(str(folder))


def staged_for(identity: MergeIdentity | None, config: MergeConfig = CONFIG) -> Staging:
    staging = stage()
    staging.write_request(JobRequest(merges=config, identity=identity))
    staging.write_properties({})
    return staging


def start(script: str, identity: MergeIdentity = WHO, secrets: Any = ()) -> LocalApplication:
    """Keep a shell, which finds the merge's folder in $0."""
    staging = staged_for(identity)
    return LocalApplication.start(
        staging, ["sh", "-c", script, str(staging.folder)], os.environ, secrets, SparkLog(None)
    )


def followed(kept: LocalApplication) -> Any:
    """What its trigger's event tells."""
    return asyncio.run(anext(trigger(kept).run())).payload


def trigger(kept: LocalApplication, **arguments: Any) -> DeltaMergeTrigger:
    return DeltaMergeTrigger(**DeltaMergeTrigger(started=kept.to_dict(), **arguments).serialize()[1])


def tell(outcome: Any) -> str:
    return f"echo '{json.dumps(outcome)}' > $0/result.json; "


def test_its_end_is_reported(folder: Path) -> None:
    kept = start(f"echo hello; {tell(RESULT)}")
    event = followed(kept)
    assert (event["outcome"], event["exit_code"], event["reason"], event["error"]) == (RESULT, 0, "hello", None)
    # The event may get lost, so all is there for another triggerer until somebody has taken note.
    assert followed(kept) == event
    kept.kill()
    assert list(folder.iterdir()) == []
    wait_until(lambda: not processes(folder))  # the keeper lets go of its lock just before it ends


def test_an_end_without_a_result_is_reported() -> None:
    assert followed(start("kill -9 $$"))["exit_code"] == -signal.SIGKILL
    event = followed(start("printf 'first\\n\\nlast'; exit 3"))
    assert (event["exit_code"], event["outcome"], event["reason"]) == (3, None, "last")
    assert "not JSON" in followed(start("echo '{' > $0/result.json"))["error"]


def test_a_column_lineage_that_is_too_large_for_an_event_is_left_out() -> None:
    for length, has_lineage in ((100, True), (LONGEST_LINEAGE, False)):
        columns = ColumnLineage(columns={"c" * length: "int"}, tables=(), inputs={}, rows=())
        outcome = JobOutcome(merges=(MergeOutcome(target="t", result=DID, lineage=columns),)).to_dict()
        assert followed(start(tell(outcome)))["outcome"] == (outcome if has_lineage else RESULT)


def test_lines_are_passed_on_once_and_the_application_is_noticed(folder: Path) -> None:
    kept = start(
        "echo 'Merge: Spark application app-1, UI at http://driver:4040'; "
        "while [ ! -e $0/go ]; do sleep .1; done; echo two"
    )
    lines: list[str] = []
    wait_until(lambda: lines.extend(kept.follow()) or lines)
    (kept.folder / "go").touch()
    other = LocalApplication(kept.folder)  # another triggerer goes on
    wait_until(lambda: lines.extend(other.follow()) or len(lines) > 1)
    assert [line.split()[0] for line in lines] == ["Merge:", "two"]
    wait_until(lambda: other.ended())
    end = other.ended()
    assert end is not None
    assert end.application is not None
    assert (end.application.id, end.reason) == ("app-1", "two")


def test_secrets_are_masked_where_it_is_followed(folder: Path) -> None:
    """In a process that does not know them otherwise."""
    secret, part = "s3cret-of-conf", "s3cret-in-a-text"
    first = f"""
from tests.airflow.test_local_application import *
from airflow.sdk.log import mask_secret
tempfile.tempdir = {str(folder)!r}
mask_secret({secret!r})
mask_secret({part!r})
print(start("echo {secret} {part}", secrets=[{{"a.secret": {secret!r}, "b": "x {part} y"}}]).folder)
"""
    root = Path(__file__).parents[2]
    run = {"cwd": root, "capture_output": True, "text": True, "check": True}
    where = subprocess.run([sys.executable, "-c", first], **run).stdout.splitlines()[-1]  # type: ignore[call-overload]
    second = f"""
from tests.airflow.test_local_application import *
kept = LocalApplication(Path({where!r}))
kept.mask_secrets()
wait_until(lambda: kept.ended())
print(kept.follow())
"""
    seen = subprocess.run([sys.executable, "-c", second], **run).stdout  # type: ignore[call-overload]
    assert seen.splitlines()[-1] == "['*** ***']"


def test_a_secret_that_ends_beyond_a_read_is_masked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "s3cret-across-two-reads"
    mask_secret(secret)
    monkeypatch.setattr(local_application, "_MAX_BYTES_PER_READ", 64)
    (folder / "output").write_text("\n".join(["x" * 30, f"{'y' * 20} {secret} z", "w" * 100, "end"]) + "\n")
    kept, lines = LocalApplication(folder), list[str]()
    while new := kept.follow():
        lines += new
    assert lines == ["x" * 30, f"{'y' * 20} *** z", "w" * 64, "w" * 36, "end"], "a line longer than a read is split"


def test_ending_it_ends_all_its_processes(folder: Path) -> None:
    kept = start("trap '' TERM; sleep 1000 & sleep 1000; echo never")
    wait_until(lambda: len(processes(folder)) == 2)  # the keeper, which has its lock first, and the shell
    assert kept.is_kept()
    begun = time.monotonic()
    kept.kill()
    assert (list(folder.iterdir()), kept.is_kept()) == ([], False)
    wait_until(lambda: not processes(folder))
    assert time.monotonic() - begun < 10


def test_ending_it_leaves_another_process_alone_that_has_its_id_in_this_container(folder: Path) -> None:
    """Worker and triggerer may be containers that share the folder, and number their processes each on its own."""
    kept = start("sleep 1000")
    with subprocess.Popen(["sleep", "1000"]) as other:
        (kept.folder / "keeper.lock").write_text(f"{other.pid}\n")
        kept.kill()
        was_left_alone = other.poll() is None
        other.kill()
    assert was_left_alone
    assert (list(folder.iterdir()), kept.is_kept()) == ([], False)
    wait_until(lambda: not processes(folder))


def test_one_whose_keeper_was_killed_is_lost(folder: Path) -> None:
    kept = start("exec sleep 1")
    os.kill(int((kept.folder / "keeper.lock").read_text()), signal.SIGKILL)
    assert "disappeared: its keeper process was killed" in followed(kept)["error"]
    kept.kill()
    assert list(folder.iterdir()) == []


def test_an_application_on_another_machine_cannot_be_followed(folder: Path) -> None:
    end = LocalApplication(folder / "airflow_delta_merge_there", host="worker-7").ended()
    assert end is not None
    assert not end.another_try_helps
    assert f"Spark was started on worker-7, but the triggerer runs on {HERE} and cannot follow it" in str(end.error)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("closed", [".", ".."], ids=["its folder", "the folder of temporary files"])
def test_an_application_of_another_user_cannot_be_followed_or_ended(folder: Path, closed: str) -> None:
    kept = start("sleep 1000")
    for parent in folder.parents[:4]:
        parent.chmod(0o755)
    folder.chmod(0o777)
    (kept.folder / closed).chmod(0o700)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        follower = trigger(kept)
        warnings: list[str] = []
        follower.log.warning = lambda text, *values: warnings.append(text % values)  # type: ignore[method-assign]
        event = asyncio.run(anext(follower.run())).payload
        asyncio.run(follower._kill("a user has cleared it"))
        os.write(tell, json.dumps([event, warnings]).encode())
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    with open(told) as said:
        event, warnings = json.load(said)
    assert event["error"].startswith(f"The triggerer runs as another user than the task and may not read {kept.folder}")
    assert not event["another_try_helps"]
    (warning,) = warnings
    assert warning == f"The Spark application could not be ended: {event['error']}"
    assert kept.is_kept()
    kept.kill()


@pytest.mark.parametrize("follows", [True, False])
def test_one_that_nobody_follows_is_ended(folder: Path, follows: bool) -> None:
    staging = stage()
    keeper = [sys.executable, "-I", "-S", application_keeper.__file__, "--folder", str(staging.folder)]
    keeper += ["--silence-seconds", "2", "--", "sh", "-c", "sleep 6; echo done", str(staging.folder)]
    kept = LocalApplication(staging.folder)
    with subprocess.Popen(keeper) as process:
        wait_until(kept.is_kept)
        followed_lines: list[str] = []
        wait_until(
            lambda: (
                (followed_lines.extend(kept.follow()) if follows else None)
                or followed_lines
                or process.poll() is not None
            )
        )
        assert followed_lines == (["done"] if follows else [])
        assert staging.folder.exists() is follows
        kept.kill()


def test_an_earlier_try_is_found(folder: Path) -> None:
    def command(staging: Staging, what: str = "x") -> list[str]:
        return ["sh", "-c", f": {what}; sleep 1000", str(staging.folder)]

    staging = staged_for(WHO)
    kept = LocalApplication.start(
        staging, command(staging), os.environ, (), SparkLog(None), started_as=fingerprint(staging, command(staging))
    )
    start("sleep 1000", MergeIdentity(application_id="somebody else", generation=7))
    (found, theirs), *others = LocalApplication.find(WHO)
    assert (found.folder, theirs, others) == (kept.folder, WHO, [])
    retry = staged_for(WHO)
    assert found.is_started_as(fingerprint(retry, command(retry)))
    assert not found.is_started_as(fingerprint(retry, command(retry, "y")))
    assert found.can_still_succeed()
    other = staged_for(WHO, MergeConfig(target="u", source="s", on=["id"], clauses=[when_matched_delete()]))
    assert not found.is_started_as(fingerprint(other, command(other)))


@pytest.mark.parametrize(("script", "can"), [(tell(RESULT), True), (tell(FAILED), False), ("exit 1", False)])
def test_an_earlier_try_that_failed_is_no_use(script: str, can: bool) -> None:
    kept = start(script)
    wait_until((kept.folder / "exit.json").exists)
    assert kept.can_still_succeed() is can


class Ti:
    """What a trigger knows of its task."""

    dag_id, task_id, run_id, map_index = "d", "t", "r", -1


@pytest.mark.parametrize(("state", "ends"), [("deferred", False), ("failed", True), (None, True)])
def test_only_a_user_ends_it_not_a_change_of_triggerers(
    state: str | None, ends: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {"r": {"t": state}} if state else {}
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(lambda **_: states))
    kept = start("sleep 1000")
    follower = trigger(kept)
    follower._task_instance = Ti()  # type: ignore[assignment]
    asyncio.run(follower.on_kill())
    assert kept.is_kept() is not ends
    said = "Ending Spark, because the task was cleared or marked, or its run was deleted."
    assert (said in capsys.readouterr().out) is ends


def test_nothing_is_said_of_an_end_when_spark_has_ended_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Airflow cancels the trigger of a task that goes on, too."""
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(lambda **_: {"r": {"t": "running"}}))
    kept = start(tell(RESULT))
    wait_until((kept.folder / "exit.json").exists)
    follower = trigger(kept)
    follower._task_instance = Ti()  # type: ignore[assignment]
    asyncio.run(follower.on_kill())
    assert not kept.folder.exists()
    assert "Spark" not in capsys.readouterr().out


def test_its_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    kept = start("sleep 1000")
    event = asyncio.run(anext(trigger(kept, deadline=time.time() - 1).run())).payload
    assert event["timed_out"]
    assert not kept.folder.exists()
    assert "Ending Spark, because the task's execution_timeout has passed." in capsys.readouterr().out
