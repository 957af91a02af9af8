"""A standalone Spark cluster of this machine's own: a master and workers as processes."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark

from scripts.real_airflow import free_port
from tests.cluster.processes import stop
from tests.waiting import wait_until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
SECONDS_TO_START = 120


class Standalone:
    """A cluster whose workers have one core each.

    :param folder: for logs and the workers' own folders.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._web_port = free_port(), free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, workers: int) -> None:
        self._run("org.apache.spark.deploy.master.Master", "--port", self.port, "--webui-port", self._web_port)
        wait_until(lambda: self.state() is not None, SECONDS_TO_START)
        self._workers = [self._start_worker(number) for number in range(workers)]
        self._wait_for_workers()

    def replace_workers(self) -> None:
        """Start those again that have ended."""
        for number, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self._workers[number] = self._start_worker(number)
        self._wait_for_workers()

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        options = ["--cores", 1, "--memory", "1g", "--webui-port", 0, "--work-dir", self.folder / f"worker{number}"]
        return self._run("org.apache.spark.deploy.worker.Worker", *options, self.master)

    def _wait_for_workers(self) -> None:
        wait_until(lambda: (self.state() or {})["aliveworkers"] == len(self._workers), SECONDS_TO_START)

    def state(self) -> dict[str, Any] | None:
        """What the master tells of its workers and applications; None when it doesn't answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(OSError), opener.open(f"http://127.0.0.1:{self._web_port}/json/", timeout=10) as answer:
            return dict(json.load(answer))
        return None

    def executors(self) -> list[psutil.Process]:
        """The executors that run for any application of this cluster."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            command = process.info["cmdline"] or []
            is_ours = EXECUTOR in command and any(str(self.folder) in each for each in [*command, _cwd(process)])
            if is_ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def worker_of(self, executor: psutil.Process) -> psutil.Process:
        """The worker that started this executor."""
        return next(parent for parent in executor.parents() if parent.pid in [each.pid for each in self._workers])

    def ran_executors(self) -> set[tuple[str, str]]:
        """Worker, and application with number, of each executor that ever was, by the folders they leave."""
        folders = [path for path in self.folder.glob("worker*/app-*/*") if path.is_dir()]
        return {(path.parts[-3], f"{path.parts[-2]}/{path.name}") for path in folders}

    def stop(self) -> None:
        stop(self.processes)
        for executor in self.executors():
            executor.kill()

    def _run(self, *command: object) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        class_, *options = command
        with (self.folder / "cluster.log").open("ab") as log:
            arguments = [str(SPARK_CLASS), str(class_), "--host", "127.0.0.1", *map(str, options)]
            process = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process


def _cwd(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return str(process.cwd())
    return ""


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """A cluster that runs."""
    cluster = Standalone(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
