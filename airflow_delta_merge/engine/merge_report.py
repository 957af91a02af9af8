"""Collects what a merge reports about itself while it runs: :class:`MergeReport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta_merge.contract.merge_plan import MergePlan
from airflow_delta_merge.contract.result import MergeResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
    from airflow_delta_merge.engine.metrics import MergeMetrics

#: Fields of plans and results, with the metric that each is.
_ROWS = {
    "num_updated_rows": "numTargetRowsUpdated",
    "num_deleted_rows": "numTargetRowsDeleted",
    "num_inserted_rows": "numTargetRowsInserted",
}
_WRITTEN = {
    "num_removed_files": "numTargetFilesRemoved",
    "num_removed_bytes": "numTargetBytesRemoved",
    "num_added_files": "numTargetFilesAdded",
    "num_added_bytes": "numTargetBytesAdded",
    "num_deletion_vectors_added": "numTargetDeletionVectorsAdded",
    "num_deletion_vectors_removed": "numTargetDeletionVectorsRemoved",
    "num_deletion_vectors_updated": "numTargetDeletionVectorsUpdated",
}


def row_counts(metrics: Mapping[str, int]) -> dict[str, Any]:
    """The fields of changed rows."""
    counts = {field: metrics.get(name, 0) for field, name in _ROWS.items()}
    return {"num_affected_rows": sum(counts.values()), **counts}


def written_counts(metrics: Mapping[str, int]) -> dict[str, Any]:
    """The fields of removed and added files and of deletion vectors."""
    return {field: metrics.get(name, 0) for field, name in _WRITTEN.items()}


class MergeReport:
    """What is known about a merge so far. The plan or the result is built from it and the metrics.

    :param metrics: its counts and durations.
    :param attempt: which commit attempt this is, from 1.
    :param num_bad_rows: number of bad rows in the source's files that were left out.
    """

    def __init__(self, statement: ResolvedMerge, metrics: MergeMetrics, attempt: int, num_bad_rows: int = 0) -> None:
        self._statement = statement
        self._metrics = metrics
        self._attempt = attempt
        self._num_bad_rows = num_bad_rows
        self.executor = ""
        self.reason = ""
        self.version_read = -1
        self.version: int | None = None
        self.num_touched_files = 0
        self.storage_level = ""
        self.materialization = "nothing was read"
        self.num_null_keys: int | None = None
        self.num_set_aside_rows = 0
        self.failed_expectations: dict[str, int] = {}

    def plan(self, touched_bytes: int, spark_plans: Mapping[str, str]) -> MergePlan:
        """What the merge would do.

        :param touched_bytes: size of the files that it would rewrite or mark rows in.
        :param spark_plans: Spark's physical plans, by what they compute.
        """
        values = self._metrics.values
        return MergePlan(
            **self._counts(),
            num_source_rows=values["numSourceRows"],
            num_copied_rows=values["numTargetRowsCopied"],
            num_touched_bytes=touched_bytes,
            spark_plans=dict(spark_plans),
        )

    def result(self) -> MergeResult:
        """What was done, with all metrics."""
        values = self._metrics.values
        return MergeResult(
            **self._counts(),
            location=self._statement.location(),
            version=self.version,
            **written_counts(values),
            source_storage_level=self.storage_level,
            source_materialization_reason=self.materialization,
            metrics=dict(values),
            durations_ms=dict(self._metrics.durations_ms),
            num_commit_attempts=self._attempt,
        )

    def changed_rows(self) -> str:
        """The numbers of changed rows, for the log."""
        values = self._metrics.values
        kinds = ("Updated", "Deleted", "Inserted")
        return ", ".join(f"{values[f'numTargetRows{kind}']} rows {kind.lower()}" for kind in kinds)

    def _counts(self) -> dict[str, Any]:
        """The fields that a plan and a result share."""
        values = self._metrics.values
        return {
            "table": self._statement.table_name(),
            "version_read": self.version_read,
            "executor": self.executor,
            "executor_reason": self.reason,
            **row_counts(values),
            "num_files_before_skipping": values["numTargetFilesBeforeSkipping"],
            "num_bytes_before_skipping": values["numTargetBytesBeforeSkipping"],
            "num_candidate_files": values["numTargetFilesAfterSkipping"],
            "num_candidate_bytes": values["numTargetBytesAfterSkipping"],
            "num_touched_files": self.num_touched_files,
            "num_bad_rows": self._num_bad_rows,
            "num_null_keys": self.num_null_keys,
            "num_set_aside_rows": self.num_set_aside_rows,
            "failed_expectations": dict(self.failed_expectations),
        }
