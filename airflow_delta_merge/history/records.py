"""One commit of a table's log: its author, time and changes; and its table.

Any writer may have written the log, so every value is validated. Missing values are None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_delta_merge.contract.commit_record import RECORD_KEY, CommitRecord
from airflow_delta_merge.contract.identity import TaskInstanceIdentity
from airflow_delta_merge.contract.result import MergeResult, is_whole_number
from airflow_delta_merge.exceptions import MergeResultError

#: The writer of commits that carry a record of this package.
OWN_WRITER = "airflow_delta_merge"
UNKNOWN = "unknown"

# The writers' names for counts: Delta's merge, Delta's other commands, delta-rs's merge, its other commands.
_ROWS = {
    "inserted": ("numTargetRowsInserted", "num_target_rows_inserted"),
    "updated": ("numTargetRowsUpdated", "numUpdatedRows", "num_target_rows_updated", "num_updated_rows"),
    "deleted": ("numTargetRowsDeleted", "numDeletedRows", "num_target_rows_deleted", "num_deleted_rows"),
    "copied": ("numTargetRowsCopied", "numCopiedRows", "num_target_rows_copied", "num_copied_rows"),
}
_ADDED_BY_WRITE = ("numOutputRows", "num_added_rows")
_FILES = {
    "added": ("numTargetFilesAdded", "numAddedFiles", "numFiles", "num_target_files_added", "num_added_files"),
    "removed": ("numTargetFilesRemoved", "numRemovedFiles", "num_target_files_removed", "num_removed_files"),
}
_BYTES = {
    "added": ("numTargetBytesAdded", "numAddedBytes", "numOutputBytes"),
    "removed": ("numTargetBytesRemoved", "numRemovedBytes"),
}
_TOTAL = ("executionTimeMs", "execution_time_ms")
_PHASES = {"source": "materializeSourceTimeMs", "scan": "scanTimeMs", "rewrite": "rewriteTimeMs"}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows that a commit changed, and those that it only wrote again."""

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    copied: int | None = None


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files of the table before a commit, and of these the ones searched, those with a changed row, and the changes."""

    before: int | None = None
    candidate: int | None = None
    touched: int | None = None
    added: int | None = None
    removed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit.

    :param version: the table's version that it made.
    :param timestamp_ms: when, in milliseconds since 1970.
    :param operation: ``MERGE``, ``WRITE`` …; ``unknown`` where the commit doesn't say.
    :param writer: ``airflow_delta_merge``, or another writer as it calls itself.
    :param parameters: the operation's parameters, as texts; for a merge its condition and clauses.
    :param rows: what became of rows.
    :param files: what became of files.
    :param bytes: sizes of the same.
    :param durations_ms: milliseconds by phase; ``total`` is the whole command.
    :param metrics: all numbers that the writer gives, by its own names.
    :param record: the merge as it recorded itself, if this package made it.
    :param trouble: why a record, or the whole commit, can't be read.
    :param added_files: of a commit of few files: each file's path, with its size and statistics as one text.
    :param removed_files: the paths of the files that it removed, likewise.
    """

    version: int
    timestamp_ms: int | None = None
    operation: str = UNKNOWN
    writer: str = UNKNOWN
    parameters: Mapping[str, str] = field(default_factory=dict)
    rows: Rows = field(default_factory=Rows)
    files: Files = field(default_factory=Files)
    bytes: Files = field(default_factory=Files)
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    record: CommitRecord | None = None
    trouble: str | None = None
    added_files: Mapping[str, str] = field(default_factory=dict)
    removed_files: tuple[str, ...] = ()

    @property
    def result(self) -> MergeResult | None:
        """The whole result of a merge of this package."""
        return None if self.record is None else self.record.result_of(self.version)

    @property
    def task_instance(self) -> TaskInstanceIdentity | None:
        """The Airflow task instance and try that merged."""
        return None if self.record is None else self.record.identity.task_instance

    @property
    def time(self) -> datetime | None:
        return moment_of(self.timestamp_ms)

    @property
    def total_ms(self) -> int | None:
        return self.durations_ms.get("total")

    def to_dict(self) -> dict[str, Any]:
        """JSON types with stable keys."""
        time, result, record = self.time, self.result, self.record
        return {
            "version": self.version,
            "time": time and time.isoformat(timespec="milliseconds"),
            "operation": self.operation,
            "writer": self.writer,
            "parameters": dict(self.parameters),
            "rows": asdict(self.rows),
            "files": asdict(self.files),
            "bytes": asdict(self.bytes),
            "durations_ms": dict(self.durations_ms),
            "task_instance": self.task_instance and asdict(self.task_instance),
            "application_id": record and record.identity.application_id,
            "generation": record and record.identity.generation,
            "config_digest": record and record.config_digest,
            "result": result and result.to_dict(),
            "metrics": dict(self.metrics),
            "trouble": self.trouble,
        }


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table in its newest version.

    :param path: the folder or URI that was asked for.
    :param version: its newest version.
    :param name: the name in its metadata.
    :param properties: its table properties.
    :param partition_columns: its partition columns.
    :param features: the table features of its protocol.
    """

    path: str
    version: int
    name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether they are on."""
        return self.properties.get("delta.enableDeletionVectors", "").lower() == "true"

    @property
    def is_clustered(self) -> bool:
        return "clustering" in self.features

    def to_dict(self) -> dict[str, Any]:
        """JSON types with stable keys."""
        return {
            **asdict(self),
            "properties": dict(self.properties),
            "partition_columns": list(self.partition_columns),
            "features": sorted(self.features),
        }


