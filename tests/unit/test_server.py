"""The server of a kept Spark, with real sockets and a stand-in for Spark: who is served, and when it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_delete
from airflow_delta_merge.contract.frames import KIND, SOCKET, receive, send
from airflow_delta_merge.contract.outcome import JobOutcome, MergeOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import MergeExecutionError, MergeGuardError
from airflow_delta_merge.job import server
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="keep_warm is for Linux")
#: What stands for the outcome of a merge that was not cancelled.
OUTCOME = JobOutcome(merges=(MergeOutcome(target="t", skipped="It is only a test."),))


class Merges:
    """Merges into ``slow`` run until they are cancelled, others end at once, ``broken`` and ``guarded`` by errors."""

    cancelled: threading.Event

    def __init__(self, _: Any, request: JobRequest) -> None:
        self.target = request.each_merge[0].target.to_sql()

    def run(self) -> JobOutcome:
        server.log.info("Merging into %s", self.target)
        if "broken" in self.target:
            raise RuntimeError("LiveListenerBus is stopped.")
        if "guarded" in self.target:
            raise MergeGuardError("Too many rows.")
        if "slow" not in self.target:
            return OUTCOME
        if not self.cancelled.wait(30):
            raise AssertionError("It was not cancelled.")
        raise MergeExecutionError("It was cancelled.")


class Served:
    """A server in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spark = MagicMock()
        context = self.spark.sparkContext
        context.defaultParallelism, context.applicationId, context.uiWebUrl = 2, "local-1", None
        context.getConf().get.return_value = "false"
        context._jsc.sc().isStopped.return_value = False
        context._jsc.sc().conf().getBoolean.return_value = False
        context._jvm.java.lang.Runtime.getRuntime().maxMemory.return_value = 1 << 40
        (folder / KIND).touch()
        self.why = ""
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        wait_until(lambda: (folder / SOCKET).exists())

    def _serve(self) -> None:
        self.why = server.Server(self.spark, self.folder).serve()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(str(self.folder / SOCKET))
        return connection

    def begin(self, target: str, keep_warm: float = 100.0) -> socket.socket:
        """Begin a merge, and read until it says what it is at."""
        config = MergeConfig(target=target, source="s", on=["id"], clauses=[when_matched_delete()])
        connection = self.connect()
        send(connection, {"request": JobRequest(merges=config).to_json(), "keep_warm": keep_warm})
        assert receive(connection) == {"accepted": os.getpid()}
        return connection

    def begin_slow(self, target: str) -> socket.socket:
        """Begin a merge that lasts, and read until it runs: a task that leaves earlier has no merge to cancel."""
        connection = self.begin(target)
        wait_until(lambda: "Merging into" in (receive(connection) or {}).get("log", ""))
        return connection

    def merge(self, target: str, keep_warm: float = 100.0) -> list[dict[str, Any]]:
        """All that is said of a merge, to its end."""
        messages = []
        with self.begin(target, keep_warm) as connection:
            while (message := receive(connection)) is not None:
                messages.append(message)
        return messages

    def end(self) -> dict[str, Any] | None:
        with self.connect() as connection:
            send(connection, {"end": "if idle"})
            return receive(connection)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    Merges.cancelled = threading.Event()
    monkeypatch.setattr(server, "Merges", Merges)
    monkeypatch.setattr(server, "_POLL_SECONDS", 0.05)
    handler = server._ClientLogHandler()
    server.log.addHandler(handler)
    server.log.setLevel("INFO")
    with tempfile.TemporaryDirectory(prefix="s-") as folder:
        served = Served(Path(folder))
        yield served
        Merges.cancelled.set()
        (Path(folder) / SOCKET).unlink(missing_ok=True)
        served.thread.join(20)
        assert not served.thread.is_alive()
    server.log.removeHandler(handler)


def cancel_on(served: Served, group: str) -> list[str]:
    """Let Spark cancel this group, and note which ones it was asked to."""
    asked: list[str] = []

    def cancel(name: str) -> None:
        asked.append(name)
        if name == group:
            Merges.cancelled.set()

    served.spark.sparkContext.cancelJobGroup.side_effect = cancel
    return asked


def test_a_merge_gets_its_own_log_and_its_outcome(served: Served) -> None:
    assert served.merge("one") == [
        {"log": "Spark application local-1"},
        {"log": "Merging into `one`"},
        {"outcome": OUTCOME.to_dict()},
    ]


def test_a_task_that_leaves_has_its_merge_cancelled_and_no_other(served: Served) -> None:
    asked = cancel_on(served, "merge-1")
    slow = served.begin_slow("slow")
    assert served.merge("one")[-1] == {"outcome": OUTCOME.to_dict()}
    assert asked == []
    assert served.end() == {"ends": False}, "it is busy"
    slow.close()
    assert Merges.cancelled.wait(20)
    assert served.merge("two")[-1] == {"outcome": OUTCOME.to_dict()}
    assert set(asked) == {"merge-1"}


