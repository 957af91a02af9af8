"""A real Airflow whose merges count how often they are applied, and are made to die; see ``tests/faults/seam``."""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_delta_merge.contract.commit_record import CommitRecord
from scripts.real_airflow import RealAirflow
from tests.airflow import tables
from tests.airflow.canary import CANARY
from tests.airflow.processes import naming

PATIENCE_SECONDS = 300
PATIENT_CALLS = 20
DAGS = Path(__file__).parent / "once_dags"
SECRETS = {
    "AIRFLOW_VAR_CANARY_CONF": f"{CANARY}-conf",
    "AIRFLOW_VAR_CANARY_ACCOUNT": f"{CANARY}-account==",
    "AIRFLOW_VAR_CANARY_OPTION": f"{CANARY}-option $(id) '\"",
    "AIRFLOW_CONN_CANARY_SPARK": json.dumps(
        {
            "conn_type": "spark",
            "host": "local[*]",
            "login": "somebody",
            "password": f"{CANARY}-password",
            "extra": {"token": f"{CANARY}-extra"},
        }
    ),
}
# A connection with all that a task can link to.
LINKED = {
    "conn_type": "delta_merge",
    "host": "local[*]",
    "extra": {
        "history_server_url": "http://history:18080",
        "commit_url": "https://catalog.example/{table}/{version}",
        "conf": {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "{folder}"},
    },
}
ENDED = ("success", "failed")


