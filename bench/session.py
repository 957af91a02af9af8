"""The one Spark session in which ours, the built-in MERGE and the floor run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.runtime.jars import delta_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
DRIVER_MEMORY = "4g"

#: What `Preparation._properties` of the launch package sets for a local master, and the two settings that every user of
#: Delta has.
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
#: Room for what all contestants' plans are compiled to: in Spark's 100 each round of one drives out the others', so
#: that all merges, ours and the built-in ones, are compiled anew each time. The hook makes room for 1,000.
WARM_SETTINGS = {"spark.sql.codegen.cache.maxEntries": "2000"}
#: All of the heap from the start. The collection before each run gives back what is free, and while the heap then
#: grows again during the merge, G1 marks it beside the tasks.
WARM_JAVA_OPTIONS = f"-Xms{DRIVER_MEMORY}"


@dataclass(frozen=True)
class Extras:
    """What a session has besides, be it for contestants that take part only when asked for.

    :param jars: paths, besides Delta's.
    :param settings: besides :data:`SETTINGS`, or in their place.
    :param versions: of what these are, by name.
    :param java_options: further ones.
    """

    jars: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""


NO_EXTRAS = Extras()


def warm(extras: Extras) -> Extras:
    """The same for a session in which contestants don't take from each other what one alone would have at hand."""
    options = f"{WARM_JAVA_OPTIONS} {extras.java_options}".strip()
    return replace(extras, settings={**WARM_SETTINGS, **extras.settings}, java_options=options)


def start(
    scratch: Path,
    *,
    event_log: Path | None = None,
    driver_memory: str = DRIVER_MEMORY,
    extras: Extras = NO_EXTRAS,
) -> SparkSession:
    """Start Spark on this machine.

    :param scratch: a folder for Spark's warehouse and temporary files.
    :param event_log: an existing folder for Spark's event log, if one is wanted.
    :param driver_memory: of the one process that driver and executor are.
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
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} {extras.java_options}".strip(),
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
