"""The session that the job starts, with the settings that spark-submit gave it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from airflow_delta_merge.runtime.jars import delta_jars

_SCRIPT = """
from airflow_delta_merge.job import session
print("partitions:", session.start_session().newSession().conf.get("spark.sql.shuffle.partitions"))
print("cores:", *map(session._local_cores, ["local", "local[4]", "local[3,2]", "local[*,2]"]))
"""


def test_a_local_master_has_as_many_shuffle_partitions_as_java_has_cores(tmp_path: Path) -> None:
    """Java respects a container's CPU quota; ``-XX:ActiveProcessorCount`` has the same effect without a container."""
    jars = os.pathsep.join(map(str, delta_jars()))
    submit = f"--master local[*] --driver-class-path {jars} --conf spark.ui.enabled=false pyspark-shell"
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:ActiveProcessorCount=5"
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": submit, "SPARK_SUBMIT_OPTS": options},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "partitions: 5\ncores: 1 4 3 5\n" in done.stdout, done.stderr
