"""One real Airflow for all modules of this folder: API server, DAG processor, scheduler, triggerer.

To start it takes some 20 s of processor time. It ends with the folder's last test, since it costs time while it idles.
The modules share its tables, runs and staging folders, so each names its own differently.
"""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow import tables
from tests.airflow.conftest import DAGS
from tests.airflow.once import DAGS as ONCE_DAGS
from tests.airflow.once import ENDED, Once, running

TRIGGERER = "triggerer --skip-serve-logs"
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
BUNDLES = [
    {"name": name, "classpath": LOCAL_BUNDLE, "kwargs": {"path": str(path), "refresh_interval": 300}}
    for name, path in (("merges", DAGS), ("once", ONCE_DAGS))
]


def wait_for_scheduled(airflow: Once) -> None:
    """Wait for the DAG that merges as soon as there is a scheduler, whatever tests run."""

    def has_ended() -> bool:
        try:
            runs = airflow.call("/api/v2/dags/scheduled_once/dagRuns")["dag_runs"]
        except urllib.error.HTTPError:  # not parsed yet
            return False
        return any(run["state"] in ENDED for run in runs)

    airflow.wait(has_ended)


@pytest.fixture(scope="package")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """An Airflow that runs the DAGs of both folders; those of ``dags`` find their tables in its folder."""
    folder = tmp_path_factory.mktemp("scheduled")
    # Their DAG runs as soon as there is a scheduler.
    for name in ("scheduled", "unchanged", "nothing"):
        tables.create_table(folder / name)
    # Each event of OpenLineage is a line of the file.
    transport = {"type": "file", "log_file_path": str(folder / "lineage"), "append": True}
    settings = {
        "dag_processor": {"dag_bundle_config_list": json.dumps(BUNDLES)},
        "openlineage": {"transport": json.dumps(transport)},
        # How soon another triggerer takes over what a dead one has left; half a minute if nothing is said.
        "triggerer": {"job_heartbeat_sec": 2, "triggerer_health_check_threshold": 6},
    }
    with running(folder, settings, {"DELTA_MERGE_TESTS": str(folder)}) as airflow:
        airflow.start(TRIGGERER)
        yield airflow
        wait_for_scheduled(airflow)
        print((folder / "log").read_text(errors="replace")[-3000:])
    assert list(airflow.temporary.glob("airflow_delta_merge_*")) == [], "staging folders were left behind"


@pytest.fixture(scope="package")
def folder(airflow: Once) -> Path:
    """Where its DAGs find their tables."""
    return airflow.folder
