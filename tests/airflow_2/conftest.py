"""An Airflow 2 of the tests' own, for ``make test-airflow-2``; with Airflow 3 nothing of this folder is collected."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

HOME = Path(tempfile.gettempdir(), f"airflow_2_delta_merge_tests_{uuid.uuid4().hex}")
SECRET = "s3cr3t of the tests"
SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "dags"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__CORE__EXECUTOR": "SequentialExecutor",
    "AIRFLOW__DELTA_MERGE__CLASS_ARCHIVE": "False",
    # Else each process that starts first makes one.
    "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(b"of-the-tests-only-32-bytes-long!").decode(),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    "AIRFLOW_CONN_LAKE": json.dumps(
        {
            "conn_type": "delta_merge",
            "host": "local[2]",
            "extra": {
                "commit_url": "https://catalog.example/{table}/{version}",
                "conf": {"spark.driver.memory": "700m", "spark.hadoop.fs.s3a.secret.key": SECRET},
            },
        }
    ),
    # What the DAGs read while they are parsed.
    "DELTA_MERGE_TESTS": str(HOME),
}
PROCESSES = ("scheduler", "triggerer")

if version("apache-airflow").startswith("2."):
    HOME.mkdir()
    os.environ.update(SETTINGS)
else:
    collect_ignore_glob = ["*"]


#: Those of :data:`PROCESSES` that were started.
running: list[subprocess.Popen[bytes]] = []


@pytest.fixture(scope="session")
def airflow_2() -> Iterator[None]:
    """An Airflow whose scheduler and triggerer run."""
    from airflow.models import DagBag
    from airflow.utils.db import initdb

    initdb()
    dags = DagBag()
    assert dags.import_errors == {}
    dags.sync_to_db()
    try:
        for name in PROCESSES:
            with (HOME / f"{name}.log").open("w") as log:
                command = [sys.executable, "-m", "airflow", name]
                running.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)
        for name in PROCESSES:
            print((HOME / f"{name}.log").read_text(errors="replace")[-2000:])
        shutil.rmtree(HOME, ignore_errors=True)
