"""Server processes whose ids are in files, so that a later run can end what a killed one left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

SECONDS_TO_START = 120
SECONDS_TO_END = 10
#: What a server's clients meet before it answers.
NOT_YET = (ApiException, HTTPError, OSError, subprocess.CalledProcessError)


class Processes:
    """The processes of a cluster.

    :param run: the folder of the files with their ids.
    :param logs: the folder of their output.
    """

    def __init__(self, run: Path, logs: Path) -> None:
        self._run, self._logs = run, logs
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[object], environment: Mapping[str, str] | None = None) -> None:
        with self._log(name).open("ab") as log:
            # Ctrl-C ends the tests alone, which then stop the cluster in order.
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )
        self._started[name] = process
        with suppress(psutil.NoSuchProcess):
            self._file(name).write_text(f"{process.pid} {psutil.Process(process.pid).create_time()}")

    def wait_for(self, what: str, condition: Callable[[], Any]) -> None:
        """Wait until a condition holds. An error of ``NOT_YET`` in it means: not yet.

        :raises RuntimeError: when a process has ended meanwhile, or it takes too long.
        """
        deadline = time.monotonic() + SECONDS_TO_START
        last: Exception | None = None
        while True:
            try:
                if condition():
                    return
            except NOT_YET as error:
                last = error
            for name, process in self._started.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"Waited {SECONDS_TO_START} s for {what} in vain ({last}); see {self._logs}.")
            time.sleep(0.1)

    def kill(self, *names: str) -> None:
        """Kill these, also when an earlier run started them. Their state is thrown away, so none needs time to end."""
        running = [process for name in names if (process := self._process(name))]
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(running, SECONDS_TO_END)
        for name in names:
            if name in self._started:
                self._started.pop(name).wait(SECONDS_TO_END)
            self._file(name).unlink(missing_ok=True)

    def _process(self, name: str) -> psutil.Process | None:
        with suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
            pid, created = self._file(name).read_text().split()
            process = psutil.Process(int(pid))
            # Otherwise the id is another process's by now.
            if process.create_time() == float(created):
                return process
        return None

    def _file(self, name: str) -> Path:
        return self._run / f"{name}.pid"

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _tail(self, name: str) -> str:
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-10:])
