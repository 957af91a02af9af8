"""The session that the job starts, with the settings that spark-submit gave it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from airflow_delta_merge.runtime.jars import delta_jars

_SCRIPT = """
from airflow_delta_merge.job import session
print("partitions:", session.start_session().newSession().conf.get("spark.sql.shuffle.partitions"))
print("cores:", *map(session._local_cores, ["local", "local[4]", "local[3,2]", "local[*,2]"]))
"""


_STOP = """
import sys
from pathlib import Path
from airflow_delta_merge.job import session
spark = session.start_session()
sockets = [*Path(sys.argv[1]).glob(".*.sock")]
session.stop_session(spark)
print("sockets:", len(sockets), "left:", sum(socket.exists() for socket in sockets))
print("stopped:", spark.sparkContext._jsc is None)
"""


def test_a_local_master_has_as_many_shuffle_partitions_as_java_has_cores(tmp_path: Path) -> None:
    """Java respects a container's CPU quota; ``-XX:ActiveProcessorCount`` has the same effect without a container."""
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:ActiveProcessorCount=5"
    done = _run(_SCRIPT, cwd=tmp_path, environment={"SPARK_SUBMIT_OPTS": options})
    assert "partitions: 5\ncores: 1 4 3 5\n" in done.stdout, done.stderr


@pytest.mark.parametrize("sockets", [0, 1], ids=["by port", "by socket"])
def test_a_session_stops_without_leaving_a_socket(sockets: int, tmp_path: Path) -> None:
    # A socket's path may have 107 characters.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        conf = {
            "spark.python.unix.domain.socket.enabled": str(bool(sockets)).lower(),
            "spark.python.unix.domain.socket.dir": folder,
        }
        done = _run(_STOP, folder, cwd=tmp_path, conf=conf)
    assert f"sockets: {sockets} left: 0\nstopped: True\n" in done.stdout, done.stderr


def _run(
    script: str,
    *arguments: str,
    cwd: Path,
    conf: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python that may start Spark with a local master."""
    properties = {"spark.ui.enabled": "false", "spark.driver.extraClassPath": os.pathsep.join(delta_jars()), **conf}
    submit = " ".join(f"--conf {name}={value}" for name, value in properties.items())
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": f"--master local[*] {submit} pyspark-shell", **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
