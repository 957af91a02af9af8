"""``airflow backfill create`` over 30 intervals, several at a time: the same table as one after the other."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta_merge.contract.commit_record import CommitRecord
from scripts.real_airflow import RealAirflow

PATIENCE_SECONDS = 1500
DAGS = Path(__file__).parent / "backfill_dags"
BERLIN = ZoneInfo("Europe/Berlin")
#: The clocks go forward on 2026-03-29, so that one of the days has 23 hours.
FIRST_DAY, NUM_DAYS = date(2026, 3, 14), 30
DAYS = [FIRST_DAY + timedelta(days=number) for number in range(NUM_DAYS)]
SCHEMA = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("v", pa.string())])


def reading(id_: str, day: date, v: str, *, before_midnight: bool = False) -> dict[str, Any]:
    """A reading at the first or at the last moment of a day in Berlin."""
    at = datetime.combine(day + timedelta(days=before_midnight), datetime.min.time(), BERLIN).astimezone(UTC)
    return {"id": id_, "at": at - timedelta(microseconds=before_midnight), "day": day, "v": v}


def source_rows() -> list[dict[str, Any]]:
    """Of each day a restated row, and a new one at the day's last moment; and rows of days that no run is about."""
    around = [FIRST_DAY - timedelta(days=1), FIRST_DAY + timedelta(days=NUM_DAYS)]
    return [
        reading(f"{day} {name}", day, "new", before_midnight=late)
        for day in [*DAYS, *around]
        for name, late in (("restated", False), ("late", True))
    ]


def rows_before() -> list[dict[str, Any]]:
    """Of each day a row that is restated and one that is gone from the source; and a row of the day before."""
    rows = [reading(f"{day} {name}", day, "old") for day in DAYS for name in ("restated", "gone")]
    return [*rows, reading("of the day before", FIRST_DAY - timedelta(days=1), "old", before_midnight=True)]


def rows_one_after_the_other() -> list[dict[str, Any]]:
    """The model: for each day of the backfill the source's rows replace the table's."""
    rows = rows_before()
    for day in DAYS:
        rows = [row for row in rows if row["day"] != day] + [row for row in source_rows() if row["day"] == day]
    return rows


@pytest.fixture
def airflow(tmp_path: Path) -> Iterator[RealAirflow]:
    with (tmp_path / "log").open("ab") as log:
        airflow = RealAirflow(
            tmp_path / "airflow",
            DAGS,
            log,
            settings={"core": {"parallelism": 3}},
            environment={"DELTA_MERGE_TESTS": str(tmp_path)},
        )
        with airflow.serving():
            yield airflow


def wait(airflow: RealAirflow, path: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask Airflow's API until it gives an answer for which the condition is true."""
    until = time.monotonic() + PATIENCE_SECONDS
    answer = None
    while True:
        with suppress(urllib.error.HTTPError):
            if condition(answer := airflow.call(path)):
                return answer
        assert time.monotonic() < until, answer
        airflow.check_alive()
        time.sleep(2)


def have_ended(runs: dict[str, Any]) -> bool:
    states = [run["state"] for run in runs["dag_runs"]]
    return len(states) >= NUM_DAYS and all(state in ("success", "failed") for state in states)


@pytest.mark.slow
def test_thirty_days_at_once_are_thirty_days_one_after_the_other(airflow: RealAirflow, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    pq.write_table(pa.Table.from_pylist(source_rows(), SCHEMA), tmp_path / "source.parquet")
    table = tmp_path / "readings"
    write_deltalake(table, pa.Table.from_pylist(rows_before(), SCHEMA), partition_by=["day"])

    airflow_command = Path(sys.executable).parent / "airflow"
    options = ["--dag-id", "days", "--max-active-runs", "4"]
    days = ["--from-date", f"{DAYS[0]}T00:00:00+01:00", "--to-date", f"{DAYS[-1]}T23:00:00+02:00"]
    wait(airflow, "/api/v2/dags/days", lambda dag: True)
    done = subprocess.run(
        [airflow_command, "backfill", "create", *options, *days],
        env=airflow.environment(),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    # Not before: the command writes all runs at once, for which SQLite has no patience beside a scheduler.
    airflow.start("scheduler --skip-serve-logs")
    runs = wait(airflow, "/api/v2/dags/days/dagRuns?limit=100", have_ended)["dag_runs"]

    assert [run["state"] for run in runs] == ["success"] * NUM_DAYS
    found = DeltaTable(table)
    by_id = sorted(found.to_pyarrow_table().select(SCHEMA.names).cast(SCHEMA).to_pylist(), key=lambda row: row["id"])
    assert by_id == sorted(rows_one_after_the_other(), key=lambda row: row["id"])

    merges = [commit for commit in found.history() if commit["operation"] == "MERGE"]
    assert len(merges) == NUM_DAYS
    results = []
    for commit in merges:
        record = CommitRecord.from_user_metadata(commit["userMetadata"])
        assert record is not None
        results.append(record.result_of(commit["version"]))
    # Some were computed while others committed, and none of those was in another's way.
    assert any(result.version - result.version_read > 1 for result in results if result.version)
    assert [result.num_commit_attempts for result in results] == [1] * NUM_DAYS
