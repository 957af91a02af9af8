"""The history of tables that were really merged: the numbers are the merges', and so is the advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.history.advice import advise
from airflow_delta_merge.history.table_history import HistoryPage, read_details, read_history
from tests.history import merged_tables
from tests.history.command import on_a_terminal, run
from tests.history.merged_tables import MergedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES: dict[str, Callable[[SparkSession, Path], MergedTable]] = {
    "accounts": merged_tables.accounts,
    "accounts_with_vectors": lambda spark, folder: merged_tables.accounts(spark, folder, enableDeletionVectors="true"),
    "events": merged_tables.events,
    "visits": merged_tables.visits,
    "stock": merged_tables.stock,
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, MergedTable]:
    folder = tmp_path_factory.mktemp("lake")
    return {name: make(spark, folder / name) for name, make in _TABLES.items()}


def history(table: MergedTable) -> HistoryPage:
    return read_history(str(table.path))


def names(page: HistoryPage) -> list[str]:
    return [each.name for each in advise(page.table, page.commits)]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("accounts", ["deletion-vectors"]),
        ("accounts_with_vectors", []),
        ("events", ["cluster-by-key", "compaction"]),
        ("visits", ["partition-in-on"]),
        ("stock", ["source-repeats", "update-only-changed"]),
    ],
)
def test_advice_is_what_the_merges_give_reason_to(tables: dict[str, MergedTable], name: str, advice: list[str]) -> None:
    assert names(history(tables[name])) == advice


def test_evidence_is_the_sum_of_what_the_merges_returned(tables: dict[str, MergedTable]) -> None:
    page = history(tables["accounts"])
    results = tables["accounts"].results
    (given,) = advise(page.table, page.commits)
    assert given.evidence["copied_rows"] == sum(each.metrics["numTargetRowsCopied"] for each in results)
    assert given.evidence["changed_rows"] == sum(each.num_updated_rows + each.num_deleted_rows for each in results)
    assert given.evidence["removed_bytes"] == sum(each.num_removed_bytes for each in results)


@pytest.mark.parametrize("name", _TABLES)
def test_the_history_has_each_result_as_it_was_returned(tables: dict[str, MergedTable], name: str) -> None:
    table = tables[name]
    commits = {commit.version: commit for commit in history(table).commits}
    for returned in table.results:
        assert returned.version is not None
        recorded = commits[returned.version].result
        assert recorded is not None
        # A commit can't know how long it takes itself.
        durations = {name: took for name, took in returned.durations_ms.items() if name not in ("commit", "total")}
        assert recorded.to_dict() == {**returned.to_dict(), "durations_ms": durations}
        task = commits[returned.version].task_instance
        assert task is not None
        assert (task.dag_id, task.run_id) == (name, f"scheduled__2026-01-{returned.version:02}")


def test_a_merge_of_one_day_is_shown_to_change_one_partition(tables: dict[str, MergedTable]) -> None:
    (change,) = read_details(str(tables["visits"].path), 1).partitions
    assert (change.partition, change.added, change.removed, change.marked) == ({"day": "2026-01-01"}, 1, 1, 0)


def test_files_that_get_a_deletion_vector_stay(tables: dict[str, MergedTable]) -> None:
    table = tables["accounts_with_vectors"]
    (change,) = read_details(str(table.path), 1).partitions
    assert (change.added, change.removed, change.marked) == (1, 0, table.results[0].num_deletion_vectors_added)


def test_other_writers_are_distinguished_and_change_the_advice(
    spark: SparkSession, tables: dict[str, MergedTable]
) -> None:
    events = tables["events"]
    target = f"delta.`{events.path}`"
    spark.sql(f"OPTIMIZE {target}")
    spark.sql(f"MERGE INTO {target} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    page = history(events)
    builtin, optimize, ours, *_ = page.commits
    assert [each.operation for each in (builtin, optimize, ours)] == ["MERGE", "OPTIMIZE", "MERGE"]
    assert builtin.writer == optimize.writer == read_history(str(events.path), limit=9).commits[-1].writer
    assert "Delta-Lake" in builtin.writer
    assert (builtin.rows.deleted, builtin.result) == (1, None)
    assert optimize.files.removed is not None
    assert optimize.files.removed > 100
    assert names(page) == ["cluster-by-key"]


def test_the_command_shows_the_same(tables: dict[str, MergedTable]) -> None:
    stock = tables["stock"]
    output = json.loads(run("history", stock.path).stdout)
    assert [commit["rows"]["updated"] for commit in output["commits"]] == [500, 500, 500, 400, None]
    assert [advice["versions"] for advice in output["advice"]] == [[4, 3, 2], [4, 3, 2]]
    shown = on_a_terminal("history", stock.path)
    assert "- Set update_only_changed=True. It would have avoided 3 rewrites of files." in shown
    assert "docs/how_to/advice.md#update-only-changed" in shown


def test_a_merge_by_a_config_file_is_planned_run_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))  # an Airflow without a database
    target, config = tmp_path / "names", tmp_path / "merge.yaml"
    config.write_text(
        f"target: {{path: {target}}}\n"
        "source: {query: \"SELECT id, 'x' AS name FROM range(5)\"}\n"
        "on: [id]\n"
        "clauses:\n  - {kind: matched, action: update_all}\n  - {kind: not_matched, action: insert_all}\n"
        'create_table: {columns: "id BIGINT, name STRING"}\n'
    )
    ran = run("run", config)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["num_inserted_rows"], result["version"]) == (5, 1)
    newest = read_history(str(target)).commits[0]
    assert newest.result is not None
    assert (newest.version, newest.result.num_inserted_rows) == (1, 5)
    assert newest.record is not None
    assert newest.record.identity.application_id.startswith("terminal:")

    planned = run("plan", config)
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert (plan["num_updated_rows"], plan["num_inserted_rows"]) == (5, 0)
    assert read_history(str(target)).table.version == 1

    text = config.read_text()
    config.write_text(text.replace("range(5)", "range(0)") + "guards: {on_empty_source: skip}\n")
    skipped = run("run", config)
    assert (skipped.returncode, skipped.stdout) == (0, "null\n"), skipped.stderr
    assert "Skipped: " in skipped.stderr.splitlines()[-1]

    # The hook's error, whether Spark has started or not.
    monkeypatch.setenv("AIRFLOW_CONN_NOWHERE", '{"conn_type": "spark", "host": "spark://127.0.0.1:1"}')
    failed = run("run", config, "--conn-id", "nowhere")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "No Spark master answers at spark://127.0.0.1:1" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
    assert not list((tmp_path / "airflow").glob("*.db"))
