"""Airflow's REST API, as somebody outside of the containers calls it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from tests.compose.machine import CheckError

_SECONDS_TO_ANSWER = 120  # after a restart
_SECONDS_TO_RUN = 900
_OPEN = ("queued", "running")


class Airflow:
    """The API.

    :param port: its port on this machine.
    :param password: of the user admin.
    """

    def __init__(self, port: str, password: str) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token: str | None = None
        try:
            self.call("/auth/token", {"username": "admin", "password": "wrong"})
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
        else:
            raise CheckError("Airflow takes any password.")
        self._token = self.call("/auth/token", {"username": "admin", "password": password})["access_token"]

    def call(self, path: str, body: Any = None, *, method: str | None = None) -> dict[str, Any]:
        """Call a path, again while nothing answers there."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, headers, method=method)
        deadline = time.monotonic() + _SECONDS_TO_ANSWER
        while True:
            try:
                with self._opener.open(request, timeout=30) as answer:
                    return dict(json.load(answer))
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def dags(self) -> set[str]:
        return {dag["dag_id"] for dag in self.call("/api/v2/dags?limit=100")["dags"]}

    def unpause(self, dag_id: str) -> None:
        self.call(f"/api/v2/dags/{dag_id}", {"is_paused": False}, method="PATCH")

    def trigger(
        self, dag_id: str, run_id: str, *, logical_date: str | None = None, conf: dict[str, object] | None = None
    ) -> None:
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": conf or {}}
        self.call(f"/api/v2/dags/{dag_id}/dagRuns", body)

    def runs(self, dag_id: str) -> dict[str, str]:
        """The states of a DAG's runs, by their ids."""
        runs = self.call(f"/api/v2/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in runs}

    def merge(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The task instance of a run's merge."""
        return self.call(f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/merge")

    def log(self, dag_id: str, run_id: str, attempt: int) -> str:
        """The log of a run's merge; empty while there is none."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/merge/logs/{attempt}?full_content=true"
        try:
            return json.dumps(self.call(path)["content"])
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return ""

    def wait_for_run(self, dag_id: str, run_id: str) -> None:
        """Wait until a run has ended well.

        :raises CheckError: when it fails, or takes too long.
        """
        deadline = time.monotonic() + _SECONDS_TO_RUN
        while (state := self.runs(dag_id).get(run_id, "queued")) in _OPEN:
            if time.monotonic() > deadline:
                raise CheckError(f"{dag_id}: the run {run_id} is still {state} after {_SECONDS_TO_RUN} s.")
            time.sleep(1)
        if state != "success":
            attempt = max(1, self.merge(dag_id, run_id)["try_number"])
            raise CheckError(f"{dag_id}: the run {run_id} is {state}: {self.log(dag_id, run_id, attempt)[-3000:]}")
