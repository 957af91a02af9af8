"""The gateway to a real JVM: its answers come promptly, however long they are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.engine import merge_sql

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_long_answers_arrive_at_once_in_each_merging_thread(spark: SparkSession, tmp_path: Path) -> None:
    """TCP must not hold back the end of an answer until its beginning is acknowledged, 40 ms later."""
    path = tmp_path / "target"
    spark.range(3).write.format("delta").save(str(path))
    delays: list[bool] = []

    def run() -> None:
        source = "(SELECT 7 AS id) s"
        merge_sql(spark, f"MERGE INTO delta.`{path}` t USING {source} ON t.id = s.id WHEN MATCHED THEN DELETE")
        delays.append(_holds_back(spark))

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert delays == [False, False]


def _holds_back(spark: SparkSession) -> bool:
    """Whether the JVM's end of this thread's connection waits for acknowledgements."""
    gateway: Any = spark.sparkContext._gateway
    port = gateway._gateway_client.get_thread_connection().socket.getsockname()[1]
    server = gateway.java_gateway_server
    field = server.getClass().getSuperclass().getDeclaredField("connections")
    field.setAccessible(True)
    connections = field.get(server)
    sockets = [connections.get(position).getSocket() for position in range(connections.size())]
    (mine,) = (socket for socket in sockets if socket.getPort() == port)
    return not mine.getTcpNoDelay()
