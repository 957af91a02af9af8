"""Deferred merges by a real scheduler, triggerer and API server: they end like blocking ones, and never get lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.airflow.once import Once, applied, with_canary
from tests.airflow.scheduled.conftest import TRIGGERER, wait_for_scheduled
from tests.waiting import wait_until

# They take minutes: `make test` has one deferred merge, in test_scheduler.py.
pytestmark = pytest.mark.slow

ENDLESS = "SELECT id, 1L AS n FROM range(1000000000000) WHERE hash(id) = 1"


def nothing_left_within(seconds: float, airflow: Once) -> None:
    deadline = time.monotonic() + seconds
    while left := airflow.left():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def held(airflow: Once, dag_id: str, run_id: str, **conf: Any) -> Path:
    """Start a run whose merge is deferred, and whose spark-submit waits until the file that is returned is gone."""
    folder = airflow.order(run_id, "hold")
    airflow.trigger(dag_id, run_id, **conf)
    airflow.wait((folder / "held").exists)
    airflow.wait(lambda: airflow.task(dag_id, run_id)["state"] == "deferred")
    return folder / "hold"


@pytest.fixture(scope="module", autouse=True)
def nothing_stays(airflow: Once) -> Iterator[None]:
    wait_for_scheduled(airflow)  # what it leaves would count, too
    yield
    nothing_left_within(10, airflow)


def endless(airflow: Once, run_id: str, table: Path) -> None:
    """Start a run whose merge is deferred, with a source that has no end, and wait until Spark is at it."""
    airflow.trigger("once_deferrable_source", run_id, table=str(table), source=ENDLESS)
    airflow.wait(lambda: airflow.links("once_deferrable_source", run_id)["Spark application"])
    assert airflow.task("once_deferrable_source", run_id)["state"] == "deferred"
    assert any("java" in line for line in airflow.left())


def test_a_deferred_merge_ends_like_a_blocking_one(airflow: Once) -> None:
    summaries = []
    for dag_id in ("once_blocking", "once_deferrable"):
        table = airflow.table(dag_id)
        if dag_id == "once_blocking":
            airflow.trigger(dag_id, "alike", table=str(table))
        else:
            held(airflow, dag_id, "alike", table=str(table)).unlink()
        airflow.run_ended(dag_id, "alike")
        result, links = airflow.result(dag_id, "alike"), airflow.links(dag_id, "alike")
        (event,) = airflow.asset_events(dag_id)
        assert (result["version"], result["num_inserted_rows"], applied(table)) == (1, 3, 1)
        assert set(result.pop("durations_ms")) >= {"total", "commit"}
        assert links["Commit"] == f"https://catalog.example/{quote(result['table'], safe='')}/1"
        assert str(links["Spark application"]).startswith("http://history:18080/history/local-")
        assert event["extra"]["num_inserted_rows"] == 3
        assert {"return_value", "num_inserted_rows"} < airflow.xcom_keys(dag_id, "alike")
        metrics = result.pop("metrics")
        summaries.append(
            [
                {
                    name: value
                    for name, value in result.items()
                    if name not in ("table", "location") and "bytes" not in name
                },
                sorted(metrics),
                airflow.xcom_keys(dag_id, "alike"),
                sorted(links),
                sorted(event["extra"]),
            ]
        )
    assert summaries[0] == summaries[1]
    nothing_left_within(10, airflow)


def test_several_deferred_merges(airflow: Once) -> None:
    targets = [airflow.table(f"deferred_several{number}") for number in range(2)]
    airflow.trigger("once_deferrable_merges", "deferred_several", tables=[str(target) for target in targets])
    airflow.run_ended("once_deferrable_merges", "deferred_several")
    results = airflow.results("once_deferrable_merges", "deferred_several")
    assert [result["num_inserted_rows"] for result in results] == [3, 3]
    assert [applied(target) for target in targets] == [1, 1]
    nothing_left_within(10, airflow)


def test_marked_failed_while_deferred(airflow: Once) -> None:
    table = airflow.table("marked")
    endless(airflow, "marked", table)
    airflow.mark("once_deferrable_source", "marked", "failed")
    nothing_left_within(10, airflow)
    wait_until(lambda: "Ending Spark, because" in airflow.logged("once_deferrable_source", "marked"), 30)
    assert applied(table) == 0


def test_a_deferred_merge_fails_with_the_sentence_of_a_blocking_one(airflow: Once) -> None:
    for dag_id in ("once_blocking_source", "once_deferrable_source"):
        table = airflow.table(f"fails_{dag_id}")
        airflow.trigger(dag_id, "fails", table=str(table), source="SELECT 1L AS id, no_such_column AS n")
        airflow.run_ended(dag_id, "fails", "failed")
        assert airflow.task(dag_id, "fails")["try_number"] == 1, "another try was made"
        assert f"The merge into delta.`{table}` failed: [UNRESOLVED_COLUMN.WITHOUT_SUGGESTION]" in airflow.logged(
            dag_id, "fails"
        )


def test_an_empty_source_skips_a_deferred_merge(airflow: Once) -> None:
    table = airflow.table("empty")
    source = "SELECT 1L AS id, 1L AS n WHERE false"
    airflow.trigger("once_deferrable_source", "empty", table=str(table), source=source)
    airflow.run_ended("once_deferrable_source", "empty")
    assert airflow.task("once_deferrable_source", "empty")["state"] == "skipped"


def test_cleared_while_deferred(airflow: Once) -> None:
    table = airflow.table("cleared")
    held(airflow, "once_deferrable", "cleared", table=str(table))
    before = submits(airflow, "cleared")
    airflow.clear("once_deferrable", "cleared", "merge")
    airflow.wait(lambda: len(submits(airflow, "cleared")) == 2)
    wait_until(lambda: not is_alive(before[0]), 10)
    (airflow.control / "cleared.-1" / "hold").unlink()
    airflow.run_ended("once_deferrable", "cleared")
    assert (airflow.result("once_deferrable", "cleared")["version"], applied(table)) == (1, 1)
    # The trigger ends it, or the next try before Airflow cancels the trigger.
    log = airflow.logged("once_deferrable", "cleared")
    assert "Ending Spark, because" in log or "Ending the Spark application of an earlier try or execution" in log


def test_its_run_is_deleted_while_deferred(airflow: Once) -> None:
    table = airflow.table("deleted")
    endless(airflow, "deleted", table)
    run = "/api/v2/dags/once_deferrable_source/dagRuns/deleted"
    airflow.call(run, {"state": "failed"}, method="PATCH")  # Airflow deletes no run that goes on
    airflow.call(run, method="DELETE")
    nothing_left_within(10, airflow)
    assert applied(table) == 0


@pytest.mark.parametrize("ended_meanwhile", [False, True])
def test_the_triggerer_is_killed_and_another_one_goes_on(airflow: Once, ended_meanwhile: bool) -> None:
    run_id = f"killed_{ended_meanwhile}"
    table = airflow.table(run_id)
    hold = held(airflow, "once_deferrable", run_id, table=str(table))
    triggerer = airflow.processes.pop(TRIGGERER)
    os.killpg(triggerer.pid, signal.SIGKILL)
    triggerer.wait()
    if ended_meanwhile:
        hold.unlink()
        airflow.wait(lambda: applied(table) == 1)
        wait_until(lambda: list(airflow.temporary.glob("*/exit.json")), 60)
    airflow.start(TRIGGERER)
    if not ended_meanwhile:
        time.sleep(3)  # it may take over before, or after, the application goes on
        hold.unlink()
    airflow.run_ended("once_deferrable", run_id)
    assert (airflow.result("once_deferrable", run_id)["already_committed"], applied(table)) == (False, 1)
    assert len(submits(airflow, run_id)) == 1


def test_the_triggerer_is_stopped_and_started(airflow: Once) -> None:
    """As an upgrade does it: no reason to end Spark."""
    table = airflow.table("stopped")
    hold = held(airflow, "once_deferrable", "stopped", table=str(table))
    triggerer = airflow.processes.pop(TRIGGERER)
    triggerer.terminate()
    triggerer.wait()
    airflow.start(TRIGGERER)
    hold.unlink()
    airflow.run_ended("once_deferrable", "stopped")
    assert (applied(table), len(submits(airflow, "stopped"))) == (1, 1)


def test_its_time_is_over_while_deferred(airflow: Once) -> None:
    table = airflow.table("late")
    held(airflow, "once_deferrable_timeout", "late", table=str(table))
    airflow.run_ended("once_deferrable_timeout", "late", "failed")
    nothing_left_within(10, airflow)
    assert "was not completed within the task's execution_timeout" in airflow.logged("once_deferrable_timeout", "late")
    assert applied(table) == 0


def test_a_deferred_merge_of_a_function(airflow: Once) -> None:
    table = airflow.table("function")
    airflow.trigger("once_deferrable_function", "function", table=str(table))
    airflow.run_ended("once_deferrable_function", "function")
    assert (airflow.result("once_deferrable_function", "function")["num_inserted_rows"], applied(table)) == (3, 1)


def test_secrets_are_nowhere_in_a_deferred_merge(airflow: Once, tmp_path: Path) -> None:
    """Neither in the triggerer's logs, whose process never saw the templates rendered, nor in its event."""
    table, source = airflow.table("deferred_secret"), tmp_path / "source.csv"
    source.write_text("id,n\n1,1\n")
    airflow.trigger("once_deferrable_secret", "deferred_secret", table=str(table), source=str(source))
    airflow.run_ended("once_deferrable_secret", "deferred_secret")
    assert applied(table) == 1
    assert "spark.hadoop.fs.s3a.secret.key" in airflow.logged("once_deferrable_secret", "deferred_secret")
    nothing_left_within(10, airflow)
    assert with_canary(airflow) == []


def submits(airflow: Once, run_id: str) -> list[int]:
    """The process ids of the spark-submits that a run has had."""
    return [int(pid) for pid in (airflow.control / f"{run_id}.-1" / "submits").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
