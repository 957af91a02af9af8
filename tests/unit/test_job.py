"""The job's ends: arguments, result file, errors. What it does in between is tested through Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflow_delta_merge.contract.outcome import JobError
from airflow_delta_merge.exceptions import MergeExecutionError
from airflow_delta_merge.job import application as job
from airflow_delta_merge.job.process import is_alive
from tests.waiting import wait_until


def test_outcome_appears_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    job.write_private_file(path, "täble")
    assert path.read_text(encoding="utf-8") == "täble"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_outcome_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        job.write_private_file(tmp_path / "result.json", "\udc00")
    assert list(tmp_path.iterdir()) == []


def test_bad_config_fails_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request, result = tmp_path / "request.json", tmp_path / "result.json"
    request.write_text('{"merges": {"version": 1, "target": {"table": "t"}}}')
    assert job.main(["--request", str(request), "--result", str(result)]) == 1
    error = json.loads(result.read_text())["error"]
    assert error == {
        "type": "MergeConfigError",
        "condition": None,
        "sql_state": None,
        "message": "The merge config lacks: source, on, clauses.",
        "another_try_helps": False,
    }
    assert capsys.readouterr().err == f"The merge failed: {error['message']}\n"


def test_error_with_condition() -> None:
    error = MergeExecutionError("No such table.", condition="DELTA_TABLE_NOT_FOUND", sql_state="42P01")
    assert JobError.of(error) == JobError(
        type="MergeExecutionError",
        condition="DELTA_TABLE_NOT_FOUND",
        sql_state="42P01",
        message="No such table.",
        another_try_helps=True,
    )


def test_error_of_pyspark() -> None:
    from pyspark.errors import AnalysisException

    error = AnalysisException(errorClass="CONTEXT_ONLY_VALID_ON_DRIVER", messageParameters={})
    described = JobError.of(error)
    assert (described.type, described.condition) == ("AnalysisException", "CONTEXT_ONLY_VALID_ON_DRIVER")


def test_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A parent starts a job-like process in a session of its own, as the hook does, and is killed."""
    child = textwrap.dedent(
        """
        import os, sys, time
        from airflow_delta_merge.job.process import end_with
        end_with(os.getppid(), sys.argv[2])
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(60)
        """
    )
    start = f"[sys.executable, '-c', {child!r}, *sys.argv[1:]], start_new_session=True"
    parent = f"import subprocess, sys; subprocess.run({start})"
    pid_file, staging = tmp_path / "pid", tmp_path / "staging"
    staging.mkdir()
    (staging / "request.json").touch()
    with subprocess.Popen([sys.executable, "-c", parent, str(pid_file), str(staging)]) as process:
        wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
        process.kill()
    pid = int(pid_file.read_text())
    wait_until(lambda: not runs(pid))
    assert not staging.exists()


def test_a_parent_that_nobody_reaps_is_gone() -> None:
    """Where the first process of a container reaps nobody, it stays as a zombie."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert is_alive(process.pid)
        process.kill()
        wait_until(lambda: not runs(process.pid))
        os.kill(process.pid, 0)  # it is still there
        assert not is_alive(process.pid)
    assert not is_alive(process.pid)
    assert is_alive(1), "a process of another user, or our own"


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # where nobody reaps orphans a dead process stays as a zombie
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
