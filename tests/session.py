"""The session in which both engines run."""

from __future__ import annotations

SESSION_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Tables here have a handful of rows: the defaults (200, 50, 32) would only start empty tasks.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    # For an hour Delta keeps the snapshot of every table it met, each with some 1,300 plan nodes of its encoders and
    # queries, and Spark the plans of the last 1,000 executions as texts. A table here is met by one case only.
    "spark.databricks.delta.delta.log.cacheSize": "20",
    "spark.sql.ui.retainedExecutions": "50",
    # Each statement here is new to Spark and has few rows: to compile classes for it takes longer than to run it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

#: Settings by which touched files are copied natively, however small they are.
COPIED_WHATEVER_THE_SIZE = {
    "spark.deltaMerge.copyFilesFromBytes": "0",
    "spark.deltaMerge.smallMergeBytes": "0",
    "spark.deltaMerge.shortcuts.enabled": "false",
}
