"""Merges that count: applied twice, a row's ``n`` would show it. Tables come with each run's conf."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_delta_merge.config import when_matched_update, when_not_matched_insert_all
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor

SUBMIT = Path(__file__).resolve().parents[2] / "faults" / "seam" / "spark-submit"
COUNT = {
    "source": "SELECT id, 1L AS n FROM range(3)",
    "on": ["id"],
    "clauses": [when_matched_update(set={"n": "target.n + source.n"}), when_not_matched_insert_all()],
    "retries": 2,
    "retry_delay": timedelta(seconds=1),
    "spark_binary": str(SUBMIT),
    "conf": {
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.databricks.delta.snapshotPartitions": "1",
        # To compile classes for a few rows takes longer than to run without.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
}


@task
def other() -> None:
    """A task beside the merge, to be cleared."""


with DAG("once", schedule="@daily", start_date=datetime(2026, 1, 1), end_date=datetime(2026, 1, 3), catchup=False):
    other()
    DeltaMergeOperator(task_id="merge", target="{{ dag_run.conf['table'] }}", **COUNT)

with DAG("once_slow_retry", schedule=None, start_date=datetime(2026, 1, 1)):
    other()
    DeltaMergeOperator(
        task_id="merge", target="{{ dag_run.conf['table'] }}", **COUNT | {"retry_delay": timedelta(seconds=20)}
    )


@task
def tables(dag_run=None) -> list[str]:
    """Where the mapped merges go."""
    return dag_run.conf["tables"]


with DAG("once_mapped", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator.partial(task_id="merge", **COUNT).expand(target=tables())

# Two merges in one task, of one table each.
PARTS = ("source", "on", "clauses")
for name, deferrable in (("merges", False), ("deferrable_merges", True)):
    with DAG(f"once_{name}", schedule=None, start_date=datetime(2026, 1, 1)):
        DeltaMergeOperator(
            task_id="merge",
            deferrable=deferrable,
            merges=[
                {"target": f"{{{{ dag_run.conf['tables'][{number}] }}}}", **{part: COUNT[part] for part in PARTS}}
                for number in range(2)
            ],
            **{argument: value for argument, value in COUNT.items() if argument not in PARTS},
        )

with DAG("once_chaos", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(task_id="merge", target="{{ dag_run.conf['table'] }}", **COUNT | {"retries": 8})

# In a Spark that is kept. The seam is for a Spark of each merge's own.
WARM = {name: value for name, value in COUNT.items() if name != "spark_binary"} | {"keep_warm": 20, "retries": 8}
for name, deferrable in (("warm", False), ("warm_deferrable", True)):
    with DAG(f"once_{name}", schedule=None, start_date=datetime(2026, 1, 1)):
        DeltaMergeOperator.partial(task_id="merge", deferrable=deferrable, **WARM).expand(target=tables())

with DAG("once_secret", schedule=None, start_date=datetime(2026, 1, 1)):
    # Everything a secret may come by. The values stand in Variables and in the connection, never in this file.
    conf = {
        "spark.hadoop.fs.s3a.secret.key": "{{ var.value.canary_conf }}",
        "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net": "{{ var.value.canary_account }}",
    }
    source = {
        "path": "{{ dag_run.conf['source'] }}",
        "format": "csv",
        "options": {"header": True, "inferSchema": True, "password": "{{ var.value.canary_option }}"},
    }
    SECRET = COUNT | {
        "target": "{{ dag_run.conf['table'] }}",
        "conn_id": "canary_spark",
        "verbose": True,
        "source": source,
        "conf": COUNT["conf"] | conf,
    }
    DeltaMergeOperator(task_id="merge", **SECRET)

with DAG("once_deferrable_secret", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(task_id="merge", deferrable=True, **SECRET)

# The same task in a worker's slot and deferred, with all that can be linked to.
LINKED = COUNT | {"conn_id": "linked_spark", "target": "{{ dag_run.conf['table'] }}", "retries": 0}
for name, deferrable in (("blocking", False), ("deferrable", True)):
    with DAG(f"once_{name}", schedule=None, start_date=datetime(2026, 1, 1)):
        DeltaMergeOperator(task_id="merge", deferrable=deferrable, **LINKED)

    with DAG(f"once_{name}_source", schedule=None, start_date=datetime(2026, 1, 1)):
        DeltaMergeOperator(
            task_id="merge",
            deferrable=deferrable,
            **LINKED | {"source": "{{ dag_run.conf['source'] }}", "on_empty_source": "skip", "retries": 1},
        )

with DAG("once_deferrable_here", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(task_id="merge", deferrable=True, queue="here", **LINKED)

with DAG("once_deferrable_timeout", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(task_id="merge", deferrable=True, execution_timeout=timedelta(seconds=15), **LINKED)

with DAG("once_deferrable_function", schedule=None, start_date=datetime(2026, 1, 1)):

    @task.delta_merge(deferrable=True, **{name: value for name, value in LINKED.items() if name != "source"})
    def merge() -> str:
        """The source of the merge."""
        return COUNT["source"]

    merge()

with DAG("once_yarn", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaMergeOperator(
        task_id="merge",
        deferrable=True,
        target="{{ dag_run.conf['table'] }}",
        source="{{ dag_run.conf['source'] }}",
        on=COUNT["on"],
        clauses=COUNT["clauses"],
        conn_id="yarn_cluster",
        name="{{ run_id }}",
        conf={"spark.hadoop.fs.s3a.secret.key": "{{ var.value.canary_conf }}"},
    )

with DAG("once_s3_deferred", schedule=None, start_date=datetime(2026, 1, 1)):
    IN_S3 = "s3a://{{ dag_run.conf['bucket'] }}/orders"
    DeltaMergeOperator(
        task_id="merge",
        target=IN_S3,
        **COUNT | {"spark_binary": None, "verbose": True},
        create_table=True,
        deferrable=True,
    )
    # Begins when the merge does, so it waits in the triggerer.
    DeltaTableSensor(task_id="table", path=IN_S3, version=1, aws_conn_id="my_lake", poke_interval=2, deferrable=True)
