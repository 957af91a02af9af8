"""Actions for files with rows marked as deleted, with Delta's statistics for them.

Marked rows make a file's bounds wide. Delta rewrites the statistics to say so. It looks each file up in the table's
state with three Spark jobs, because files chosen by a scan come without statistics. Files chosen from a list have
statistics, so Delta's function is applied to these files alone, on the driver.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, jc, scala_list

#: A field of this type in a schema's JSON. The log has bounds of variants in Delta's own encoding.
_VARIANT = '"type":"variant"'


def actions_of_marked_files(
    gateway: Gateway, touched: JavaObject, transaction: JavaObject, listed: JavaObject | None
) -> tuple[JavaObject, dict[str, int]]:
    """The actions that give files their new deletion vectors and remove files without remaining rows.

    :param touched: JVM sequence of Delta's ``TouchedFileWithDV``.
    :param listed: JVM sequence of files with their statistics, including those of ``touched``; None without a list.
    :return: JVM sequence of file actions, and Delta's counts by name.
    """
    is_read_here = listed is not None and _VARIANT not in str(transaction.snapshot().statsSchema().json())
    of_listed = _of_listed_files(gateway, touched, transaction, listed) if is_read_here else None
    return _by_state(gateway, touched, transaction) if of_listed is None else of_listed


def _by_state(gateway: Gateway, touched: JavaObject, transaction: JavaObject) -> tuple[JavaObject, dict[str, int]]:
    done = by_version.actions_for_marked_files(gateway, touched, transaction)
    return done._1(), {str(name): int(done._2().apply(name)) for name in scala_list(done._2().keys().toSeq())}


def _of_listed_files(
    gateway: Gateway, touched: JavaObject, transaction: JavaObject, listed: JavaObject
) -> tuple[JavaObject, dict[str, int]] | None:
    """The same without a Spark job; None if a file's statistics lack its number of rows."""
    emptied: list[JavaObject] = []
    marked: list[JavaObject] = []
    for file in scala_list(touched):
        (emptied if file.isFullyReplaced() else marked).append(file)
    by_path = {str(file.path()): file for file in scala_list(listed)}
    # Files chosen by a scan lack statistics.
    complete = [by_path[str(file.fileLogEntry().path())] for file in marked]
    widened = _with_wide_bounds(gateway, complete, transaction.snapshot())
    if any(file.numPhysicalRecords().isEmpty() for file in widened):
        return None
    # Without marked files Delta does not look into the table's state.
    removes, counts = _by_state(gateway, gateway.seq(emptied), transaction)
    added, removed = [], []
    for file, wide in zip(marked, widened, strict=True):
        before, vector = file.fileLogEntry(), file.newDeletionVector()
        added.append(wide.removeRows(vector, False, True)._1())
        removed.append(before.removeRows(vector, False, True)._2())
        counts["numDeletionVectorsAdded" if before.deletionVector() is None else "numDeletionVectorsUpdated"] += 1
    return gateway.concat(removes, gateway.seq([*added, *removed])), counts


def _with_wide_bounds(gateway: Gateway, files: list[JavaObject], snapshot: JavaObject) -> list[JavaObject]:
    """Files with statistics that stay valid when rows are marked, computed as Delta does for its state's rows."""
    encoder = gateway.module("org.apache.spark.sql.delta.implicits.package").addFileEncoder()
    name = str(snapshot.getBaseStatsColumnName())
    parse = gateway.java_class("org.apache.spark.sql.functions").from_json
    parsed = gateway.session.createDataset(gateway.seq(files), encoder).withColumn(
        name, parse(jc(F.col("stats")), snapshot.statsSchema())
    )
    wide = getattr(snapshot.updateStatsToWideBounds(parsed, name), "as")(encoder)
    return list(wide.collect())
