"""Iceberg's MERGE, copy-on-write and merge-on-read, on the very data files of the Delta table.

Iceberg has no runtime for this package's own version of Spark, so with ``--iceberg`` all contestants run on the newest
one for which there is one. Its tables are made of the template's Parquet files (`add_files`), so that neither has other
bytes or another layout. After each merge a table is set back to these files.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.identifiers import quote_identifier
from airflow_delta_merge.runtime.jars import FOLDER_VARIABLE, Jar, fetched
from bench.case import Case
from bench.contestants import Contestant, Facts, Run
from bench.data import digest
from bench.session import Extras, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The PySpark that Iceberg's newest runtime is for.
SPARK_VERSION = "4.1.4"
ICEBERG_VERSION = "1.12.0"
_RUNTIME = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    ICEBERG_VERSION,
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
_PACKAGES = ("deltalake", "pyarrow", "tpchgen-cli", "matplotlib")
_CATALOG = "iceberg"
_TEMPLATE = "template"
#: By the way of merging: what a table is made with. Deletion vectors are of Iceberg's third format.
_PROPERTIES = {
    "copy-on-write": {"format-version": "2"},
    "merge-on-read": {"format-version": "3"},
}
MODES = tuple(_PROPERTIES)
#: The runs' own cases: one or two of each regime, since six contestants take their time.
DEFAULT_CASES = (
    *("one_day_of_a_year", "insert_only_few_matches", "condition_almost_never_true_with_insert", "sliding_window_sync"),
    *("delete_by_key", "late_data_over_all_files", "uuid_keys", "all_rows_updated", "small_table"),
    *("late_data_over_all_files_dv", "delete_spread_thin_dv"),
    *("large_one_day_of_a_year", "large_delete_by_key", "large_late_data_over_all_files_dv"),
)


def on_its_spark(home: Path, arguments: Sequence[str]) -> None:
    """Go on with the same command in an environment that has Iceberg's version of Spark, unless this is one.

    :param home: the benchmark's folder, for jars that aren't for the user's own.
    """
    os.environ[FOLDER_VARIABLE] = str(home / "jars")
    if importlib.metadata.version("pyspark") == SPARK_VERSION:
        return
    pins = [f"pyspark=={SPARK_VERSION}", *(f"{name}=={importlib.metadata.version(name)}" for name in _PACKAGES)]
    uv = str(Path(__file__).parent.parent / "scripts" / "uv.sh")
    requirements = (part for pin in pins for part in ("--with", pin))
    # It takes half a minute the first time, and uv keeps it.
    environment = ["--no-project", "--python", sys.executable, *requirements]
    os.execv(uv, [uv, "run", "--quiet", *environment, "python", "-m", "bench", *arguments])  # noqa: S606 (as meant)


def extras(home: Path) -> Extras:
    """What a session has with Iceberg beside Delta; its jar is fetched if need be.

    :param home: where its tables' metadata are kept, for the next run as well.
    """
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{_CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{_CATALOG}.warehouse": str(home / "iceberg"),
    }
    return Extras(tuple(fetched([_RUNTIME])), settings, {"iceberg": ICEBERG_VERSION})


class Iceberg(Contestant):
    """Iceberg's MERGE with its own defaults, but for the mode and for Parquet's codec, which is Delta's.

    :param mode: ``copy-on-write`` or ``merge-on-read``.
    """

    def __init__(self, mode: str) -> None:
        self.name = f"iceberg {mode}"
        self._mode = mode

    def refuses(self, case: Case) -> str:
        if case.table.layout.startswith("CLUSTER"):
            return "it has no CLUSTER BY"
        # Its rows are those of the data files, without Delta's deletion vectors.
        return "its table is made of the Delta table's files as they are" if case.table.then else ""

    def prepare(self, run: Run) -> None:
        """Set the table back to the template's files, or make it of them; nothing that merges left stays."""
        identifier = self._identifier(run)
        table = self._table(run.spark, identifier) if run.spark.catalog.tableExists(identifier) else None
        if table is None or _TEMPLATE not in table.refs():  # without, its making was interrupted
            run.spark.sql(f"DROP TABLE IF EXISTS {identifier}")
            self._make(run, identifier)
            table = self._table(run.spark, identifier)
        table.refresh()
        files = table.refs()[_TEMPLATE].snapshotId()
        if table.currentSnapshot().snapshotId() != files:
            table.manageSnapshots().rollbackTo(files).commit()
            now = jvm(run.spark).System.currentTimeMillis()
            table.expireSnapshots().expireOlderThan(now + 1).retainLast(1).commit()

    def merge(self, run: Run) -> Facts:
        statement = run.case.statement(self._identifier(run), run.source)
        run.spark.sql(statement).collect()
        return Facts()

    def rows(self, run: Run) -> DataFrame:
        return run.spark.table(self._identifier(run))

    def _make(self, run: Run, identifier: str) -> None:
        template = run.spark.read.format("delta").load(str(run.template))
        columns = ", ".join(
            f"{quote_identifier(field.name)} {field.dataType.simpleString()}" for field in template.schema
        )
        commands = ("merge", "update", "delete")
        properties = {
            **_PROPERTIES[self._mode],
            **{f"write.{command}.mode": self._mode for command in commands},
            "write.parquet.compression-codec": "snappy",
        }
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        run.spark.sql(
            f"CREATE TABLE {identifier} ({columns}) USING iceberg {run.case.table.layout} TBLPROPERTIES ({listed})"
        )
        name = identifier.removeprefix(f"{_CATALOG}.")
        run.spark.sql(
            f"CALL {_CATALOG}.system.add_files(table => '{name}', source_table => '`parquet`.`{run.template}`')"
        )
        run.spark.sql(f"ALTER TABLE {identifier} CREATE TAG {_TEMPLATE}")

    def _identifier(self, run: Run) -> str:
        return f"{_CATALOG}.bench.{run.case.table.name}_{digest(str(run.template))}_{self._mode.replace('-', '_')}"

    def _table(self, spark: SparkSession, identifier: str) -> Any:
        return jvm(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, identifier)