def test_a_merge_for_which_there_is_no_place_waits(served: Served) -> None:
    cancel_on(served, "merge-1")
    slow = [served.begin_slow("slow"), served.begin_slow("slow2")]
    waiting = served.begin("one")
    assert "Waiting" in (receive(waiting) or {})["log"]
    for connection in slow:
        connection.close()
    assert receive(waiting) == {"log": "Spark application local-1"}
    waiting.close()


def test_a_merge_that_cannot_be_cancelled_makes_it_take_no_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS_TO_CANCEL", 0.2)
    served.begin_slow("slow").close()
    served.thread.join(20)
    assert served.why == "a merge could not be cancelled"


def test_it_ends_when_no_merge_comes_and_leaves_no_socket(served: Served) -> None:
    served.merge("one", keep_warm=0.3)
    served.thread.join(20)
    assert served.why == "no merge has succeeded for 0 s"
    assert list(served.folder.iterdir()) == []


def test_only_merges_that_show_a_sound_spark_keep_it(served: Served) -> None:
    served.merge("one", keep_warm=0.5)
    served.merge("guarded", keep_warm=1.5)
    served.merge("broken", keep_warm=100)
    time.sleep(1)
    assert served.thread.is_alive()
    served.thread.join(20)
    assert served.why.startswith("no merge has succeeded for ")


def test_a_spark_that_has_stopped_takes_no_merge_before_it_ends(served: Served) -> None:
    # What ends it comes a moment later.
    stopped = served.spark.sparkContext._jsc.sc().isStopped
    stopped.side_effect = lambda: threading.current_thread() is not served.thread
    with served.connect() as connection:
        send(connection, {"request": "{}", "keep_warm": 100})
        assert receive(connection) is None, "it was accepted"
    assert list(served.folder.iterdir()) == [], "the next try must not find it"


def test_a_context_that_java_has_stopped_ends_it() -> None:
    """As a lost master does, with a real Spark."""
    script = textwrap.dedent(
        f"""
        import tempfile, threading
        from pathlib import Path
        from pyspark.sql import SparkSession
        from airflow_delta_merge.job.server import Server
        builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m")
        spark = builder.config("spark.ui.enabled", "false").getOrCreate()
        with tempfile.TemporaryDirectory(prefix="s-") as folder:
            threading.Timer(1, lambda: spark.sparkContext._jsc.sc().stop()).start()
            (Path(folder) / "{KIND}").touch()
            print(Server(spark, Path(folder)).serve(), list(Path(folder).iterdir()))
            spark.stop()
        """
    )
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.splitlines()[-1] == "its SparkContext has stopped []"


def test_the_longest_wait_counts(served: Served) -> None:
    served.merge("one", keep_warm=100)
    served.merge("two", keep_warm=0)
    time.sleep(0.5)
    assert served.thread.is_alive()
    assert served.end() == {"ends": True}
    served.thread.join(20)
    assert served.why == "another one needs its memory"


@pytest.mark.parametrize(
    ("constant", "value", "why"),
    [
        ("_MAX_MERGES", 1, "it has run 1 merges"),
        ("_MAX_AGE_SECONDS", 0.1, "it has run for 0.0 hours"),
    ],
)
def test_it_ends_after_enough_merges_or_time(
    served: Served, monkeypatch: pytest.MonkeyPatch, constant: str, value: float, why: str
) -> None:
    served.merge("one")
    monkeypatch.setattr(server, constant, value)
    served.thread.join(20)
    assert served.why == why


def test_it_ends_when_it_has_grown_too_large(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_resident_bytes", lambda: 1 << 50)
    served.merge("one")
    served.thread.join(20)
    assert served.why.startswith("it takes more memory than ")


def test_memory_that_spark_was_given_beside_the_heap_does_not_end_it() -> None:
    spark, off_heap = MagicMock(), 8 << 30
    spark.sparkContext.defaultParallelism = 2
    spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory.return_value = 1 << 30
    conf = spark.sparkContext._jsc.sc().conf()
    for is_on, taken in ((True, off_heap), (False, 0)):
        conf.getBoolean.return_value, conf.getSizeAsBytes.return_value = is_on, off_heap
        assert server.Server(spark, Path("/none"))._max_bytes == (1 << 30) + taken + server._MAX_BYTES_BEYOND_HEAP


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused_even_if_the_folder_lets_it_in(served: Served) -> None:
    served.folder.chmod(0o777)
    (served.folder / SOCKET).chmod(0o777)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            with served.connect() as connection:
                code = 2
                try:
                    send(connection, {"end": "if idle"})
                    code = 3 if receive(connection) is not None else 0
                except ConnectionError:
                    code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "it was answered (3), or could not even connect (1)"
    assert served.thread.is_alive()
