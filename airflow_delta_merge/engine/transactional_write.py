"""How the rows that a merge writes are arranged into files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.even_tasks import in_whole_rounds
from airflow_delta_merge.identifiers import quote_identifier

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet, Gateway, JavaObject, MergeTransaction
    from airflow_delta_merge.engine.settings import Settings

#: Rows are gathered into files of about this size of input; Spark's adaptive execution aims at the same.
BYTES_PER_TASK = 64 * 1024 * 1024
#: Below this size a task is not worth splitting, as in Spark's adaptive execution.
SMALLEST_TASK_BYTES = 1024 * 1024
#: Where more files are written, many executors collect statistics sooner than one driver reads so many footers.
_MOST_FOOTERS = 1000


class TransactionalWrite:
    """Writes data files within a transaction on the target.

    Normalising to the table's schema and physical names, constraints, generated columns, statistics, optimised
    writes and change data are done by Delta's own ``OptimisticTransaction``.
    """

    def __init__(self, gateway: Gateway, transaction: MergeTransaction, settings: Settings) -> None:
        self._gateway = gateway
        self._transaction = transaction
        self._settings = settings

    def write_files(self, rows: DataFrame, *, input_bytes: int) -> JavaObject:
        """Write rows as new data files; nothing is visible before the commit.

        In a partitioned table rows of one partition are brought together (unless the session forbids it), so that
        each partition gets few files; in others, and where one task is enough, the number of files follows from the
        size.

        :param rows: columns of the table's final schema, then those that Delta's writer asks for.
        :param input_bytes: a rough size of the rows.
        :return: JVM sequence of file actions.
        """
        tasks = self._task_count(input_bytes)
        partitioned = bool(self._transaction.partition_columns)
        return self._transaction.write_files(
            self._arranged(rows, tasks),
            texts_by_footers=self._takes_texts_from_footers(input_bytes, None if partitioned else tasks),
        )

    def write_rewritten(
        self,
        rows: DataFrame,
        *,
        files: FileSet,
        moves_rows: bool,
        inserted: DataFrame | None = None,
        inserted_bytes: int = 0,
    ) -> JavaObject:
        """Write the rows of files that are rewritten, and inserted rows among them, as :meth:`write_files` does.

        In a partitioned table they are not shuffled where this leaves no more files than there were: a file's rows stay
        in its partition, and each task writes as many files as it meets partitions.

        :param rows: rows to write in place of ``files``.
        :param files: the files that they are read from.
        :param moves_rows: whether rows may change their partition.
        :param inserted: rows of the same columns.
        :param inserted_bytes: a rough size of these.
        """
        num_bytes = files.num_bytes + inserted_bytes
        tasks = self._task_count(num_bytes)
        few_inserted = inserted is None or round(tasks * inserted_bytes / num_bytes) == 0
        if inserted is not None:
            if few_inserted and not self._transaction.generates_identity:
                # Spark gives each task as many neighbours as the next, be they as small as they may: several partitions
                # of few inserted rows would leave all the files to one task.
                inserted = inserted.coalesce(1)
            rows = rows.unionAll(inserted)
        makes_no_more_files = files.partitions == 1 or tasks * files.partitions <= files.count
        in_place = few_inserted and not moves_rows and makes_no_more_files
        return self._transaction.write_files(
            self._arranged(rows, tasks, in_place=in_place),
            texts_by_footers=self._takes_texts_from_footers(num_bytes, max(tasks, files.count)),
        )

    def _arranged(self, rows: DataFrame, tasks: int, *, in_place: bool = False) -> DataFrame:
        transaction = self._transaction
        if transaction.optimizes_write:
            return rows
        partition_columns = [F.col(quote_identifier(name)) for name in transaction.partition_columns]
        if partition_columns and not self._gateway.flag("spark.databricks.delta.merge.repartitionBeforeWrite.enabled"):
            return rows
        if tasks == 1 or not partition_columns:
            # A task must not draw identity values for several partitions, which coalesced rows would make it do.
            return rows.repartition(tasks) if transaction.generates_identity else rows.coalesce(tasks)
        if in_place and not transaction.generates_identity:
            return rows.coalesce(tasks)
        return rows.repartition(*partition_columns)

    def _takes_texts_from_footers(self, num_bytes: int, num_files: int | None) -> bool:
        """Whether that is faster than to collect them while writing: the driver reads the footer of each new file.

        :param num_bytes: a rough size of the rows.
        :param num_files: how many files they make, at most; None if that isn't known.
        """
        from_bytes = self._settings.footer_statistics_from_bytes
        if not from_bytes:
            return True
        if num_bytes < from_bytes or num_files is None or num_files > _MOST_FOOTERS:
            return False
        # The text columns' bytes, if all columns took the same: tables of many columns have few rows in many bytes.
        return (
            num_bytes >= num_files * SMALLEST_TASK_BYTES and num_bytes * self._transaction.share_of_texts >= from_bytes
        )

    def _task_count(self, input_bytes: int) -> int:
        """As many tasks as the size asks for, and no more of the cores than the size is worth."""
        worthwhile = max(1, math.ceil(input_bytes / SMALLEST_TASK_BYTES))
        cores = self._gateway.default_parallelism
        return max(in_whole_rounds(math.ceil(input_bytes / BYTES_PER_TASK), cores), min(cores, worthwhile))
