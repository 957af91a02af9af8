"""Cold: a whole task, from the operator's `execute` to what it returns, against what people would write instead.

These are SparkSubmitOperator with MERGE INTO, and PythonOperator with delta-rs, which starts nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.runtime.jars import DELTA_VERSION, delta_jars
from bench import session
from bench.case import Case
from bench.contestants import merge_by_delta_rs
from bench.data import Templates, copy_table
from bench.parts_of_task import PartsOfTask
from bench.runner import hash_of_rows

if TYPE_CHECKING:
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

_CONNECTION = f'{{"conn_type": "spark", "host": "local[{session.CORES}]"}}'
#: What somebody writes who has no engine: session, statement, end.
_SCRIPT = """import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
with open(sys.argv[1], encoding="utf-8") as statement:
    spark.sql(statement.read()).show()
spark.stop()
"""

#: A task, or several: called with copies of the table, each to be merged into, and the source.
Task = Callable[[Sequence[Path], Path], None]


@dataclass
class ColdResult:
    """Seconds of each round by contestant, and who left other rows.

    :ivar parts: where the time of ours went, if that was asked.
    """

    case: Case
    parts: PartsOfTask | None = None
    seconds: dict[str, list[float]] = field(default_factory=dict)
    other_rows: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The result for people."""
        ours = statistics.median(self.seconds["DeltaMergeOperator"])
        seconds = [
            f"{name:44} {statistics.median(seconds):7.2f} s   {statistics.median(seconds) / ours:5.2f} × ours   "
            f"rounds: {', '.join(f'{each:.2f}' for each in seconds)}{'   OTHER ROWS' * (name in self.other_rows)}"
            for name, seconds in self.seconds.items()
        ]
        return seconds if self.parts is None else [*seconds, "DeltaMergeOperator's parts:", *self.parts.lines()]


def run_cold(
    case: Case,
    *,
    home: Path,
    work: Path,
    scale: float,
    rounds: int,
    num_merges: int = 1,
    parts: PartsOfTask | None = None,
) -> ColdResult:
    """Run a case as tasks, each in a Spark of its own, in turn; the rows are compared at the end.

    With several merges ours does them in one task and one Spark, each of the others in as many tasks. Imports don't
    count, as all run in this process.

    Airflow gets a home of its own and no database: `execute` needs none.

    :param home: the benchmark's folder, with the templates.
    :param work: a folder for this run.
    :param rounds: rounds that count, after one to warm up the machine's file cache.
    :param num_merges: how many tables a round merges into, copies of one.
    :param parts: gets the parts of each of ours, with a single merge.
    """
    template, source = template_and_source(case, home=home, work=work, scale=scale)
    result = ColdResult(case, parts)
    targets: dict[str, list[Path]] = {}
    tasks = _tasks(case, work, parts)
    if num_merges > 1:
        del tasks[_WITH_PACKAGES]
    for number in range(rounds + 1):
        for name, task in reversed(tasks.items()) if number % 2 else tasks.items():
            copies = [work / uuid.uuid4().hex / "target" for _ in range(num_merges)]
            for target in copies:
                copy_table(template, target)
            start = time.perf_counter()
            task(copies, source)
            if number:
                result.seconds.setdefault(name, []).append(time.perf_counter() - start)
            for target in targets.get(name, ()):
                shutil.rmtree(target.parent)
            targets[name] = copies
    spark = session.start(work)
    merged = spark.read.format("delta")
    hashes = {name: {hash_of_rows(merged.load(str(path))) for path in copies} for name, copies in targets.items()}
    spark.stop()
    result.other_rows = [name for name in hashes if len(hashes[name]) > 1 or hashes[name] != hashes[_WITH_JARS]]
    return result


def template_and_source(case: Case, *, home: Path, work: Path, scale: float) -> tuple[Path, Path]:
    """A case's table and source. The JVM that makes them stays, idle, for the next session of this process."""
    spark = session.start(work)
    templates = Templates(spark, home / "tables", scale)
    found = templates.target(case.table), templates.source(case.table, case.source)
    spark.stop()
    return found


