"""The one Spark session in which ours, the built-in MERGE and the floor run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.jars import delta_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
DRIVER_MEMORY = "4g"

#: What `DeltaMergeHook._properties` sets for a local master, and the two settings that every user of Delta has.
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(max(2, CORES)),
    "spark.databricks.delta.snapshotPartitions": "2",
}
#: These don't change how a merge runs, only what surrounds it.
SURROUNDINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True)
class Extras:
    """What a session has for contestants that take part only when asked for.

    :param jars: paths, besides Delta's.
    :param settings: besides :data:`SETTINGS`, or in their place.
    :param versions: of what these are, by name.
    """

    jars: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


NO_EXTRAS = Extras()


def start(
    scratch: Path,
    *,
    event_log: Path | None = None,
    driver_memory: str = DRIVER_MEMORY,
    java_options: str = "",
    extras: Extras = NO_EXTRAS,
) -> SparkSession:
    """Start Spark on this machine.

    :param scratch: a folder for Spark's warehouse and temporary files.
    :param event_log: an existing folder for Spark's event log, if one is wanted.
    :param driver_memory: of the one process that driver and executor are.
    :param java_options: further ones.
    :param extras: what it has besides.
    """
    from pyspark.sql import SparkSession

    # The Makefile's other targets trade Java's second compiler for a quick start; here real settings count.
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    os.environ["TZ"] = "UTC"
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("airflow_delta_merge bench")
    settings = {
        **SETTINGS,
        **SURROUNDINGS,
        **extras.settings,
        "spark.driver.memory": driver_memory,
        "spark.jars": ",".join([*delta_jars(), *extras.jars]),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "spark"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} {java_options}".strip(),
    }
    if event_log is not None:
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": event_log.absolute().as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def jvm(spark: SparkSession) -> Any:
    """The session's JVM, as Py4J shows it."""
    return spark._jvm
