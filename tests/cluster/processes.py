"""What a cluster of this machine's own is made of, whichever it is: processes, and what is merged there."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all

#: A source whose merge never ends by itself.
ENDLESS = "SELECT id, 'x' AS name FROM range(1000000000000) WHERE hash(id) = 1"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Spark properties for small merges on a small machine.
SMALL = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "600m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": 4,
    "spark.databricks.delta.snapshotPartitions": 2,
}


def stop(servers: list[subprocess.Popen[bytes]]) -> None:
    """End a cluster's servers, those that were started last first."""
    for process in reversed(servers):
        process.terminate()
    for process in servers:
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


def config(table: Path, source: str) -> MergeConfig:
    return MergeConfig(
        target=str(table),
        source=source,
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
    )


def rows(first: int, last: int, name: str) -> str:
    return f"SELECT id, '{name}' AS name FROM range({first}, {last})"
