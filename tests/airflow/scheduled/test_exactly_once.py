"""One intended execution, one commit: retries, clears, deleted runs, backfills, by a real scheduler through its API.

The merges here count, so a row's ``n`` tells how often one was applied. First tries are made to lose their
result after the commit, in the way that ``tests/faults/seam`` describes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.canary import Watch
from tests.airflow.once import Once, applied, record, with_canary


def test_retry_then_clear_then_delete(airflow: Once) -> None:
    table = airflow.table("life")
    airflow.order("life", "lose-result")
    airflow.trigger("once", "life", table=str(table))
    airflow.run_ended("once", "life")
    result = airflow.result("once", "life")
    assert (airflow.task("once", "life")["try_number"], applied(table)) == (2, 1)
    assert (result["already_committed"], result["version"], result["num_inserted_rows"]) == (True, 1, 3)
    first = record(table)
    assert first.identity.application_id == "airflow:/once/merge/life/-1"
    assert first.identity.task_instance.try_number == 1
    # What the log tells is what XCom tells.
    assert {**first.result_of(1).to_dict(), "already_committed": True} == result

    airflow.clear("once", "life", "merge")
    airflow.run_ended("once", "life")
    assert (airflow.result("once", "life")["already_committed"], applied(table)) == (False, 2)

    airflow.call("/api/v2/dags/once/dagRuns/life", method="DELETE")
    airflow.trigger("once", "life", table=str(table))
    airflow.run_ended("once", "life")
    assert (airflow.result("once", "life")["already_committed"], applied(table)) == (False, 3)
    assert record(table).identity.generation > first.identity.generation


@pytest.mark.slow
def test_torn_result(airflow: Once) -> None:
    table = airflow.table("torn")
    airflow.order("torn", "tear-result")
    airflow.trigger("once", "torn", table=str(table))
    airflow.run_ended("once", "torn")
    assert (airflow.result("once", "torn")["already_committed"], applied(table)) == (True, 1)


@pytest.mark.slow
def test_clear_of_another_task_between_two_tries(airflow: Once) -> None:
    table = airflow.table("beside")
    folder = airflow.order("beside", "lose-result")
    airflow.trigger("once_slow_retry", "beside", table=str(table))
    airflow.wait((folder / "lose-result.done").exists)
    airflow.wait(lambda: airflow.task("once_slow_retry", "beside")["state"] == "up_for_retry")
    airflow.clear("once_slow_retry", "beside", "other")
    airflow.run_ended("once_slow_retry", "beside")
    assert airflow.task("once_slow_retry", "beside", "other")["try_number"] == 2
    assert (airflow.result("once_slow_retry", "beside")["already_committed"], applied(table)) == (True, 1)


@pytest.mark.slow
def test_clear_while_running(airflow: Once) -> None:
    table = airflow.table("running")
    folder = airflow.order("running", "hold")
    airflow.trigger("once", "running", table=str(table))
    airflow.wait((folder / "held").exists)
    airflow.clear("once", "running", "merge")
    airflow.wait(lambda: airflow.task("once", "running")["try_number"] == 2)
    (folder / "hold").unlink()
    airflow.run_ended("once", "running")
    assert (airflow.result("once", "running")["already_committed"], applied(table)) == (False, 1)


@pytest.mark.slow
def test_mapped(airflow: Once) -> None:
    targets = [airflow.table(f"mapped{index}") for index in range(2)]
    airflow.order("mapped", "lose-result", map_index=1)
    airflow.trigger("once_mapped", "mapped", tables=[str(target) for target in targets])
    airflow.run_ended("once_mapped", "mapped")
    for index, target in enumerate(targets):
        assert (airflow.result("once_mapped", "mapped", index)["already_committed"], applied(target)) == (index == 1, 1)
        assert record(target).identity.application_id == f"airflow:/once_mapped/merge/mapped/{index}"


@pytest.mark.slow
def test_spark_dies_after_the_first_commit_of_several_merges(airflow: Once) -> None:
    targets = [airflow.table(f"several{number}") for number in range(2)]
    airflow.order("several", "kill", "jvm after-commit")
    airflow.trigger("once_merges", "several", tables=[str(target) for target in targets])
    airflow.run_ended("once_merges", "several")
    assert airflow.task("once_merges", "several")["try_number"] == 2
    results = airflow.results("once_merges", "several")
    assert any(result["already_committed"] for result in results)
    assert [applied(target) for target in targets] == [1, 1]
    assert [result["version"] for result in results] == [1, 1]
    assert {event["extra"]["table"] for event in airflow.asset_events("once_merges")} == {
        each["table"] for each in results
    }

    airflow.clear("once_merges", "several", "merge")
    airflow.run_ended("once_merges", "several")
    assert [applied(target) for target in targets] == [2, 2]


@pytest.mark.slow
def test_backfill_twice(airflow: Once) -> None:
    table = airflow.table("backfill")
    run_id = "backfill__2026-01-02T00:00:00+00:00"
    for times in (1, 2):
        airflow.call(
            "/api/v2/backfills",
            {
                "dag_id": "once",
                "from_date": "2026-01-02T00:00:00Z",
                "to_date": "2026-01-02T00:00:00Z",
                "dag_run_conf": {"table": str(table)},
                "reprocess_behavior": "completed",
            },
        )
        airflow.wait(lambda: completed_backfills(airflow) == times)  # noqa: B023 - it ends within the round
        runs = airflow.call("/api/v2/dags/once/dagRuns?run_type=backfill")["dag_runs"]
        assert [(run["dag_run_id"], run["state"]) for run in runs] == [(run_id, "success")]
        assert applied(table) == times


def completed_backfills(airflow: Once) -> int:
    backfills = airflow.call("/api/v2/backfills?dag_id=once")["backfills"]
    return sum(backfill["completed_at"] is not None for backfill in backfills)


def test_secrets_are_nowhere(airflow: Once, tmp_path: Path) -> None:
    table, source = airflow.table("secret"), tmp_path / "source.csv"
    source.write_text("id,n\n1,1\n")
    watch = Watch(airflow.temporary)
    airflow.trigger("once_secret", "secret", table=str(table), source=str(source))
    airflow.run_ended("once_secret", "secret")
    watch.stop()
    assert (airflow.result("once_secret", "secret")["num_inserted_rows"], applied(table)) == (1, 1)
    # The secrets were really on their way: Spark's properties and the config, in a private folder.
    assert {name for name, _ in watch.with_canary} == {"spark.properties", "request.json"}
    assert {mode & 0o077 for _, mode in watch.with_canary} == {0}
    assert watch.folder_modes == {0o700}
    assert watch.command_lines > 100
    assert watch.with_canary_on_command_line == set()
    # XCom, rendered templates and all else that Airflow keeps; the tasks' logs and its own; the table and its log.
    assert with_canary(airflow) == []
