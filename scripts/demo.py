"""Run the demo DAG with a real Airflow of its own in ``.demo/`` and show what its merges did.

``make demo`` calls this. It starts Airflow's API server, DAG processor and scheduler on a SQLite database, lets the
scheduler catch up the DAG's three daily intervals, has it run the last one once more, and reads everything it shows
from Airflow's REST API (XCom) and the table's own Delta log. All output of Airflow goes to ``.demo/demo.log``;
``FLIGHTS_DEMO_FOLDER`` names another folder than ``.demo/``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import sys
import time
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from real_airflow import POLL_SECONDS, AirflowError, RealAirflow

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("FLIGHTS_DEMO_FOLDER") or CHECKOUT / ".demo").absolute()
HOME = FOLDER / "airflow"
LOG = FOLDER / "demo.log"
TABLE = FOLDER / "flights"
DAG_ID = "flights_daily_upsert"
MERGE_TASK = "merge"
INTERVALS = 3
RUN_SECONDS = 900

sys.path.insert(0, str(CHECKOUT / "dags"))


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass
class Progress:
    """Progress lines, each with the seconds since the start."""

    started: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"[{self.seconds:4.0f} s] {text}", flush=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


class Airflow(RealAirflow):
    """The demo's Airflow, and what it asks of its API."""

    def runs(self) -> list[dict[str, Any]]:
        """The DAG's runs, oldest interval first; none while the DAG is not parsed yet."""
        try:
            runs = self.call(f"/api/v2/dags/{DAG_ID}/dagRuns?order_by=logical_date")["dag_runs"]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return []
        return list(runs)

    def tasks(self, run_id: str) -> list[dict[str, Any]]:
        answer = self.call(f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances")
        return list(answer["task_instances"])

    def merge_result(self, run_id: str) -> dict[str, Any]:
        entry = f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{MERGE_TASK}/xcomEntries/return_value"
        value = self.call(entry)["value"]
        return dict(json.loads(value) if isinstance(value, str) else value)

    def clear(self, run_id: str) -> None:
        self.call(f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}/clear", {"dry_run": False})


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _leave)
    with _only_one(), contextlib.ExitStack() as stack:
        _start_afresh()
        log = stack.enter_context(LOG.open("ab"))
        airflow = Airflow(HOME, CHECKOUT / "dags", log, environment={"FLIGHTS_DEMO_FOLDER": str(FOLDER)})
        stack.callback(airflow.stop)
        try:
            _demo(airflow, Progress())
        except (DemoError, AirflowError, OSError) as error:
            print(f"\nThe demo failed: {error}\nAirflow's output: {LOG}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nThe demo was stopped.", file=sys.stderr)
            return 130
    return 0


def _demo(airflow: Airflow, progress: Progress) -> None:
    progress.say(f"Making a new Airflow in {_short(HOME)}; its output goes to {_short(LOG)}")
    airflow.write_config()
    airflow.migrate()
    progress.say("Starting its API server, DAG processor and scheduler")
    airflow.start("api-server", "dag-processor")
    airflow.wait_until_ready()
    airflow.start("scheduler --skip-serve-logs")
    progress.say(f"Airflow answers at {airflow.url}; the scheduler now catches up {INTERVALS} daily intervals")

    runs = _follow(airflow, progress, set())
    results = [airflow.merge_result(run["dag_run_id"]) for run in runs]
    rows = [_interval(run, result) for run, result in zip(runs, results, strict=True)]
    before = _fingerprint()
    last = runs[-1]
    progress.say(f"Running {_day(last)} once more")
    airflow.clear(last["dag_run_id"])
    again = _follow(airflow, progress, {run["dag_run_id"] for run in runs[:-1]})[-1]
    result_again = airflow.merge_result(again["dag_run_id"])
    rows.append(_interval(again, result_again, " again"))
    after = _fingerprint()

    counts = ("inserted", "updated", "deleted")
    print("\nWhat each interval's merge did, as it came through XCom\n")
    _print_table(("interval", *counts, "files touched", "of files there", "seconds", "of them merge"), rows)
    print(f"\nThe table's history ({_short(TABLE)}/_delta_log)\n")
    _print_table(("version", "operation", *counts, "files removed", "files added"), _history())
    print()
    _judge(before, after, date.fromisoformat(_day(last)))
    progress.say("Done")
    home, programs = (shlex.quote(str(path)) for path in (HOME, Path(sys.executable).parent))
    print(
        "\nTo see these merges in Airflow's UI, without a password, run\n"
        f"  AIRFLOW_HOME={home} PATH={programs}:$PATH airflow standalone\n"
        f"and open {airflow.url}/plugin/delta_merges"
    )


def _follow(airflow: Airflow, progress: Progress, done: set[str]) -> list[dict[str, Any]]:
    """Say what runs until all intervals but the ``done`` ones have succeeded; all runs then, in order."""
    said: set[tuple[str, str]] = set()
    until = time.monotonic() + RUN_SECONDS
    while time.monotonic() < until:
        airflow.check_alive()
        time.sleep(POLL_SECONDS)
        runs = airflow.runs()
        for run in (run for run in runs if run["dag_run_id"] not in done):
            if run["state"] == "running" and (task := _running_task(airflow, run, said)):
                progress.say(f"{_day(run)}: {task} …")
                break  # one line at a poll
            if run["state"] == "failed":
                raise DemoError(_failure(airflow, run))
            if run["state"] == "success":
                progress.say(f"{_day(run)}: done, {_summary(airflow.merge_result(run['dag_run_id']))}")
                done.add(run["dag_run_id"])
                break
        if len(done) == INTERVALS:
            return runs
    raise DemoError(f"the intervals did not end within {RUN_SECONDS} s")


