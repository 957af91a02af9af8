"""What a merge would do: :class:`MergePlan`, from a dry run that writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_delta_merge.exceptions import MergeResultError


@dataclass(frozen=True, kw_only=True)
class MergePlan:
    """The exact counts of a merge that was not carried out. Sizes are in bytes.

    :param table: the target as ``catalog.schema.table``, or its path.
    :param version_read: the table version that was read.
    :param executor: ``InsertOnlyMergeExecutor`` or ``ClassicMergeExecutor``.
    :param executor_reason: how that executor would work and why, in one sentence.
    :param num_source_rows: rows of the source.
    :param num_affected_rows: updated + deleted + inserted rows.
    :param num_updated_rows: rows that UPDATE clauses would update, even if the new values equal the old ones.
    :param num_deleted_rows: rows that would be deleted.
    :param num_inserted_rows: rows that would be inserted.
    :param num_copied_rows: unchanged rows that would be written again with their files.
    :param num_files_before_skipping: files of the table.
    :param num_bytes_before_skipping: their size.
    :param num_candidate_files: files left after data skipping, which were searched for matches.
    :param num_candidate_bytes: their size.
    :param num_touched_files: files with a row that a clause would change.
    :param num_touched_bytes: their size.
    :param num_bad_rows: unreadable rows of the source's JSON or CSV files, which would be left out.
    :param num_null_keys: source rows with a NULL in a key column, as in a result.
    :param num_set_aside_rows: source rows that would be set aside; ``num_source_rows`` is without them.
    :param failed_expectations: how many source rows break each expectation, by its name.
    :param spark_plans: Spark's physical plans by what they compute (``matches``, ``rewritten rows``, ``inserted
        rows``), if requested.
    """

    table: str
    version_read: int
    executor: str
    executor_reason: str
    num_source_rows: int
    num_affected_rows: int
    num_updated_rows: int
    num_deleted_rows: int
    num_inserted_rows: int
    num_copied_rows: int
    num_files_before_skipping: int
    num_bytes_before_skipping: int
    num_candidate_files: int
    num_candidate_bytes: int
    num_touched_files: int
    num_touched_bytes: int
    num_bad_rows: int = 0
    num_null_keys: int | None = None
    num_set_aside_rows: int = 0
    failed_expectations: dict[str, int] = field(default_factory=dict)
    spark_plans: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A flat dict of JSON types with stable keys."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MergePlan:
        """Restore it from :meth:`to_dict`.

        :raises MergeResultError: when it has other keys.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise MergeResultError(f"This is not a merge plan of this release: {error}.") from error