class Once(RealAirflow):
    """An Airflow with the DAGs of ``once_dags``, and its tables."""

    def __init__(
        self, folder: Path, log: Any, settings: Any = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.control = folder / "control"
        self.control.mkdir()
        self.tables = folder / "tables"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        (folder / "events").mkdir()
        linked = json.dumps(LINKED).replace("{folder}", str(folder / "events"))
        ours = {
            "DELTA_MERGE_CONTROL": str(self.control),
            "TMPDIR": str(self.temporary),
            "AIRFLOW_CONN_LINKED_SPARK": linked,
            **SECRETS,
            **(environment or {}),
        }
        super().__init__(folder / "airflow", DAGS, log, settings=settings, environment=ours)

    def call(self, path: str, body: Any = None, *, method: str | None = None) -> dict[str, Any]:
        """Call the API, again when SQLite is locked: the server answers 500 or 503, having done nothing."""
        for patience in range(PATIENT_CALLS):
            try:
                return super().call(path, body, method=method)
            except urllib.error.HTTPError as error:
                if error.code < 500 or patience == PATIENT_CALLS - 1:
                    raise
            except TimeoutError:
                if patience == PATIENT_CALLS - 1:
                    raise
            time.sleep(1)
        raise AssertionError("unreachable")

    def has_dags(self) -> bool:
        try:
            return all(self.call(f"/api/v2/dags/{dag}") for dag in ("once", "once_slow_retry", "once_mapped"))
        except urllib.error.HTTPError:
            return False

    def table(self, name: str) -> Path:
        return tables.create_table(self.tables / name, {"id": "long", "n": "long"})

    def order(self, run_id: str, name: str, text: str = "", map_index: int = -1) -> Path:
        """Have something happen to the next merge of a run."""
        folder = self.control / f"{run_id}.{map_index}"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        return folder

    def trigger(self, dag_id: str, run_id: str, **conf: Any) -> None:
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf}
        self.call(f"/api/v2/dags/{dag_id}/dagRuns", body)

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": [task_id], "only_failed": False}
        self.call(f"/api/v2/dags/{dag_id}/clearTaskInstances", body)

    def mark(self, dag_id: str, run_id: str, state: str) -> None:
        """Mark the merge of a run as a person does."""
        self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/merge", {"new_state": state}, method="PATCH")

    def xcom_keys(self, dag_id: str, run_id: str) -> set[str]:
        entries = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/merge/xcomEntries?limit=100"
        return {entry["key"] for entry in self.call(entries)["xcom_entries"]}

    def links(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        return dict(self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/merge/links")["extra_links"])

    def asset_events(self, dag_id: str) -> list[dict[str, Any]]:
        return list(self.call(f"/api/v2/assets/events?source_dag_id={dag_id}")["asset_events"])

    def logged(self, dag_id: str, run_id: str) -> str:
        """All logs of the tasks of a run."""
        logs = sorted(self.folder.rglob(f"dag_id={dag_id}/run_id={run_id}/**/*.log*"))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def left(self) -> list[str]:
        """Staging folders, and the command lines of processes that use them."""
        left = [str(path) for path in self.temporary.glob("airflow_delta_merge_*")]
        left += [" ".join(each.info["cmdline"]) for each in naming(f"{self.temporary}/airflow_delta_merge_")]
        return left

    def task(self, dag_id: str, run_id: str, task_id: str = "merge", map_index: int = -1) -> dict[str, Any]:
        found = self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        (instance,) = [each for each in found if (each["task_id"], each["map_index"]) == (task_id, map_index)]
        return dict(instance)

    def result(self, dag_id: str, run_id: str, map_index: int = -1) -> dict[str, Any]:
        return dict(self._returned(dag_id, run_id, map_index))

    def results(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Those of a task with several merges."""
        return list(self._returned(dag_id, run_id, -1))

    def _returned(self, dag_id: str, run_id: str, map_index: int) -> Any:
        entries = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/merge/xcomEntries"
        value = self.call(f"{entries}/return_value?map_index={map_index}")["value"]
        return json.loads(value) if isinstance(value, str) else value

    def wait(self, condition: Callable[[], Any]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < until, "waited in vain"
            self.check_alive()
            time.sleep(1)

    def run_ended(self, dag_id: str, run_id: str, state: str = "success") -> None:
        def ended() -> bool:
            return self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"] in ENDED

        self.wait(ended)
        found = self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"]
        assert found == state, f"the run is {found}, {self._log_excerpt(dag_id, run_id)}"

    def _log_excerpt(self, dag_id: str, run_id: str) -> str:
        """The tasks of a run, with the ends of their logs."""
        tasks = self.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        states = [f"{t['task_id']}[{t['map_index']}] try {t['try_number']} {t['state']}" for t in tasks]
        logs = sorted(self.folder.rglob(f"dag_id={dag_id}/run_id={run_id}/**/*.log"))
        ends = [f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs]
        return "\n".join(["its tasks:", *states, *ends])


@contextmanager
def running(folder: Path, settings: Any = None, environment: Mapping[str, str] | None = None) -> Iterator[Once]:
    """An Airflow in ``folder`` that runs, and has its DAGs."""
    with (folder / "log").open("ab") as log, Once(folder, log, settings, environment).serving() as airflow:
        airflow.start("scheduler --skip-serve-logs")
        airflow.wait(airflow.has_dags)
        yield airflow


def with_canary(airflow: Once) -> list[Path]:
    """The files of an Airflow in which a secret stands."""
    looked_at = [path for path in airflow.folder.rglob("*") if path.is_file()]
    assert {"airflow.db", "log", f"{1:020}.json"} <= {path.name for path in looked_at}
    assert any("attempt=1" in path.name for path in looked_at)
    return [path for path in looked_at if CANARY.encode() in path.read_bytes()]


def applied(table: Path) -> int:
    """How often the merge was applied, by the commits that say so and by the rows themselves."""
    import pyarrow.parquet as pq

    live: set[str] = set()
    for commit in commits(table):
        live -= {action["remove"]["path"] for action in commit if "remove" in action}
        live |= {action["add"]["path"] for action in commit if "add" in action}
    counts = {n for path in live for n in pq.read_table(table / path)["n"].to_pylist()}
    (count,) = counts or {0}
    assert len(commits(table)) == count + 1
    return int(count)


def commits(table: Path) -> list[list[dict[str, Any]]]:
    logs = sorted((table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def record(table: Path) -> CommitRecord:
    """What the last commit says of itself, read without Spark."""
    from deltalake import DeltaTable

    commit = DeltaTable(str(table)).history(1)[0]
    assert commit["version"] == len(commits(table)) - 1
    found = CommitRecord.from_user_metadata(commit["userMetadata"])
    assert found is not None
    return found