def _running_task(airflow: Airflow, run: Mapping[str, Any], said: set[tuple[str, str]]) -> str | None:
    for task in airflow.tasks(run["dag_run_id"]):
        key = (run["dag_run_id"], task["task_id"])
        if task["state"] == "running" and key not in said:
            said.add(key)
            return str(task["task_id"])
    return None


def _failure(airflow: Airflow, run: Mapping[str, Any]) -> str:
    failed = next((task for task in airflow.tasks(run["dag_run_id"]) if task["state"] == "failed"), None)
    if failed is None:
        return f"the interval {_day(run)} failed"
    log = HOME / "logs" / f"dag_id={DAG_ID}" / f"run_id={run['dag_run_id']}" / f"task_id={failed['task_id']}"
    log /= f"attempt={failed['try_number']}.log"
    return f"in the interval {_day(run)} the task {failed['task_id']} failed: {_last_error(log)}\nIts log: {log}"


def _last_error(log: Path) -> str:
    """The first line of the last exception in a task's log, which is JSON by line."""
    error = "it left no exception in its log"
    with contextlib.suppress(OSError, ValueError, KeyError):
        for line in log.read_text().splitlines():
            for detail in json.loads(line).get("error_detail", []):
                error = str(detail["exc_value"]).partition("\n")[0]
    return error


def _summary(result: Mapping[str, Any]) -> str:
    if result["version"] is None:
        return "there was nothing to do and nothing was committed"
    files = result["num_touched_files"]
    return f"{result['num_affected_rows']:,} rows changed, {files} file{'' if files == 1 else 's'} touched"


def _interval(run: Mapping[str, Any], result: Mapping[str, Any], remark: str = "") -> tuple[object, ...]:
    return (
        _day(run) + remark,
        result["num_inserted_rows"],
        result["num_updated_rows"],
        result["num_deleted_rows"],
        result["num_touched_files"],
        result["num_files_before_skipping"],
        f"{run['duration']:.1f}",
        f"{result['durations_ms']['total'] / 1000:.1f}",
    )


def _history() -> list[tuple[object, ...]]:
    """The versions as the Delta log tells them, with the metrics Delta itself keeps of a MERGE."""
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    files = ("numTargetFilesRemoved", "numTargetFilesAdded")
    rows = []
    for version, actions in _commits():
        info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
        metrics = info.get("operationMetrics", {})
        rows.append((version, info["operation"], *(metrics.get(name, "") for name in (*names, *files))))
    return rows


def _commits() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for path in sorted((TABLE / "_delta_log").glob("*.json")):
        yield int(path.stem), [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Fingerprint:
    """The state of the table: its version, its live files and a checksum of its rows."""

    version: int
    files: frozenset[str]
    rows: int
    checksum: str


def _fingerprint() -> Fingerprint:
    import pandas as pd

    commits = list(_commits())
    live: set[str] = set()
    for _, actions in commits:
        live |= {action["add"]["path"] for action in actions if "add" in action}
        live -= {action["remove"]["path"] for action in actions if "remove" in action}
    # Hive-style folders hold the partition column, which pandas gets from the path.
    frames = [pd.read_parquet(TABLE / name).assign(flight_month=name.split("/")[0].split("=")[1]) for name in live]
    rows = pd.concat(frames)
    return Fingerprint(commits[-1][0], frozenset(live), len(rows), _checksum(rows))


def _checksum(rows: Any) -> str:
    """A checksum that does not depend on the rows' order."""
    import pandas as pd

    import flights_feed

    plain = {}
    for name, kind in flights_feed.TABLE_COLUMNS.items():
        values = rows[name].astype("Int64") if kind == "INT" else rows[name]  # else NULLs make them 515.0
        plain[name] = values.astype("string").fillna("")
    return f"{int(pd.util.hash_pandas_object(pd.DataFrame(plain), index=False).sum()):016x}"


def _expected_checksum(day: date) -> str:
    """The checksum of what the feed's rule says of that day, computed without any merge."""
    import pandas as pd

    import flights_feed

    path = flights_feed.write_parquet(
        flights_feed.snapshot(flights_feed.read_flights(), day), FOLDER / "expected.parquet"
    )
    return _checksum(pd.read_parquet(path))


def _judge(before: Fingerprint, after: Fingerprint, day: date) -> None:
    if before != after:
        raise DemoError(
            f"the second run of {day} changed the table: version {before.version} → {after.version}, "
            f"{before.rows} → {after.rows} rows, checksum {before.checksum} → {after.checksum}"
        )
    print(
        f"The second run of {day} changed nothing: the table still has version {after.version}, the same "
        f"{len(after.files)} files,\n{after.rows:,} rows and checksum {after.checksum}."
    )
    if after.checksum != _expected_checksum(day):
        raise DemoError(f"the table's rows are not those that the data rule gives for {day}")
    print(f"Its rows are exactly those that the data rule gives for {day} without any merge.\n")


def _print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    table = [list(header)] + [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        first, *others = zip(row, widths, strict=True)
        print("  " + first[0].ljust(first[1]) + "".join(f"  {cell:>{width}}" for cell, width in others))


def _day(run: Mapping[str, Any]) -> str:
    return str(run["data_interval_start"])[:10]


def _start_afresh() -> None:
    for path in FOLDER.iterdir():
        if path.name == "lock":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another demo is running in {FOLDER}; wait for its end.", file=sys.stderr)
            raise SystemExit(1) from None
        yield


def _short(path: Path) -> str:
    return str(path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path)


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
