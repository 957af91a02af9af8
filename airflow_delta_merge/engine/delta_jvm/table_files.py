"""The target's files as a transaction reads them: their list, their statistics, and which of them are chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.data_files.file_statistics import has_readable_statistics, statistics_of
from airflow_delta_merge.engine.delta_jvm.errors import raises_merge_errors
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, scala_list, scala_option
from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.checksum import VersionChecksum
    from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge

#: Maximum number of files whose log entries the driver fetches: 0.1 s per 1,000.
_MOST_LISTED = 2_000
#: From this many characters on, passing log entries to the JVM takes longer than Delta's job.
_MOST_CHARACTERS = 400_000


class TableFiles:
    """The files of the table in the version that a transaction reads.

    :param statement: the merge into the table.
    :param checksum: the checksum file of its version.
    :param may_list: whether all files may be listed here, if they are not too many.
    """

    def __init__(
        self,
        gateway: Gateway,
        statement: ResolvedMerge,
        transaction: JavaObject,
        checksum: VersionChecksum,
        *,
        may_list: bool,
    ) -> None:
        self._gateway = gateway
        self._command = statement.command
        self._transaction = transaction
        self._checksum = checksum
        self._most_listed = _MOST_LISTED if may_list else 0
        self._listed_adds: list[dict[str, Any]] = []
        self._chosen_of_state: JavaObject | None = None

    @cached_property
    def table_size(self) -> tuple[int, int]:
        """Files and bytes of the table as the transaction reads it."""
        if (size := self._checksum.table_size) is not None:
            return size
        snapshot = self._transaction.snapshot()
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    def num_rows(self) -> int:
        """Rows of the whole table as the transaction reads it. Asking doesn't cause conflicts with other commits."""
        rows = self.file_set(self._transaction.snapshot().filesForScan(self._gateway.seq([]), True).files()).num_rows
        return rows if rows is not None else self._target().count()

    def _target(self) -> DataFrame:
        return self._gateway.data_frame(self._command.target())

    def file_set(self, files: JavaObject) -> FileSet:
        """Totals of a JVM sequence of ``AddFile``."""
        totals = self._gateway.delta("commands.MergeIntoCommandBase").totalBytesAndDistinctPartitionValues(files)
        rows = scala_option(self._gateway.delta("NumRecordsStats").fromActions(files).numLogicalRecordsAdded())
        return FileSet(
            files=files,
            count=int(files.size()),
            num_bytes=int(totals._1()),
            partitions=int(totals._2()),
            num_rows=None if rows is None else int(rows),
        )

    def rows_more(self, actions: JavaObject) -> int | None:
        """By how many rows the table grows by a JVM sequence of file actions; None if a file has no statistics."""
        counts = self._gateway.delta("NumRecordsStats").fromActions(actions)
        added = scala_option(counts.numLogicalRecordsAdded())
        removed = scala_option(counts.numLogicalRecordsRemoved())
        return None if added is None or removed is None else int(added) - int(removed)

    def of_adds(self, adds: Iterable[dict[str, Any]]) -> JavaObject:
        """JVM sequence of ``AddFile`` for add actions in their log form."""
        return files_of(self._gateway, map(json.dumps, adds))

    @raises_merge_errors()
    def filter(self, predicates: Iterable[Column]) -> FileSet:
        """The files that may hold rows of the target for which all predicates are true; they count as read.

        :raises MergeExecutionError: when a partition's value is an invalid text for its type.
        """
        return self.file_set(self._transaction.filterFiles(self._resolved(predicates), True))

    def _resolved(self, predicates: Iterable[Column]) -> JavaObject:
        frame = self._target()
        return self._gateway.seq(self._gateway.resolve_predicate(frame, each) for each in predicates)

    def all(self) -> FileSet:
        """All files of the table; they count as read."""
        files = self._listed_files
        return self.filter([]) if files is None else self._count_as_read(files, [])

    @cached_property
    def _listed_files(self) -> FileSet | None:
        """All files of the table, if they are few.

        Delta lists the files of a small table in its version's checksum file. With that list, Spark need not replay
        the log.
        """
        listed = self._checksum.listed("allFiles")
        if listed is None:
            return None
        self._listed_adds = self._gateway.as_json(listed)
        if not all(map(has_readable_statistics, self._listed_adds)):
            return None
        files = self.file_set(listed)
        return files if (files.count, files.num_bytes) == self.table_size else None

    @property
    def num_listed_rows(self) -> int | None:
        """Rows of the whole table, if all its files are listed without a Spark job; they don't count as read."""
        return None if self._listed_files is None else self._listed_files.num_rows

    @cached_property
    def _listed_state(self) -> list[tuple[str, dict[str, Any]]] | None:
        """Each file's log entry, as JSON and parsed; None if there are too many, one is unreadable, or a checksum file
        already lists them."""
        if self._listed_files is not None or self.table_size[0] > self._most_listed:
            return None
        listed = [(text, json.loads(text)) for text in list_state(self._gateway, self._transaction.snapshot())]
        return listed if all(has_readable_statistics(add) for _, add in listed) else None

    @cached_property
    def listed_statistics(self) -> list[dict[str, Any]] | None:
        """Delta's statistics of each file, empty for files without any; None if the table has too many files.

        They include partition columns. Also None if the session turns data skipping off.
        """
        if not self._gateway.flag("spark.databricks.delta.stats.skipping"):
            return None
        if self._listed_files is not None:
            return self._statistics_of(self._listed_adds)
        return None if self._listed_state is None else self._statistics_of(add for _, add in self._listed_state)

    def _statistics_of(self, adds: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        fields = scala_list(self._transaction.metadata().partitionSchema().toSeq())
        partitioned_by = {
            str(self.physical_name(field.name())): str(field.dataType().catalogString()) for field in fields
        }
        return [statistics_of(add, partitioned_by) for add in adds]

    def listed_at(self, positions: Sequence[int], predicates: Iterable[Column]) -> FileSet | None:
        """The files at these positions of :attr:`listed_statistics`; None if :meth:`filter` is faster.

        They count as read, and so do files that other writers add to the partitions for which the predicates are true.

        :param predicates: predicates over partition columns; none for the whole table.
        """
        files = self._listed_files
        if files is None:
            assert self._listed_state is not None, "listed_statistics exists only if the files are listed"
            adds = [self._listed_state[position][0] for position in positions]
            if sum(map(len, adds)) > _MOST_CHARACTERS:
                return None
            files = self.file_set(files_of(self._gateway, adds))
            self._chosen_of_state = files.files
        elif len(positions) < files.count:
            files = self.file_set(self._gateway.seq(files.files.apply(position) for position in positions))
        return self._count_as_read(files, predicates)

    def _count_as_read(self, files: FileSet, predicates: Iterable[Column]) -> FileSet:
        self._transaction.trackReadPredicates(self._resolved(predicates), False, True)
        self._transaction.trackFilesRead(files.files)
        return files

    def physical_name(self, column: str) -> str | None:
        """A column's name in files and statistics; None if the table has no column of exactly this name."""
        schema = self._transaction.metadata().schema()
        if schema.getFieldIndex(column).isEmpty():
            return None
        return str(self._gateway.delta("DeltaColumnMapping").getPhysicalName(schema.apply(column)))

    def select(self, candidates: FileSet, paths: Sequence[str]) -> FileSet:
        """The files of ``candidates`` with these encoded paths."""
        data_path, by_name = self._transaction.deltaLog().dataPath(), self.by_name(candidates)
        chosen = (self._command.getTouchedFile(data_path, path, by_name) for path in paths)
        return self.file_set(self._gateway.seq(chosen))

    def by_name(self, files: FileSet) -> JavaObject:
        """JVM map of the files by their absolute paths, for lookups in Delta's commands."""
        return self._command.generateCandidateFileMap(self._transaction.deltaLog().dataPath(), files.files)

    @property
    def with_statistics(self) -> JavaObject | None:
        """JVM sequence of files with their statistics, including the chosen ones; None if files are not listed."""
        return self._chosen_of_state if self._listed_files is None else self._listed_files.files


def list_state(gateway: Gateway, snapshot: JavaObject) -> list[str]:
    """Each file's ``add`` action in the state of the log, as JSON, in no particular order, by one small Spark job.

    Delta's ``filterFiles`` plans and compiles a query that parses all statistics of all columns, and returns files
    without statistics. For a table of a few thousand files, fetching each file's log entry and choosing here is faster.

    :param snapshot: the table's JVM ``Snapshot``.
    """
    adds = gateway.wrap(snapshot.stateDF()).filter("add IS NOT NULL")
    # Delta keeps the state in 50 partitions of a few dozen files each: starting a task for each would dominate.
    few_parts = adds.coalesce(gateway.default_parallelism)
    return [row[0] for row in few_parts.select(F.to_json("add")).collect()]


def files_of(gateway: Gateway, adds: Iterable[str]) -> JavaObject:
    """JVM sequence of ``AddFile`` from add actions as JSON, including their statistics."""
    return gateway.seq_from_json(adds, "org.apache.spark.sql.delta.actions.AddFile")
