"""A real Airflow in a folder of its own: configuration, processes and API; for the demo, the chaos run and tests."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

READY_SECONDS = 420  # on a machine with other things to do
SECONDS_TO_ANSWER = 30
ATTEMPTS_TO_READ = 3
POLL_SECONDS = 1.0


class AirflowError(Exception):
    """Airflow cannot go on; the message says why."""


class RealAirflow:
    """An Airflow of its own: home, SQLite database, and the processes that run DAGs.

    :param home: its AIRFLOW_HOME, to be made.
    :param dags_folder: where its DAGs are.
    :param log: an open file for all that its processes print.
    :param settings: more of ``airflow.cfg``: options by section.
    :param environment: more environment variables for its processes.
    """

    def __init__(
        self,
        home: Path,
        dags_folder: Path,
        log: IO[bytes],
        *,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.dags_folder = dags_folder
        self.log = log
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.token: str | None = None
        self._settings = settings or {}
        self._environment = environment or {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[Self]:
        """This Airflow with its API server and DAG processor; all its processes end with the block.

        Tasks that start before the API answers are lost, so there is no scheduler before it does: whoever wants one
        starts it then.
        """
        self.write_config()
        self.migrate()
        try:
            self.start("api-server", "dag-processor")
            self.wait_until_ready()
            yield self
        finally:
            self.stop()

    def write_config(self) -> None:
        """Write ``airflow.cfg``; that way one can look around later with nothing but AIRFLOW_HOME set."""
        settings: dict[str, dict[str, object]] = {
            "core": {
                "dags_folder": self.dags_folder,
                "load_examples": False,
                "dags_are_paused_at_creation": False,
                "parallelism": 2,
                "simple_auth_manager_all_admins": True,
                "execution_api_server_url": f"{self.url}/execution/",
            },
            "database": {"sql_alchemy_conn": f"sqlite:///{self.home / 'airflow.db'}"},
            "logging": {"base_log_folder": self.home / "logs"},
            "api": {"host": "127.0.0.1", "port": self.port, "base_url": self.url, "workers": 1},
            "api_auth": {"jwt_secret": secrets.token_hex(32)},
            "scheduler": {"scheduler_idle_sleep_time": 0.5},
            "dag_processor": {"min_file_process_interval": 300},  # the DAG file doesn't change
            "delta_merge": {"class_archive": False},  # made in the background, it would outlive this Airflow
        }
        for section, options in self._settings.items():
            settings.setdefault(section, {}).update(options)
        lines = []
        for section, options in settings.items():
            lines += [f"[{section}]", *(f"{name} = {value}".replace("%", "%%") for name, value in options.items()), ""]
        self.home.mkdir(parents=True)
        (self.home / "airflow.cfg").write_text("\n".join(lines))

    def migrate(self) -> None:
        done = subprocess.run(
            _airflow("db", "migrate"), env=self.environment(), stdout=self.log, stderr=self.log, check=False
        )
        if done.returncode != 0:
            raise AirflowError("Airflow's database could not be made (`airflow db migrate` failed)")

    def start(self, *names: str, before: Sequence[str] = ()) -> None:
        """Start Airflow's processes.

        :param names: arguments of ``airflow``, e.g. ``scheduler``.
        :param before: a program, with its first arguments, that is given the command as further ones.
        """
        for name in names:
            # A session of its own, so that its end ends its workers and Spark too.
            self.processes[name] = subprocess.Popen(
                [*before, *_airflow(*name.split())],
                env=self.environment(),
                stdout=self.log,
                stderr=self.log,
                start_new_session=True,
            )

    def check_alive(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise AirflowError(f"Airflow's {name.split()[0]} ended with exit code {process.returncode}")

    def stop(self) -> None:
        for kind, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            for process in self.processes.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, kind)
            until = time.monotonic() + patience
            for process in self.processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, until - time.monotonic()))

    def wait_until_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            self.check_alive()
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                self.token = self.call("/auth/token")["access_token"]
                return
            if time.monotonic() > until:
                raise AirflowError(f"Airflow's API server did not answer within {READY_SECONDS} s")
            time.sleep(POLL_SECONDS)

    def call(self, path: str, body: Mapping[str, Any] | None = None, *, method: str | None = None) -> dict[str, Any]:
        """Call the API: GET without a body, POST with one, or what ``method`` says; the answer's JSON.

        What only reads is asked for again on a machine that is too busy to answer in time.
        """
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - our own address
        # No proxy for this machine's own address; Airflow may answer slowly while it starts.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for left in reversed(range(1 if request.get_method() != "GET" else ATTEMPTS_TO_READ)):
            try:
                with opener.open(request, timeout=SECONDS_TO_ANSWER) as answer:
                    text = answer.read()
                break
            except TimeoutError:
                if not left:
                    raise
        result: dict[str, Any] = json.loads(text) if text else {}
        return result

    def environment(self) -> dict[str, str]:
        """The caller's environment without their Airflow's settings, and with the venv's programs on PATH."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("AIRFLOW_") or name.startswith("AIRFLOW_DELTA_MERGE_")
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        proxies = ",".join(filter(None, [os.environ.get("no_proxy"), "127.0.0.1"]))
        return kept | {
            "AIRFLOW_HOME": str(self.home),
            "PATH": path,
            # Each Spark lives some seconds here: Java's second compiler would cost more time than it saves.
            "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:TieredStopAtLevel=1".strip(),
            "no_proxy": proxies,
            "NO_PROXY": proxies,
            "PYTHONUNBUFFERED": "1",
            **self._environment,
        }


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _airflow(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "airflow"), *arguments]