_WITH_JARS = "SparkSubmitOperator + MERGE, jars placed"
_WITH_PACKAGES = "SparkSubmitOperator + MERGE, packages="
_WITH_DELTA_RS = "PythonOperator + delta-rs"


def set_up_airflow(work: Path) -> None:
    """Give Airflow, which nothing may have imported yet, a home and a connection.

    :param work: the folder of this run.
    """
    os.environ |= {
        "AIRFLOW_HOME": str(work / "airflow"),
        "AIRFLOW_CONN_SPARK_DEFAULT": _CONNECTION,
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__DELTA_MERGE__CLASS_ARCHIVE": "False",  # it would take its processors
        # Where this Python's spark-submit is; ours looks there by itself.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    logging.getLogger("airflow").setLevel(logging.WARNING)


def _tasks(case: Case, work: Path, parts: PartsOfTask | None) -> dict[str, Task]:
    set_up_airflow(work)
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.providers.standard.operators.python import PythonOperator

    script = work / "merge.py"
    script.write_text(_SCRIPT, encoding="utf-8")

    last: list[Any] = []

    def ours(targets: Sequence[Path], source: Path) -> None:
        operator = operator_for(case, targets, source)
        with nullcontext() if parts is None else parts.measured():
            merged = operator.execute(context_of_task(last))
        if parts is not None:
            parts.add_result(merged)
        last[:] = [merged]

    def submitting(**arguments: Any) -> Task:
        def task(targets: Sequence[Path], source: Path) -> None:
            for target in targets:
                submit(target, source)

        def submit(target: Path, source: Path) -> None:
            statement = target.parent / "statement.sql"
            statement.write_text(case.statement(target, source), encoding="utf-8")
            SparkSubmitOperator(
                task_id="merge",
                application=str(script),
                application_args=[str(statement)],
                driver_memory=session.DRIVER_MEMORY,
                conf=_conf(target.parent),
                **arguments,
            ).execute({})

        return task

    def by_delta_rs(targets: Sequence[Path], source: Path) -> None:
        for target in targets:
            merge = partial(merge_by_delta_rs, case, target, source)
            PythonOperator(task_id="merge", python_callable=merge).execute({})

    others = {} if case.not_in_delta_rs else {_WITH_DELTA_RS: by_delta_rs}
    return {
        "DeltaMergeOperator": ours,
        _WITH_JARS: submitting(jars=",".join(delta_jars())),
        _WITH_PACKAGES: submitting(packages=f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"),
        **others,
    }


def operator_for(case: Case, targets: Sequence[Path], source: Path, **arguments: Any) -> DeltaMergeOperator:
    """Our task for a case.

    :param targets: copies of its table; several are merged into by one task.
    :param arguments: more of the operator's arguments.
    """
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

    configs = [case.config(target, source) for target in targets]
    merge = {name: getattr(configs[0], name) for name in ("target", "source", "on", "clauses")}
    arguments |= {"merges": configs} if len(configs) > 1 else merge
    return DeltaMergeOperator(
        task_id="merge", driver_memory=session.DRIVER_MEMORY, name="merge", asset_events="never", **arguments
    )


def context_of_task(last: Sequence[Any]) -> Any:
    """What ours asks a task's context for: who merges, so that the table holds each merge once, and the last result.

    :param last: what the task returned in the run before, if there was one.
    """
    ti = SimpleNamespace(dag_id="bench", task_id="merge", run_id=uuid.uuid4().hex, map_index=-1, max_tries=0)
    ti.try_number = 1
    ti.xcom_pull = lambda **_: last[0] if last else None
    dag_run = SimpleNamespace(start_date=datetime.now(UTC), logical_date=None, run_after=None, clear_number=0)
    return {"ti": ti, "dag_run": dag_run}


def _conf(scratch: Path) -> dict[str, str]:
    """The same settings for small data that ours takes by itself: the difference shall not be a setting."""
    return {**session.SETTINGS, "spark.sql.warehouse.dir": str(scratch / "warehouse")}
