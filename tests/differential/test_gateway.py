"""The gateway to a real JVM: its answers come promptly, however long they are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.engine.delta_jvm import calls

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


def test_threads_that_come_and_go_fail_no_merge(spark: SparkSession) -> None:
    """Each thread has its own connection, which another one may see while it closes."""
    ends = threading.Event()

    def come_and_go() -> None:
        while not ends.is_set():
            thread = InheritableThread(target=spark._jvm.java.lang.System.nanoTime)
            thread.start()
            thread.join()

    others = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in others:
        thread.start()
    try:
        for _ in range(100):
            calls._prompt.gateways.clear()
            calls.answer_promptly(spark)
    finally:
        ends.set()
        for thread in others:
            thread.join()
    assert not _holds_back(spark)


def _holds_back(spark: SparkSession) -> bool:
    """Whether the JVM's end of this thread's connection waits for acknowledgements."""
    jvm: Any = spark.sparkContext._gateway
    port = jvm._gateway_client.get_thread_connection().socket.getsockname()[1]
    server = jvm.java_gateway_server
    field = server.getClass().getSuperclass().getDeclaredField("connections")
    field.setAccessible(True)
    connections = field.get(server)
    sockets = [connections.get(position).getSocket() for position in range(connections.size())]
    (mine,) = (socket for socket in sockets if socket.getPort() == port)
    return not mine.getTcpNoDelay()
