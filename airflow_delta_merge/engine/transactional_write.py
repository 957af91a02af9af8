"""Arranges the rows that a merge writes into files.

Delta's own ``OptimisticTransaction`` does the rest: schema normalisation, physical names, constraints, generated
columns, statistics, optimised writes and change data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.identifiers import quote_identifier

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.started_merge import StartedMerge

#: Rows are gathered into files of about this size of input; Spark's adaptive execution aims at the same.
BYTES_PER_TASK = 64 * 1024 * 1024
#: Below this size a task is not worth splitting, as in Spark's adaptive execution.
SMALLEST_TASK_BYTES = 1024 * 1024


def write_files(merge: StartedMerge, rows: DataFrame, *, input_bytes: int) -> JavaObject:
    """Write rows as new data files; nothing is visible before the commit.

    In a partitioned table, rows of one partition are shuffled together (unless the session forbids it), so that
    each partition gets few files. Otherwise, and where one task is enough, the size determines the number of files.

    :param rows: columns of the table's final schema, then those that Delta's writer needs.
    :param input_bytes: a rough size of the rows.
    :return: JVM sequence of file actions.
    """
    return merge.transaction.write_files(_arranged(merge, rows, _task_count(merge, input_bytes)))


def write_rewritten(
    merge: StartedMerge,
    rows: DataFrame,
    *,
    files: FileSet,
    moves_rows: bool,
    inserted: DataFrame | None,
    inserted_bytes: int,
) -> JavaObject:
    """Write the rows of rewritten files together with inserted rows, like :func:`write_files`.

    In a partitioned table the rows are not shuffled if that makes no more files than before: a file's rows stay
    in its partition, and each task writes one file per partition that it meets.

    :param rows: rows to write in place of ``files``.
    :param files: the files that they are read from.
    :param moves_rows: whether rows may change their partition.
    :param inserted: inserted rows, with the same columns.
    :param inserted_bytes: a rough size of the inserted rows.
    """
    num_bytes = files.num_bytes + inserted_bytes
    tasks = _task_count(merge, num_bytes)
    few_inserted = inserted is None or round(tasks * inserted_bytes / num_bytes) == 0
    if inserted is not None:
        if few_inserted and not merge.transaction.generates_identity:
            # Spark groups neighbouring partitions by number, regardless of size: several tiny partitions of
            # inserted rows would leave all the files to one task.
            inserted = inserted.coalesce(1)
        rows = rows.unionAll(inserted)
    makes_no_more_files = files.partitions == 1 or tasks * files.partitions <= files.count
    in_place = few_inserted and not moves_rows and makes_no_more_files
    return merge.transaction.write_files(_arranged(merge, rows, tasks, in_place=in_place))


def _arranged(merge: StartedMerge, rows: DataFrame, tasks: int, *, in_place: bool = False) -> DataFrame:
    transaction = merge.transaction
    if transaction.optimizes_write:
        return rows
    partition_columns = [F.col(quote_identifier(name)) for name in transaction.partition_columns]
    if partition_columns and not merge.gateway.flag("spark.databricks.delta.merge.repartitionBeforeWrite.enabled"):
        return rows
    if tasks == 1 or not partition_columns:
        # A task must not draw identity values for several partitions, as it would after coalesce().
        return rows.repartition(tasks) if transaction.generates_identity else rows.coalesce(tasks)
    if in_place and not transaction.generates_identity:
        return rows.coalesce(tasks)
    return rows.repartition(*partition_columns)


def _task_count(merge: StartedMerge, input_bytes: int) -> int:
    """As many tasks as the size needs, using no more cores than the size is worth."""
    worthwhile = max(1, math.ceil(input_bytes / SMALLEST_TASK_BYTES))
    cores = merge.gateway.default_parallelism
    return max(math.ceil(input_bytes / BYTES_PER_TASK), min(cores, worthwhile))
