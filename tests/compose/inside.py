"""Runs the compose file's services and what they are there for: in namespaces that ``check.py`` makes, never outside.

``python -m tests.compose.inside IMAGES FOLDER ENV_FILE STARTED``: the network is this process's own, with nothing but
itself in it, and when this process ends, all others of its own end, too.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from tests.compose.compose_file import ROOT, services
from tests.compose.composition import Composition, CompositionError

sys.path.insert(0, str(ROOT / "dags"))

SECONDS_TO_RUN = 900.0  # on a machine with other things to do
AIRFLOW = "http://127.0.0.1:8080"
SPARK_MASTER = "http://127.0.0.1:8081"
S3 = "http://127.0.0.1:9000"
#: What is run, and how many runs end well: what the scheduler makes by itself, and for `weather_of_a_day` one by hand.
DAYS = {"flights_daily_upsert": 3, "planes_in_s3": 2, "weather_of_a_day": 1}
WEATHER_RUN = {"logical_date": "2013-03-10T12:00:00Z", "dag_run_id": "by_hand"}
WEATHER_ROWS = 72  # 24 hours, the day before that one, at three airports

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


class Airflow:
    """Airflow's API, as somebody outside of the containers calls it."""

    def __init__(self, password: str) -> None:
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token: str | None = None
        try:
            self.call("/auth/token", {"username": "admin", "password": "wrong"})
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
        else:
            raise CompositionError("Airflow takes any password.")
        self._token = self.call("/auth/token", {"username": "admin", "password": password})["access_token"]

    def call(self, path: str, body: Any = None, *, method: str | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(AIRFLOW + path, data, headers, method=method)
        with self._opener.open(request, timeout=30) as answer:
            return dict(json.load(answer))

    def dags(self) -> set[str]:
        return {dag["dag_id"] for dag in self.call("/api/v2/dags?limit=100")["dags"]}

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        return list(self.call(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"])


def main(images: Path, folder: Path, env_file: Path, started: float) -> None:
    def say(text: str) -> None:
        print(f"[{time.time() - started:4.0f} s] {text}", flush=True)

    _loopback_up()
    secrets = {name: str(value) for name, value in dotenv_values(env_file).items()}
    composition = Composition(services(env_file), images, folder, say)
    try:
        composition.start()
        say(f"All {len(composition.services)} services are as docker-compose.yaml wants them")
        airflow = Airflow(secrets["AIRFLOW_ADMIN_PASSWORD"])
        _run_dags(composition, airflow, say)
        _check_tables(composition, secrets, say)
        _check_cluster(composition, say)
        composition.stop_service("s3")
        composition.start_service("s3")
        composition.wait_for("s3")
        _check_table_in_s3(secrets)
        say("The S3 server has kept its objects over a restart")
        _check_secrets(composition, secrets, say)
        composition.check()
        composition.stop()
        say("Each service ended by SIGTERM")
    except CompositionError as error:
        sys.exit(f"The check failed: {error}\nLogs: {composition.logs}")


def _run_dags(composition: Composition, airflow: Airflow, say: Callable[[str], None]) -> None:
    expected = {path.stem for path in (ROOT / "dags").glob("*.py") if "@dag(" in path.read_text()}
    _wait(composition, lambda: airflow.dags() == expected, "the DAGs to be loaded")
    if airflow.call("/api/v2/importErrors")["total_entries"]:
        raise CompositionError(f"DAGs don't load: {airflow.call('/api/v2/importErrors')}")
    say(f"{len(expected)} DAGs are loaded")
    for dag_id in DAYS:
        airflow.call(f"/api/v2/dags/{dag_id}", {"is_paused": False}, method="PATCH")
    airflow.call("/api/v2/dags/weather_of_a_day/dagRuns", WEATHER_RUN)
    said: set[tuple[str, str]] = set()

    def have_ended() -> bool:
        open_runs: set[tuple[str, str]] = set()
        for dag_id in DAYS:
            for run in airflow.runs(dag_id):
                key = (dag_id, run["dag_run_id"])
                open_runs |= {key} if run["state"] in ("queued", "running") else set()
                if run["state"] == "failed":
                    raise CompositionError(f"{dag_id}: the run {run['dag_run_id']} failed: {_task_logs(composition)}")
                if run["state"] == "success" and key not in said:
                    said.add(key)
                    say(f"{dag_id}: {run['dag_run_id']} succeeded")
        by_hand = ("weather_of_a_day", WEATHER_RUN["dag_run_id"]) in said
        return (
            by_hand
            and not open_runs
            and all(sum(each == dag_id for each, _ in said) >= runs for dag_id, runs in DAYS.items())
        )

    _wait(composition, have_ended, "the DAGs' runs to end")


def _wait(composition: Composition, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_RUN
    while not condition():
        composition.check()
        if time.monotonic() > deadline:
            raise CompositionError(f"Waited {SECONDS_TO_RUN:.0f} s for {what}, in vain.")
        time.sleep(2)


def _task_logs(composition: Composition) -> str:
    """What the tasks' logs say of errors."""
    found = []
    for path in sorted(composition.volume("airflow-logs").glob("dag_id=*/**/*.log")):
        for line in path.read_text(errors="replace").splitlines():
            if '"level":"error"' in line:
                found.append(f"{path}: {line[:2000]}")
    return "\n".join(found[-3:])


def _check_tables(composition: Composition, secrets: dict[str, str], say: Callable[[str], None]) -> None:
    """Compare the tables with what pandas makes of the same data."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    import flights_feed

    lake = composition.volume("lake") / "flights"
    flights = flights_feed.snapshot(flights_feed.read_flights(), date(2013, 12, 31))
    path = flights_feed.write_parquet(flights, composition.folder / "expected.parquet")
    columns = list(flights_feed.TABLE_COLUMNS)
    order = [(key, "ascending") for key in flights_feed.KEYS]
    expected = pq.read_table(path).select(columns).sort_by(order)
    found = DeltaTable(str(lake / "flights")).to_pyarrow_table().select(columns).cast(expected.schema).sort_by(order)
    if not found.equals(expected):
        raise CompositionError(f"The table of flights has {found.num_rows} rows, not the {len(flights)} expected.")
    say(f"The table of flights on the volume has the {len(flights):,} rows that its data rule gives")
    rows = DeltaTable(str(lake / "weather")).to_pyarrow_table().num_rows
    if rows != WEATHER_ROWS:
        raise CompositionError(f"The table of weather has {rows} rows in place of {WEATHER_ROWS}.")
    say(f"The table of weather has the {rows} rows of its day")
    say(f"The table in S3 has the {_check_table_in_s3(secrets):,} planes that were seen in January and February")


def _check_table_in_s3(secrets: dict[str, str]) -> int:
    import pandas as pd
    from deltalake import DeltaTable

    import flights_feed

    flights = flights_feed.read_flights()
    flights["seen_at"] = pd.to_datetime(flights["time_hour"])
    flights["local_month"] = flights["seen_at"].dt.tz_convert("America/New_York").dt.strftime("%Y-%m")
    seen = flights[flights["dep_time"].notna() & flights["tailnum"].notna()]
    first = seen.groupby(["local_month", "tailnum", "carrier"], as_index=False)["seen_at"].min()
    last = (
        first[first["local_month"] <= "2013-02"]
        .sort_values(["local_month", "seen_at"])
        .drop_duplicates("tailnum", keep="last")
    )
    options = {
        "AWS_ACCESS_KEY_ID": secrets["S3_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": secrets["S3_SECRET_KEY"],
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": S3,
        "AWS_ALLOW_HTTP": "true",
    }
    found = DeltaTable("s3://lake/planes", storage_options=options).to_pandas()
    expected = set(zip(last["tailnum"], last["carrier"], strict=True))
    rows = list(zip(found["tailnum"], found["carrier"], strict=True))
    if len(rows) != len(expected) or set(rows) != expected:
        raise CompositionError(f"The table in S3 has {len(rows)} rows that aren't the {len(expected)} expected.")
    return len(rows)


def _check_cluster(composition: Composition, say: Callable[[str], None]) -> None:
    """The merges ran on the cluster, over both workers."""
    with urllib.request.urlopen(f"{SPARK_MASTER}/json/", timeout=10) as answer:
        state = json.load(answer)
    merges = len(state["completedapps"])
    if state["aliveworkers"] != 2 or merges < sum(DAYS.values()):
        raise CompositionError(f"The cluster has {state['aliveworkers']} workers and ran {merges} merges.")
    for worker in ("spark-worker-1", "spark-worker-2"):
        if not list(composition.root(worker).glob("work/app-*/*")):
            raise CompositionError(f"{worker} ran no executor.")
    say(f"The cluster ran {merges} merges, over both workers")


def _check_secrets(composition: Composition, secrets: dict[str, str], say: Callable[[str], None]) -> None:
    """No secret stands in a log or on a command line."""
    logs = [path for folder in (composition.logs, composition.volume("airflow-logs")) for path in folder.rglob("*")]
    logs += composition.root("spark-worker-1").glob("work/**/std*")
    texts = {path: path.read_bytes() for path in logs if path.is_file()}
    texts |= {path: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")}
    for name, secret in secrets.items():
        if told := [path for path, text in texts.items() if secret.encode() in text]:
            raise CompositionError(f"{name} stands in {told[0]}.")
    say(f"None of the {len(secrets)} secrets stands in the {len(texts)} logs and command lines")


def _loopback_up() -> None:
    """Switch on the one device that a new network has."""
    with socket.socket() as anything:
        fcntl.ioctl(anything, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


if __name__ == "__main__":
    os.umask(0o022)
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
