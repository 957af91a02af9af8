"""DAGs that the tests run; what they merge comes with each run's conf."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, Asset, AssetWatcher, ObjectStoragePath, task

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
from airflow_delta_merge.triggers.delta_commit import DeltaCommitTrigger

FOLDER = Path(os.environ.get("DELTA_MERGE_TESTS", "/tmp"))
UPSERT = {"on": ["id"], "clauses": [when_matched_update_all(), when_not_matched_insert_all()]}
SPARK = {
    "conf": {
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
}


@task
def heard(triggering_asset_events: Mapping | None = None) -> list[dict]:
    """What the events say that made this DAG run; Airflow gives them by the alias, too."""
    by_asset = triggering_asset_events or {}
    return [event.extra for asset in by_asset if isinstance(asset, Asset) for event in by_asset[asset]]


@task
def note(inserted: int, touched: int, rendered: str, whole: dict) -> dict:
    """Give back what came in, so that a test sees it as this task saw it."""
    return {"inserted": inserted, "touched": touched, "rendered": rendered, "version": whole["version"]}


with DAG("merge_report_gate", schedule=None, start_date=datetime(2026, 1, 1)):
    merge = DeltaMergeOperator(
        task_id="merge", target="{{ dag_run.conf['target'] }}", source="{{ dag_run.conf['source'] }}", **UPSERT, **SPARK
    )
    report = note(
        inserted=merge.output["num_inserted_rows"],
        touched=merge.output["num_touched_files"],
        rendered="{{ ti.xcom_pull(task_ids='merge', key='num_inserted_rows') }}",
        whole=merge.output,
    )
    merge >> [
        DeltaMergeSensor(task_id="some_inserted", external_task_id="merge", at_least={"num_inserted_rows": 1}),
        DeltaMergeSensor(task_id="none_deleted", external_task_id="merge", at_most={"num_deleted_rows": 0}),
        DeltaMergeSensor(
            task_id="all_inserted",
            external_task_id="merge",
            condition=lambda result: result.num_affected_rows == result.num_inserted_rows,
        ),
        DeltaMergeSensor(task_id="many_inserted", external_task_id="merge", at_least={"num_inserted_rows": 1000}),
        DeltaMergeSensor(
            task_id="many_or_skip", external_task_id="merge", at_least={"num_inserted_rows": 1000}, soft_fail=True
        ),
    ]

with DAG("merge_expected", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        target="{{ dag_run.conf['target'] }}",
        source="SELECT id % 4 AS id, concat('secret ', id) AS name FROM range(5)",
        expect_source={"unique": ["{{ dag_run.conf['unique'] }}"], "columns": {"id": "bigint", "name": "string"}},
        retries=3,
        **UPSERT,
        **SPARK,
    )

with DAG("merge_mapped", schedule=None, start_date=datetime(2026, 1, 1)):

    @task
    def sources() -> list[str]:
        """What an upstream task produced: a query for each mapped merge."""
        return [
            "SELECT id, 'a' AS name FROM range(3)",
            "SELECT id, 'b' AS name FROM range(5)",
        ]

    mapped = DeltaMergeOperator.partial(
        task_id="merge", target="{{ dag_run.conf['targets'][ti.map_index] }}", **UPSERT, **SPARK
    ).expand(source=sources())
    mapped >> [
        DeltaMergeSensor(task_id="second", external_task_id="merge", map_index=1, at_least={"num_inserted_rows": 5}),
        DeltaMergeSensor(task_id="each", external_task_id="merge", at_least={"num_inserted_rows": 3}),
        DeltaMergeSensor(task_id="each_five", external_task_id="merge", at_least={"num_inserted_rows": 5}),
    ]

with DAG("merge_several", schedule=None, start_date=datetime(2026, 1, 1)):

    @task
    def merges() -> list[dict]:
        """What an upstream task found to be merged."""
        insert = {"on": ["id"], "clauses": [{"kind": "not_matched", "action": "insert_all"}]}
        source = {"path": ObjectStoragePath(f"file://{FOLDER}/several.csv"), "options": {"header": True}}
        return [
            {"target": str(FOLDER / "several_a"), "source": "SELECT id, 'a' AS name FROM range(3)", **insert},
            {"target": str(FOLDER / "several_b"), "source": source, **insert},
        ]

    several = DeltaMergeOperator(task_id="merge", merges=merges(), **SPARK)
    several >> [
        DeltaMergeSensor(task_id="each", external_task_id="merge", at_least={"num_inserted_rows": 3}),
        DeltaMergeSensor(task_id="each_four", external_task_id="merge", at_least={"num_inserted_rows": 4}),
    ]
    several >> note.override(task_id="noted").partial(inserted=0, touched=0, rendered="").expand(whole=several.output)

with DAG("merge_decorated", schedule=None, start_date=datetime(2026, 1, 1)):

    @task.delta_merge(target="{{ dag_run.conf['target'] }}", conn_id="own_type", **UPSERT)
    def numbers(count: int) -> str:
        """The source of each mapped merge."""
        return f"SELECT id, concat('row ', id) AS name FROM range({count})"

    numbers.expand(count=[3])

with DAG("gate_elsewhere", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeSensor(
        task_id="same_date",
        external_dag_id="merge_report_gate",
        external_task_id="merge",
        at_least={"num_inserted_rows": 1},
        timeout=5,
        poke_interval=1,
    )
    DeltaMergeSensor(
        task_id="by_function",
        external_dag_id="merge_report_gate",
        external_task_id="merge",
        execution_date_fn=lambda logical_date, dag_run: logical_date,
        timeout=5,
        poke_interval=1,
    )
    DeltaMergeSensor(
        task_id="no_such_run",
        external_dag_id="merge_report_gate",
        external_run_id="there is none",
        external_task_id="merge",
        timeout=2,
        poke_interval=1,
    )

with DAG("gate_lost", schedule=None, start_date=datetime(2026, 1, 1)):
    failing = DeltaMergeOperator(task_id="failing", target="{{ '' }}", source="SELECT 1 AS id", **UPSERT, retries=3)
    after_failing = DeltaMergeOperator(task_id="after_failing", target="t", source="s", **UPSERT)

    @task
    def skipped() -> None:
        raise AirflowSkipException("Nothing to merge today.")

    @task
    def no_merge() -> str:
        return "not a result"

    skipped(), no_merge()
    failing >> after_failing
    # No edge: each must find out by itself.
    waiting = {"poke_interval": 1, "timeout": 60, "mode": "reschedule"}
    for upstream in ("failing", "after_failing", "skipped", "no_merge", "missing"):
        DeltaMergeSensor(task_id=f"gate_{upstream}", external_task_id=upstream, **waiting)
    DeltaMergeSensor(task_id="soft_gate", external_task_id="failing", soft_fail=True, **waiting)

with DAG("merge_without_end", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        target="{{ dag_run.conf['target'] }}",
        # One task: a core is left for the other tests.
        source="SELECT id, 'x' AS name FROM range(0, 1000000000000, 1, 1) WHERE hash(id) = 1",
        execution_timeout=timedelta(seconds=15),
        name="without-end",
        **UPSERT,
        **SPARK,
    )

with DAG("scheduled_once", schedule="@once", start_date=datetime(2026, 1, 1)):
    scheduled = DeltaMergeOperator(
        task_id="merge",
        target=str(FOLDER / "scheduled"),
        source="SELECT id, 'x' AS name FROM range(7)",
        **UPSERT,
        **SPARK,
    )
    gate = DeltaMergeSensor(
        task_id="gate", external_task_id="merge", at_least={"num_inserted_rows": 7}, poke_interval=1, timeout=300
    )
    seen = note(
        inserted=scheduled.output["num_inserted_rows"],
        touched=scheduled.output["num_touched_files"],
        rendered="{{ ti.xcom_pull(task_ids='merge', key='num_inserted_rows') }}",
        whole=scheduled.output,
    )
    gate >> seen
    DeltaMergeSensor(  # without an edge from the merge
        task_id="merged",
        external_task_id="merge",
        path=str(FOLDER / "scheduled"),
        at_least={"num_inserted_rows": 7},
        deferrable=True,
        poke_interval=5,
        timeout=300,
    )

    # Nothing to commit there, so no consumer is triggered.
    (
        DeltaMergeOperator(
            task_id="merge_nothing",
            target=str(FOLDER / "unchanged"),
            source=str(FOLDER / "nothing"),
            deferrable=True,
            **UPSERT,
            **SPARK,
        )
        >> gate
    )

with DAG("on_merge", schedule=[delta_asset(str(FOLDER / "scheduled"))], start_date=datetime(2026, 1, 1)):
    heard()

with DAG("on_no_merge", schedule=[delta_asset(str(FOLDER / "unchanged"))], start_date=datetime(2026, 1, 1)):
    heard()

WATCHER = AssetWatcher(name="commits", trigger=DeltaCommitTrigger(path=str(FOLDER / "watched"), poke_interval=2))
with DAG(
    "on_commit", schedule=[delta_asset(str(FOLDER / "watched"), watchers=[WATCHER])], start_date=datetime(2026, 1, 1)
):
    heard()

with DAG("waits_for_a_table", schedule="@once", start_date=datetime(2026, 1, 1)):
    DeltaTableSensor(task_id="there", path=str(FOLDER / "later"), deferrable=True, poke_interval=5, timeout=7200)
