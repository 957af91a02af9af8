"""A triggerer on another machine than the task's: it says so; and by the queues of triggerers each has its own.

The other machine is a process with a host name and a temporary folder of its own (Linux namespaces).
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests.airflow.once import Once, applied, running

pytestmark = pytest.mark.slow

ELSEWHERE = "elsewhere"
SETTINGS = {"triggerer": {"queues_enabled": True}}
#: Runs its arguments but the first, in whose place it has an empty folder.
ON_ANOTHER_MACHINE = f'hostname {ELSEWHERE} && mount -t tmpfs none "$0" && exec "$@"'


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """Tasks of the queue ``here`` have a triggerer on this machine, those of all others one elsewhere."""
    unshare = ["unshare", "--uts", "--mount", "sh", "-c", ON_ANOTHER_MACHINE]
    try:
        subprocess.run([*unshare, tmp_path_factory.mktemp("tried"), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"Namespaces of one's own take Linux and root: {error}")
    with running(tmp_path_factory.mktemp("two_machines"), SETTINGS) as airflow:
        airflow.start("triggerer --skip-serve-logs --queues here")
        airflow.start("triggerer --skip-serve-logs --queues default", before=[*unshare, str(airflow.temporary)])
        yield airflow


def test_each_machine_has_a_triggerer_for_its_tasks(airflow: Once) -> None:
    table = airflow.table("here")
    airflow.trigger("once_deferrable_here", "here", table=str(table))
    airflow.run_ended("once_deferrable_here", "here")
    assert (airflow.result("once_deferrable_here", "here")["version"], applied(table)) == (1, 1)


def test_a_triggerer_on_another_machine_fails_and_names_both_machines(airflow: Once) -> None:
    table = airflow.table("elsewhere")
    minutes = "SELECT 1L AS id, count(*) AS n FROM range(200000000000L)"  # a slow triggerer comes after a quick merge
    airflow.trigger("once_deferrable_source", "elsewhere", table=str(table), source=minutes)
    airflow.run_ended("once_deferrable_source", "elsewhere", "failed")
    assert airflow.task("once_deferrable_source", "elsewhere")["try_number"] == 1, "another try was made"
    said = airflow.logged("once_deferrable_source", "elsewhere")
    assert f"Spark was started on {socket.gethostname()}, but the triggerer runs on {ELSEWHERE}" in said
    assert "queues" in said
    # The task came back to the worker's machine, which ended its Spark.
    airflow.wait(lambda: not airflow.left())
    assert applied(table) == 0
