"""How the rows that a merge writes are arranged into files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.identifiers import quote_identifier

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import Gateway, JavaObject, MergeTransaction

#: Rows are gathered into files of about this size of input; Spark's adaptive execution aims at the same.
BYTES_PER_TASK = 64 * 1024 * 1024
#: Below this size a task is not worth splitting, as in Spark's adaptive execution.
SMALLEST_TASK_BYTES = 1024 * 1024


class TransactionalWrite:
    """Writes data files within a transaction on the target.

    Normalising to the table's schema and physical names, constraints, generated columns, statistics, optimised
    writes and change data are done by Delta's own ``OptimisticTransaction``.
    """

    def __init__(self, gateway: Gateway, transaction: MergeTransaction) -> None:
        self._gateway = gateway
        self._transaction = transaction

    def write_files(self, rows: DataFrame, *, input_bytes: int) -> JavaObject:
        """Write rows as new data files; nothing is visible before the commit.

        In a partitioned table rows of one partition are brought together (unless the session forbids it), so that
        each partition gets few files; in others, and where one task is enough, the number of files follows from the
        size.

        :param rows: columns of the table's final schema, then those that Delta's writer asks for.
        :param input_bytes: a rough size of the rows.
        :return: JVM sequence of file actions.
        """
        return self._transaction.write_files(self._arranged(rows, input_bytes))

    def _arranged(self, rows: DataFrame, input_bytes: int) -> DataFrame:
        if self._transaction.optimizes_write:
            return rows
        partition_columns = [F.col(quote_identifier(name)) for name in self._transaction.partition_columns]
        tasks = self._task_count(input_bytes)
        if tasks == 1 or not partition_columns:
            # A task must not draw identity values for several partitions, which coalesced rows would make it do.
            return rows.repartition(tasks) if self._transaction.generates_identity else rows.coalesce(tasks)
        if self._gateway.flag("spark.databricks.delta.merge.repartitionBeforeWrite.enabled"):
            return rows.repartition(*partition_columns)
        return rows

    def _task_count(self, input_bytes: int) -> int:
        """As many tasks as the size asks for, and no more of the cores than the size is worth."""
        worthwhile = max(1, math.ceil(input_bytes / SMALLEST_TASK_BYTES))
        return max(math.ceil(input_bytes / BYTES_PER_TASK), min(self._gateway.default_parallelism(), worthwhile))
