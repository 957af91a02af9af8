"""The job's Spark session."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.contract.outcome import JobError
from airflow_delta_merge.exceptions import MergeExecutionError
from airflow_delta_merge.job.python_path import prefer_installed_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def start_session() -> SparkSession:
    """Start a session as spark-submit configured it, adding Delta's extension and catalog if they are missing."""
    prefer_installed_pyspark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from airflow_delta_merge.engine.delta_jvm.versions import require_fitting_jars

    _tell_pyspark_there_is_no_numpy()
    # Without a running JVM, a SparkConf does not have spark-submit's properties.
    SparkContext._ensure_initialized()
    require_fitting_jars(SparkContext._jvm)
    conf = SparkConf()
    extensions = [name for name in (conf.get("spark.sql.extensions", "") or "").split(",") if name]
    if DELTA_EXTENSION not in extensions:
        conf.set("spark.sql.extensions", ",".join([*extensions, DELTA_EXTENSION]))
    conf.setIfMissing("spark.sql.catalog.spark_catalog", DELTA_CATALOG)
    master = conf.get("spark.master", "") or "no master"
    if master.startswith("local"):
        conf.setIfMissing("spark.sql.shuffle.partitions", str(max(2, _local_cores(master))))
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        reason = JobError.of(error)
        advice = (
            ""
            if master.startswith("local")
            else " Check the master in the Spark connection, that it is reachable from here, and that it runs the same "
            "version of Spark."
        )
        raise MergeExecutionError(
            f"Spark did not start on {master}: {reason.message}{advice}",
            condition=reason.condition,
            sql_state=reason.sql_state,
        ) from error
    return spark


def stop_session(spark: SparkSession) -> None:
    """Stop Spark at the end of this process.

    A server of PySpark for accumulators looks only every half second whether it should end, and ``stop()`` waits for
    it. Its thread ends with this process anyway; only a socket in a folder must be removed.
    """
    context: Any = spark.sparkContext
    server = getattr(context, "_accumulatorServer", None)
    if server is not None and isinstance(server.server_address, tuple):  # a port; otherwise a path
        context._accumulatorServer = None
    spark.stop()


def _local_cores(master: str) -> int:
    """Cores of a local master: one for ``local``, 4 for ``local[4]`` and ``local[4,2]``, all for ``local[*]``."""
    from pyspark import SparkContext

    if found := re.match(r"local\[(\d+)", master):
        return int(found[1])
    if master == "local":
        return 1
    # Unlike Python, Java respects a container's CPU quota.
    jvm: Any = SparkContext._jvm
    return int(jvm.java.lang.Runtime.getRuntime().availableProcessors())


def _tell_pyspark_there_is_no_numpy() -> None:
    """Spare the driver a search for numpy, as no merge has a value of it.

    With the first literal, and the first argument of a call of Java, pyspark 4 asks its own pyspark.testing.utils
    whether it is there. That imports unittest and, if they are installed, pandas and pyarrow: 0.4 s and 100 MB.
    """
    package, utils = (ModuleType(name) for name in ("pyspark.testing", "pyspark.testing.utils"))
    package.__dict__.update(__path__=[], utils=utils)
    utils.__dict__.update(have_numpy=False)
    if utils.__name__ not in sys.modules:
        sys.modules.update({module.__name__: module for module in (package, utils)})


def describe_application(spark: SparkSession) -> str:
    """The application's id and its UI's URL. Airflow's side parses this text for its links."""
    context = spark.sparkContext
    text = f"Spark application {context.applicationId}"
    if context.uiWebUrl:
        text += f", UI at {context.uiWebUrl}"
    if str(context.getConf().get("spark.eventLog.enabled", "false")).lower() == "true":
        text += ", event log on"
    return text
