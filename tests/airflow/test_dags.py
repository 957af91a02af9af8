"""Small DAGs run by Airflow itself: XCom, sensors both ways, mapping, another DAG, upstreams that are lost."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from tests.airflow import tables
from tests.airflow.conftest import DAGS, HOME, SPARK

LOGICAL_DATE = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def dags() -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(DAGS, bundle_name="dags-folder")
    assert bag.import_errors == {}
    return bag.dags


class Run:
    """A DAG run that has ended: its state, its tasks' states and XComs."""

    def __init__(self, dag: Any, conf: dict[str, Any] | None = None, logical_date: datetime = LOGICAL_DATE) -> None:
        self.run = dag.test(logical_date=logical_date, run_conf=conf)

    @property
    def states(self) -> dict[str, str]:
        return {
            ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]": str(ti.state)
            for ti in self.run.get_task_instances()
        }

    def xcom(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            query = XComModel.get_many(
                run_id=self.run.run_id, dag_ids=self.run.dag_id, task_ids=task_id, key=key, map_indexes=map_index
            )
            row = session.scalars(query).first()
            return XComModel.deserialize_value(row)

    def xcom_keys(self, task_id: str) -> set[str]:
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            wanted = {"run_id": self.run.run_id, "dag_id": self.run.dag_id, "task_id": task_id}
            return {key for (key,) in session.query(XComModel.key).filter_by(**wanted)}


@pytest.fixture(scope="module")
def merged(dags: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run of the DAG with a merge, a report and gates; and the table it filled."""
    table = tables.create_table(tmp_path_factory.mktemp("tables") / "with space")
    source = "SELECT id, concat('row ', id) AS name FROM range(10)"
    return Run(dags["merge_report_gate"], {"target": str(table), "source": source}), table


def test_merge_commits_and_tells_by_xcom(merged: tuple[Run, Path]) -> None:
    run, table = merged
    assert run.states["merge"] == "success"
    result = run.xcom("merge")
    assert (result["num_inserted_rows"], result["num_affected_rows"], result["version"]) == (10, 10, 1)
    assert run.xcom("merge", "num_inserted_rows") == 10
    assert run.xcom("merge", "num_touched_files") == 0
    assert tables.versions(table) == [0, 1]
    assert tables.operations(table) == ["MERGE"]
    assert tables.count_rows(table) == 10


def test_xcom_has_the_result_and_its_counts_and_nothing_empty(merged: tuple[Run, Path]) -> None:
    """No link leads anywhere here, so none has a key."""
    assert merged[0].xcom_keys("merge") == {
        "return_value",
        "num_affected_rows",
        "num_updated_rows",
        "num_deleted_rows",
        "num_inserted_rows",
        "num_touched_files",
    }


def test_downstream_task_reads_each_number(merged: tuple[Run, Path]) -> None:
    run, _ = merged
    assert run.xcom("note") == {"inserted": 10, "touched": 0, "rendered": "10", "version": 1}


def test_gates_pass_fail_and_skip(merged: tuple[Run, Path]) -> None:
    states = merged[0].states
    assert {name: states[name] for name in ("some_inserted", "none_deleted", "all_inserted")} == {
        "some_inserted": "success",
        "none_deleted": "success",
        "all_inserted": "success",
    }
    assert states["many_inserted"] == "failed"
    assert states["many_or_skip"] == "skipped"
    assert merged[0].xcom("some_inserted")["num_inserted_rows"] == 10


def test_several_merges_in_one_task(dags: dict[str, Any]) -> None:
    first, second = (tables.create_table(HOME / name) for name in ("several_a", "several_b"))
    (HOME / "several.csv").write_text("id,name\n1,x\n2,y\n3,z\n")
    run = Run(dags["merge_several"])
    assert run.states == {
        "merges": "success",
        "merge": "success",
        "each": "success",
        "each_four": "failed",
        "noted[0]": "success",
        "noted[1]": "success",
    }
    results = run.xcom("merge")
    assert [each["location"] for each in results] == [f"file:{first}", f"file:{second}"]
    assert [each["num_inserted_rows"] for each in results] == [3, 3]
    assert run.xcom("noted", map_index=1)["version"] == 1
    assert (tables.operations(first), tables.operations(second)) == (["MERGE"], ["MERGE"])


def test_gate_in_another_dag(merged: tuple[Run, Path], dags: dict[str, Any]) -> None:
    run = Run(dags["gate_elsewhere"])
    assert run.states == {"same_date": "success", "by_function": "success", "no_such_run": "failed"}


def test_gate_in_another_dag_waits_for_its_own_date(merged: tuple[Run, Path], dags: dict[str, Any]) -> None:
    run = Run(dags["gate_elsewhere"], logical_date=LOGICAL_DATE + timedelta(days=1))
    assert set(run.states.values()) == {"failed"}  # by their timeouts: that run never came


def test_gates_give_up_on_a_merge_that_is_lost(dags: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    states = Run(dags["gate_lost"]).states
    assert states["failing"] == "failed", "no retry can mend an empty target"
    gates = {name: state for name, state in states.items() if name.startswith("gate_")}
    assert set(gates.values()) == {"failed"}
    assert states["soft_gate"] == "skipped"
    said = capfd.readouterr().out
    for task, state in {"failing": "failed", "after_failing": "upstream_failed", "skipped": "skipped"}.items():
        assert re.search(rf"The merge gate_lost.{task} \(run .*\) is {state}, so it has no result", said)
    assert re.search(r"gate_lost.no_merge \(run .*\) has succeeded, but its XCom is not a merge's result", said)
    assert "has no task 'missing'" in said
    assert "Sensor has timed out" not in said


@pytest.mark.slow
def test_two_source_rows_for_one_target_row(
    merged: tuple[Run, Path], dags: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    _, table = merged
    source = "SELECT 1 AS id, 'one' AS name UNION ALL SELECT 1 AS id, 'another' AS name"
    conf = {"target": str(table), "source": source}
    run = Run(dags["merge_report_gate"], conf, logical_date=LOGICAL_DATE + timedelta(days=30))
    assert set(run.states.values()) == {"failed", "upstream_failed"}
    assert "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE" in (said := capfd.readouterr().out)
    assert "Keep one source row per key" in said
    assert tables.versions(table) == [0, 1]


def test_a_source_that_is_not_as_expected_fails_without_retries_and_shows_its_keys(
    dags: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = tables.create_table(tmp_path / "table")
    run = Run(dags["merge_expected"], {"target": str(table), "unique": "id"})
    assert run.states == {"merge": "failed"}
    said = capfd.readouterr().out
    assert "2 rows share id with others, in 1 key, of 5 rows" in said
    assert '{"id": "0", "number of rows": "2"}' in said
    assert not re.search(r"secret \d", said)
    assert tables.versions(table) == [0]


def test_timeout_ends_spark(dags: dict[str, Any], tmp_path: Path) -> None:
    table = tables.create_table(tmp_path / "table")
    run = Run(dags["merge_without_end"], {"target": str(table)})
    assert run.states == {"merge": "failed"}
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if "without-end" in command]
    assert tables.versions(table) == [0]


@pytest.mark.slow
def test_mapped_merges(dags: dict[str, Any], tmp_path: Path) -> None:
    targets = [tables.create_table(tmp_path / name) for name in ("a", "b")]
    run = Run(dags["merge_mapped"], {"targets": [str(target) for target in targets]})
    assert run.states["merge[0]"] == run.states["merge[1]"] == "success"
    assert [tables.count_rows(target) for target in targets] == [3, 5]
    assert run.xcom("merge", "num_inserted_rows", map_index=1) == 5
    assert (run.states["second"], run.states["each"], run.states["each_five"]) == ("success", "success", "failed")


@pytest.mark.slow
def test_a_decorated_merge_by_a_connection_of_its_own_type(
    dags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    table = tables.create_table(tmp_path / "table")
    (tmp_path / "events").mkdir()
    conf = {
        "spark.ui.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.hadoop.fs.azure.account.key.store": "canary-of-the-connection",
    }
    extra = {
        "conf": SPARK | conf,
        "history_server_url": "http://history:18080",
        "commit_url": "https://catalog.example/{table}/{version}",
    }
    connection = {"conn_type": "delta_merge", "host": "local[1]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_OWN_TYPE", json.dumps(connection))
    run = Run(dags["merge_decorated"], {"target": str(table)})
    said = capfd.readouterr().out
    assert run.states == {"numbers[0]": "success"}, said
    assert (tables.count_rows(table), run.xcom("numbers", "num_inserted_rows", map_index=0)) == (3, 3)
    # The application reported itself, left its events where a history server finds them, and is what is linked to.
    (application,) = re.findall(r"Merge: Spark application (local-\d+), UI at http://\S+:\d+, event log on", said)
    assert [file.name for file in (tmp_path / "events").rglob(f"*{application}*")]
    link = run.xcom("numbers", "_link_SparkApplicationLink", map_index=0)
    assert link == f"http://history:18080/history/{application}"
    commit = run.xcom("numbers", "_link_CommitLink", map_index=0)
    assert commit == f"https://catalog.example/{quote(f'file:{table}', safe='')}/1"
    assert "canary" not in said