def commit_of(version: int, info: Mapping[str, Any] | None) -> Commit:
    """Read a commit's info.

    :param info: its action ``commitInfo``; None if it has none.
    """
    if info is None:
        return Commit(version=version)
    record, trouble = _record_of(info)
    own = record is not None or trouble is not None
    metrics = record.result.metrics if record is not None and record.result.metrics else _numbers(info)
    common: dict[str, Any] = {
        "version": version,
        "timestamp_ms": _whole(info.get("inCommitTimestamp")) or _whole(info.get("timestamp")),
        "operation": _text(info.get("operation")) or UNKNOWN,
        "writer": OWN_WRITER if own else _text(info.get("engineInfo")) or _text(info.get("clientVersion")) or UNKNOWN,
        "parameters": _parameters(info.get("operationParameters")),
        "metrics": metrics,
        "record": record,
        "trouble": trouble,
    }
    if record is None:
        return Commit(
            **common,
            rows=_rows(common["operation"], metrics),
            files=Files(**_named(_FILES, metrics)),
            bytes=Files(**_named(_BYTES, metrics)),
            durations_ms=_durations(metrics),
        )
    return Commit(**common, **_of_result(record.result, _durations(metrics)))


def moment_of(milliseconds: int | None) -> datetime | None:
    """A moment in UTC; None for one that no calendar has."""
    try:
        return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _of_result(result: MergeResult, of_metrics: dict[str, int]) -> dict[str, Any]:
    return {
        "rows": Rows(
            inserted=result.num_inserted_rows,
            updated=result.num_updated_rows,
            deleted=result.num_deleted_rows,
            copied=result.metrics.get("numTargetRowsCopied"),
        ),
        "files": Files(
            before=result.num_files_before_skipping,
            candidate=result.num_candidate_files,
            touched=result.num_touched_files,
            added=result.num_added_files,
            removed=result.num_removed_files,
        ),
        "bytes": Files(
            before=result.num_bytes_before_skipping,
            candidate=result.num_candidate_bytes,
            added=result.num_added_bytes,
            removed=result.num_removed_bytes,
        ),
        "durations_ms": {**of_metrics, **result.durations_ms},
    }


def _record_of(info: Mapping[str, Any]) -> tuple[CommitRecord | None, str | None]:
    """The record, or why it can't be read."""
    text = info.get("userMetadata")
    if not isinstance(text, str) or RECORD_KEY not in text:
        return None, None
    try:
        return CommitRecord.from_user_metadata(text), None
    except MergeResultError as error:
        return None, str(error)


def _rows(operation: str, metrics: Mapping[str, int]) -> Rows:
    found = _named(_ROWS, metrics)
    if operation in ("WRITE", "STREAMING UPDATE") or operation.startswith(("CREATE", "REPLACE")):
        found["inserted"] = _first(_ADDED_BY_WRITE, metrics)
    return Rows(**found)


def _durations(metrics: Mapping[str, int]) -> dict[str, int]:
    found = {phase: metrics[name] for phase, name in _PHASES.items() if name in metrics}
    total = _first(_TOTAL, metrics)
    return found if total is None else {**found, "total": total}


def _named(names: Mapping[str, Iterable[str]], metrics: Mapping[str, int]) -> dict[str, int | None]:
    return {ours: _first(theirs, metrics) for ours, theirs in names.items()}


def _first(names: Iterable[str], metrics: Mapping[str, int]) -> int | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _numbers(info: Mapping[str, Any]) -> dict[str, int]:
    metrics = info.get("operationMetrics")
    if not isinstance(metrics, Mapping):
        return {}
    numbers = {str(name): _whole(value) for name, value in metrics.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _parameters(parameters: Any) -> dict[str, str]:
    if not isinstance(parameters, Mapping):
        return {}
    # Spark numbers columns (id#12L), otherwise in each session.
    return {str(name): re.sub(r"#\d+L?\b", "", str(value)) for name, value in parameters.items() if value is not None}


def _whole(value: Any) -> int | None:
    """A number, also one that is written as a text, as Delta writes metrics."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    return value if is_whole_number(value) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
