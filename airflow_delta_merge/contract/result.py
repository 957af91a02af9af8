"""What a merge did: :class:`MergeResult`, the same in XCom, in the job's result file and in the Delta log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeGuard

from airflow_delta_merge.exceptions import MergeResultError

RESULT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class MergeResult:
    """The metrics row, the touched-file counts and the circumstances of one merge. Rows are counts, sizes bytes.

    :param table: the target as ``catalog.schema.table``, or its path.
    :param location: the folder or URI of the target; empty in results of releases that didn't record it.
    :param version_read: the table version the merge was computed on.
    :param version: the version the merge committed; None when there was nothing to commit.
    :param executor: ``InsertOnlyMergeExecutor`` or ``ClassicMergeExecutor``; another one with ``engine="builtin"``.
    :param executor_reason: why that executor ran and how it went about it, in a sentence.
    :param num_affected_rows: updated + deleted + inserted rows.
    :param num_updated_rows: rows changed by UPDATE clauses, also when the new values equal the old ones.
    :param num_deleted_rows: rows deleted; a row deleted by several source rows counts once.
    :param num_inserted_rows: rows inserted.
    :param num_files_before_skipping: files of the table in ``version_read``.
    :param num_bytes_before_skipping: their size.
    :param num_candidate_files: files left after data skipping, which were searched for matches.
    :param num_candidate_bytes: their size.
    :param num_touched_files: files that hold a row which a clause changed.
    :param num_removed_files: touched files that left the table (all touched ones, without deletion vectors).
    :param num_removed_bytes: their size.
    :param num_added_files: files written and added, without files that only got a deletion vector.
    :param num_added_bytes: their size.
    :param num_deletion_vectors_added: files that got their first deletion vector.
    :param num_deletion_vectors_removed: deletion vectors that went away with their file.
    :param num_deletion_vectors_updated: files whose deletion vector was replaced.
    :param source_storage_level: where the source's rows were kept during the merge, as Spark names it; empty when
        they were not.
    :param source_materialization_reason: why they were kept: Delta's own reason, or this engine's.
    :param metrics: all merge metrics by Delta's names, as in the table's history.
    :param durations_ms: milliseconds by phase: ``resolve``, ``source``, ``scan``, ``rewrite``, ``commit``, ``total``;
        of the last commit attempt.
    :param num_commit_attempts: how often the merge was computed: 1, and one more for each concurrent writer's commit
        that it conflicted with.
    :param num_bad_rows: rows of the source's JSON or CSV files that could not be read and were left out.
    :param num_null_keys: source rows with a NULL in a key column, by which they match nothing; None where they weren't
        counted: ``on`` is a condition, ``null_safe``, the source is written as it is read, or Delta merged.
    :param num_set_aside_rows: source rows that broke an expectation of ``expect_source`` and were set aside, so that
        neither the merge nor ``numSourceRows`` among the metrics has them.
    :param failed_expectations: how many source rows broke each expectation, by its name.
    :param already_committed: whether nothing was done now, because an earlier try of the same execution had committed;
        all else is what that try recorded in the table's log.
    """

    table: str
    version_read: int
    version: int | None
    executor: str
    executor_reason: str
    num_affected_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0
    num_inserted_rows: int = 0
    num_files_before_skipping: int = 0
    num_bytes_before_skipping: int = 0
    num_candidate_files: int = 0
    num_candidate_bytes: int = 0
    num_touched_files: int = 0
    num_removed_files: int = 0
    num_removed_bytes: int = 0
    num_added_files: int = 0
    num_added_bytes: int = 0
    num_deletion_vectors_added: int = 0
    num_deletion_vectors_removed: int = 0
    num_deletion_vectors_updated: int = 0
    source_storage_level: str = ""
    source_materialization_reason: str = ""
    location: str = ""
    metrics: dict[str, int] = field(default_factory=dict)
    durations_ms: dict[str, int] = field(default_factory=dict)
    num_commit_attempts: int = 1
    num_bad_rows: int = 0
    num_null_keys: int | None = None
    num_set_aside_rows: int = 0
    failed_expectations: dict[str, int] = field(default_factory=dict)
    already_committed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """A flat dict of JSON types with stable keys, plus ``result_version``."""
        return {"result_version": RESULT_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MergeResult:
        """Read what :meth:`to_dict` gave, checking keys and types.

        :raises MergeResultError: when it is not a result of this version.
        """
        if data.get("result_version") != RESULT_VERSION:
            raise MergeResultError(
                f"This merge result has version {data.get('result_version')!r}, this package reads version "
                f"{RESULT_VERSION}. Use the same release on both ends."
            )
        values = {key: value for key, value in data.items() if key != "result_version"}
        names = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - names):
            raise MergeResultError(f"This merge result has unknown keys: {', '.join(unknown)}.")
        for name, value in values.items():
            _check_type(name, value)
        try:
            return cls(**values)
        except TypeError as error:
            raise MergeResultError(f"This merge result is not complete: {error}.") from error

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> MergeResult:
        """Read what :meth:`to_json` wrote.

        :raises MergeResultError: when the text is torn, no JSON object, or no result.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise MergeResultError(f"The merge result is not JSON: {error}.") from error
        if not isinstance(data, dict):
            raise MergeResultError("The merge result is not a JSON object.")
        return cls.from_dict(data)


_TEXTS = ("table", "location", "executor", "executor_reason", "source_storage_level", "source_materialization_reason")


def _check_type(name: str, value: Any) -> None:
    if name in _TEXTS:
        good = isinstance(value, str)
    elif name == "already_committed":
        good = isinstance(value, bool)
    elif name in ("metrics", "durations_ms", "failed_expectations"):
        good = isinstance(value, dict) and all(isinstance(k, str) and is_whole_number(v) for k, v in value.items())
    else:
        good = is_whole_number(value) or (name in ("version", "num_null_keys") and value is None)
    if not good:
        raise MergeResultError(f"This merge result has a wrong value for {name}: {str(value)[:80]!r}.")


def is_whole_number(value: Any) -> TypeGuard[int]:
    """Whether a value is a number such as a count: one that Delta's and Spark's longs hold."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
