"""Under Airflow 2.11: a merge is applied once for each execution, and reaches links, sensors and other DAGs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from airflow.api.common.trigger_dag import trigger_dag
from airflow.models import DagBag, DagModel
from airflow.models.dagrun import DagRun
from airflow.models.dataset import DatasetEvent
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import clear_task_instances
from airflow.models.xcom import XCom
from airflow.utils.session import create_session
from airflow.utils.timezone import datetime

from tests.airflow_2.conftest import HOME, SECRET, running

#: CI runs other tests beside these: a DAG that takes half a minute alone can take several times as long.
PATIENCE_SECONDS = 240


def wait_for(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := what()):
        assert all(process.poll() is None for process in running), "Airflow has ended"
        assert time.monotonic() < end, f"waited for {PATIENCE_SECONDS} s"
        time.sleep(0.5)
    return found


def run_of(dag_id: str, run_id: str | None = None) -> Any:
    return next(iter(DagRun.find(dag_id=dag_id, run_id=run_id)), None)


def task_of(dag_id: str, run_id: str, task_id: str) -> Any:
    run = run_of(dag_id, run_id)
    return run and run.get_task_instance(task_id)


def wait_for_task(dag_id: str, run_id: str, task_id: str) -> Any:
    """The task's instance, once it has ended and not for another try."""
    ti = wait_for(
        lambda: (ti := task_of(dag_id, run_id, task_id)) and ti.state in ("success", "failed", "upstream_failed") and ti
    )
    assert ti.state == "success", log_of(dag_id, run_id, task_id)
    return ti


def result_of(dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
    return XCom.get_one(key=key, dag_id=dag_id, run_id=run_id, task_id=task_id)


def clear(dag_id: str, run_id: str, task_id: str) -> None:
    dag = DagBag(read_dags_from_db=True).get_dag(dag_id)
    with create_session() as session:
        ti = run_of(dag_id, run_id).get_task_instance(task_id, session=session)
        clear_task_instances([ti], session, dag=dag)


def log_of(dag_id: str, run_id: str, task_id: str) -> str:
    folder = HOME / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.log*")))


def last_version(table: str) -> int:
    return max(int(path.stem) for path in (HOME / table / "_delta_log").glob("*.json"))


@pytest.fixture(scope="module")
def upserted(airflow_2: None) -> None:
    """A run whose merge lost its first result, and which goes on."""
    trigger_dag("upsert", "day")
    wait_for_task("upsert", "day", "gate")


def test_a_retry_finds_what_was_committed(upserted: None) -> None:
    ti, result = task_of("upsert", "day", "merge"), result_of("upsert", "day", "merge")
    assert (ti.try_number, result["already_committed"], result["num_inserted_rows"]) == (2, True, 2)
    assert (result["version"], last_version("people")) == (1, 1)
    assert result_of("upsert", "day", "merge", "num_inserted_rows") == 2


def test_no_secret_is_logged(upserted: None) -> None:
    log = log_of("upsert", "day", "merge")
    assert "Merging once as airflow:/upsert/merge/day/-1" in log
    assert SECRET not in log


def test_links_and_rendered_statement(upserted: None) -> None:
    ti = task_of("upsert", "day", "merge")
    task = SerializedDagModel.get("upsert").dag.get_task("merge")
    assert task.get_extra_links(ti, "Commit").startswith("https://catalog.example/")
    assert task.get_extra_links(ti, "Commit").endswith("%2Fpeople/1")
    assert not task.get_extra_links(ti, "Spark application")  # there is no history server
    assert RenderedTaskInstanceFields.get_templated_fields(ti)["statement"].startswith("MERGE INTO")


def test_a_cleared_task_merges_again_even_in_a_running_dag_run(upserted: None) -> None:
    clear("upsert", "day", "merge")
    wait_for(lambda: task_of("upsert", "day", "merge").state != "success")
    wait_for_task("upsert", "day", "merge")
    result = result_of("upsert", "day", "merge")
    assert (result["already_committed"], result["num_updated_rows"], last_version("people")) == (False, 2, 2)

    (HOME / "day.go").touch()
    wait_for(lambda: run_of("upsert", "day").state == "success")
    clear("upsert", "day", "merge")
    wait_for(lambda: run_of("upsert", "day").state == "success" and last_version("people") == 3)
    assert result_of("upsert", "day", "merge")["already_committed"] is False


def test_dags_hear_of_the_table(upserted: None) -> None:
    wait_for(lambda: (run := run_of("hears_of_people")) and run.state == "success")
    with create_session() as session:
        extra = session.query(DatasetEvent).order_by(DatasetEvent.id).first().extra
    assert (extra["version"], extra["num_inserted_rows"]) == (1, 2)


def test_mapped(airflow_2: None) -> None:
    trigger_dag("mapped", "day")
    wait_for_task("mapped", "day", "gate")
    assert [each["num_inserted_rows"] for each in result_of("mapped", "day", "gate")] == [1, 1]
    assert last_version("mapped") == 2


def test_deferred(airflow_2: None) -> None:
    trigger_dag("deferred", "day")
    wait_for_task("deferred", "day", "merge")
    result = result_of("deferred", "day", "merge")
    assert (result["num_inserted_rows"], last_version("deferred")) == (2, 1)
    assert "a triggerer there follows it" in log_of("deferred", "day", "merge")


def test_the_decorator_and_sensors_of_another_dag(airflow_2: None) -> None:
    trigger_dag("waits_for_another", "day")
    trigger_dag("decorated", "day")
    wait_for(lambda: run_of("waits_for_another", "day").state in ("success", "failed"))
    for sensor in ("by_task", "by_log"):
        wait_for_task("waits_for_another", "day", sensor)
        assert result_of("waits_for_another", "day", sensor)["num_inserted_rows"] == 2
    assert result_of("waits_for_another", "day", "by_version") == 1


def test_a_run_by_hand_merges_each_time(airflow_2: None) -> None:
    DagModel.get_dagmodel("decorated").set_is_paused(True)  # or the scheduler would run these runs, too
    dag, versions = DagBag().get_dag("decorated"), []
    for _ in range(2):  # of one logical date, hence one run id and one start
        run = dag.test(execution_date=datetime(2026, 2, 1))
        result = result_of("decorated", run.run_id, "people")
        assert result["already_committed"] is False
        versions.append(result["version"])
    assert versions[1] == versions[0] + 1


def test_what_airflow_2_lacks_is_said() -> None:
    with pytest.raises(ImportError, match="Watching assets needs Airflow 3"):
        import airflow_delta_merge.triggers.delta_commit  # noqa: F401
