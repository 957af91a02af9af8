"""Kills that arrive while a merge is starting, as Airflow 3 passes them on: its handler calls on_kill and returns."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_delete
from airflow_delta_merge.contract.frames import SOCKET, receive, send
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch import warm
from airflow_delta_merge.launch.kept_spark import KeptSpark
from airflow_delta_merge.launch.local_application import LocalApplication
from airflow_delta_merge.launch.preparation import Preparation
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.processes import naming
from tests.waiting import wait_until

CONFIG = MergeConfig(target="/tmp/t", source="/tmp/s", on=["id"], clauses=[when_matched_delete()])
KILLED = "Airflow ended this task, and Spark with it"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files of these tests, in a folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        before = signal.getsignal(signal.SIGTERM)
        yield Path(folder)
        signal.signal(signal.SIGTERM, before)
        for process in naming(folder):
            process.kill()
        monkeypatch.undo()


@pytest.fixture
def submit(folder: Path) -> Path:
    """What stands for spark-submit: it leaves a file when it has started."""
    path = folder / "spark-submit"
    path.write_text(f"#!/bin/sh\nsleep .2\ntouch {folder}/started\nexec sleep 15 {folder}\n")
    path.chmod(0o755)
    return path


def hook_of(submit: Path, **arguments: Any) -> DeltaMergeHook:
    """A hook that SIGTERM kills."""
    hook = DeltaMergeHook(spark_binary=str(submit), **arguments)
    signal.signal(signal.SIGTERM, lambda *_: hook.on_kill())
    return hook


def kill_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let SIGTERM arrive when a function is about to return; of all processes only those of spark-submit count."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if owner is not subprocess.Popen or "spark-submit" in str(args[1]):
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    monkeypatch.setattr(owner, name, wrapped)


def nothing_runs(folder: Path) -> None:
    wait_until(lambda: not naming(str(folder)))
    time.sleep(0.5)  # longer than what stands for spark-submit takes to leave its file
    assert not (folder / "started").exists()
    assert list(folder.glob("airflow_delta_merge_*")) == []


def fails_as_killed(hook: DeltaMergeHook, *, deferrable: bool) -> None:
    with pytest.raises(DeltaMergeException, match=KILLED):
        hook.start(JobRequest(merges=CONFIG)) if deferrable else hook.merge(CONFIG)


@pytest.mark.parametrize(
    ("owner", "name", "deferrable"),
    [
        pytest.param(Preparation, "for_merge", False, id="during preparation"),
        pytest.param(subprocess.Popen, "__init__", False, id="while spark-submit starts"),
        pytest.param(Preparation, "for_inspection", True, id="deferrable, before preparation"),
        pytest.param(Preparation, "for_merge", True, id="deferrable, during preparation"),
        pytest.param(LocalApplication, "start_keeper", True, id="deferrable, while the keeper starts"),
    ],
)
def test_a_merge_does_not_start(
    submit: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, deferrable: bool
) -> None:
    hook = hook_of(submit)
    kill_after(monkeypatch, owner, name)
    fails_as_killed(hook, deferrable=deferrable)
    nothing_runs(folder)


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(Preparation, "for_warm_merge"), (KeptSpark, "connect"), (warm, "send"), (warm, "receive")],
    ids=["during preparation", "when it has connected", "when it has sent the request", "when it was accepted"],
)
def test_a_kept_spark_does_not_run_the_merge(
    submit: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, deferrable: bool
) -> None:
    """It gets no request, or the connection ends, by which it cancels the merge."""
    kept = folder / "kept"
    kept.mkdir(mode=0o700)
    heard: list[Any] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(kept / SOCKET))
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.settimeout(20)
                heard.append(receive(connection))
                if heard[0] is not None:
                    try:
                        send(connection, {"accepted": 1})
                        heard.append(receive(connection))
                    except ConnectionError:  # it ended before this was read
                        heard.append(None)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        monkeypatch.setattr(KeptSpark, "find", lambda _: KeptSpark(kept))
        hook = hook_of(submit, keep_warm=60)
        kill_after(monkeypatch, owner, name)
        fails_as_killed(hook, deferrable=deferrable)
        nothing_runs(folder)
        if name != "for_warm_merge":
            server.join(20)
    assert (heard or [None])[-1] is None
    assert len(heard) == {"for_warm_merge": 0, "connect": 1}.get(name, 2)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_killed_task_does_not_wait_for_a_kept_spark(
    submit: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    hook = hook_of(submit, keep_warm=60)
    kill_after(monkeypatch, LocalApplication, "poll")
    begun = time.monotonic()
    fails_as_killed(hook, deferrable=deferrable)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_task_that_is_killed_before_it_has_a_hook_does_not_merge(
    submit: Path, folder: Path, deferrable: bool
) -> None:
    merge = DeltaMergeOperator(
        task_id="merge", target="/tmp/t", source="/tmp/s", on=["id"], clauses=[when_matched_delete()],
        exactly_once=False, deferrable=deferrable, spark_binary=str(submit),
    )  # fmt: skip
    merge.on_kill()
    with pytest.raises(DeltaMergeException, match=KILLED):
        merge.execute({})  # type: ignore[typeddict-item]
    nothing_runs(folder)
