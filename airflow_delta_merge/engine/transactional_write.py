"""Writing and committing: the only places where a merge changes anything outside its own memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import DeltaJvm, JavaObject

#: Rows are gathered into files of about this size of input; Spark's adaptive execution aims at the same.
BYTES_PER_TASK = 64 * 1024 * 1024
#: Below this size a task is not worth splitting, as in Spark's adaptive execution.
SMALLEST_TASK_BYTES = 1024 * 1024


class TransactionalWrite:
    """Writes data files within one transaction on the target and commits them.

    Normalising to the table's schema and physical names, constraints, generated columns, statistics, optimised
    writes and change data are done by Delta's own ``OptimisticTransaction``.
    """

    def __init__(self, delta: DeltaJvm, transaction: JavaObject) -> None:
        self._delta = delta
        self.transaction = transaction

    def write_files(self, rows: DataFrame, *, input_bytes: int, partition_columns: Sequence[Column]) -> JavaObject:
        """Write rows as new data files; nothing is visible before the commit.

        :param rows: columns in the order of the table's final schema.
        :param input_bytes: a rough size of the rows, from which the number of files follows.
        :param partition_columns: the table's partition columns in ``rows``; when there are any, and the session
            does not forbid it, rows of one partition are brought together, so that each gets few files.
        :return: JVM sequence of file actions.
        """
        if not self._delta.optimizes_write(self.transaction):
            if partition_columns and self._delta.flag("spark.databricks.delta.merge.repartitionBeforeWrite.enabled"):
                rows = rows.repartition(*partition_columns)
            elif not partition_columns:
                rows = rows.coalesce(self._task_count(input_bytes))
        return self._delta.write_files(self.transaction, rows)

    def _task_count(self, input_bytes: int) -> int:
        """As many tasks as the size asks for, and no more of the cores than the size is worth."""
        worthwhile = max(1, math.ceil(input_bytes / SMALLEST_TASK_BYTES))
        return max(math.ceil(input_bytes / BYTES_PER_TASK), min(self._delta.default_parallelism(), worthwhile))

    def commit(self, command: JavaObject, actions: JavaObject) -> int | None:
        """Commit file actions as operation MERGE with the command's metrics.

        :return: the committed version; None when there was nothing to commit.
        """
        return self._delta.commit_merge(command, self.transaction, actions)
