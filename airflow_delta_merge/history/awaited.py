"""The conditions that sensors and triggers wait for, read from a Delta table's log with ``deltalake``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_delta_merge.connections.stores import StoreConnections
from airflow_delta_merge.contract.commit_record import CommitRecord
from airflow_delta_merge.exceptions import MergeResultError, StoreAccessError, TableLogError, UnreadableTableError
from airflow_delta_merge.history import log_reader
from airflow_delta_merge.history.commit_files import read_commit
from airflow_delta_merge.history.records import UNKNOWN

if TYPE_CHECKING:
    from deltalake import DeltaTable

_T = TypeVar("_T")

# How many commits are looked through for a record, the newest first; then all that the log still has.
_COMMITS_AT_FIRST = 100
# How many are looked through at each check while there is no record.
_COMMITS_WHILE_WAITING = 10
#: How many new commits are looked at one by one.
MOST_COMMITS = 1000


@dataclass(frozen=True, kw_only=True)
class StoredTable(StoreConnections):
    """A table whose log is read. Connections are read each time, so that keys stay in them.

    :param path: the table's folder or URI.
    :param storage_options: access to its storage, by the names of ``deltalake``; they override connections.
    """

    path: str
    storage_options: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON types, for the arguments of a trigger."""
        return asdict(self)

    def options(self) -> dict[str, str]:
        """Access to the storage, with keys.

        :raises StoreAccessError: when a connection can't be used.
        """
        return {**self.deltalake_options(), **self.storage_options}


@dataclass(frozen=True, kw_only=True)
class TableCondition(StoredTable):
    """Conditions on a table's log. The table must exist and meet all of them.

    :param version: the table has this version or a later one.
    :param updated_since: its newest commit is from this time or later (ISO 8601; UTC without a time zone).
    :param partition: it has a file in this partition, by the values of some or all partition columns.
    """

    version: int | None = None
    updated_since: str | None = None
    partition: dict[str, str] = field(default_factory=dict)

    def met_by(self) -> int | None:
        """The table's version, if it meets the conditions, else None.

        :raises AirflowFailException: also when the table can't have such a partition.
        :raises AirflowException: as :func:`read_log`.
        """
        return read_log(self, self._look)

    def _look(self, table: DeltaTable) -> int | None:
        self._check_partition(table)
        version: int = table.version()
        if self.version is not None and version < self.version:
            return None
        if self.updated_since is not None and _last_update(table) < moment(self.updated_since).timestamp() * 1000:
            return None
        return version if not self.partition or self._has_partition(table) else None

    def _check_partition(self, table: DeltaTable) -> None:
        columns = table.metadata().partition_columns
        for name in self.partition:
            if name not in columns:
                raise AirflowFailException(
                    f"partition has {name!r}, which is not a partition column of {self.path} "
                    f"({', '.join(columns) or 'which has none'}). Correct partition."
                )

    def _has_partition(self, table: DeltaTable) -> bool:
        from deltalake.exceptions import DeltaError

        try:
            return bool(table.file_uris([(name, "=", value) for name, value in self.partition.items()]))
        except DeltaError as error:
            if "Failed to parse value" not in str(error):
                raise
            raise AirflowFailException(
                f"partition has a value of the wrong type for {self.path}: {error}. Correct partition."
            ) from error


@dataclass(frozen=True, kw_only=True)
class RecordedMerge(StoredTable):
    """A merge to find in a table's log.

    :param application_id: its application id
        (:func:`~airflow_delta_merge.contract.identity.application_id`).
    """

    application_id: str

    def found(self) -> dict[str, Any] | None:
        """The result that the merge's last execution recorded; None as long as it isn't committed.

        :return: ``{"result": …}`` with a :class:`~airflow_delta_merge.contract.result.MergeResult` as a dict, or with
            None if its record is no longer in the log.
        :raises AirflowFailException: also when the record is of a release that this one can't read.
        :raises AirflowException: as :func:`read_log`.
        """
        return read_log(self, self._look)

    def _look(self, table: DeltaTable) -> dict[str, Any] | None:
        if table.transaction_version(self.application_id) is None:
            self._refuse_one_of_several(table)
            return None
        return (
            self._look_through(table, table.history(_COMMITS_AT_FIRST))
            or self._look_through(table, table.history())
            or {"result": None}
        )

    def _refuse_one_of_several(self, table: DeltaTable) -> None:
        """Don't wait for a task with ``merges``, each of which has an application id of its own."""
        start = json.dumps(f"{self.application_id}/")[:-1]
        if any(start in str(commit.get("userMetadata")) for commit in table.history(_COMMITS_WHILE_WAITING)):
            raise AirflowFailException(
                f"The awaited task has committed one of its several merges into {self.path}. The log doesn't say how "
                "many these are. Wait for the task, without path, or for the table, by DeltaTableSensor."
            )

    def _look_through(self, table: DeltaTable, commits: list[dict[str, Any]]) -> dict[str, Any] | None:
        quoted = json.dumps(self.application_id)
        for commit in commits:
            text = commit.get("userMetadata")
            if not isinstance(text, str) or quoted not in text:
                continue  # also skips releases whose records this one can't read
            try:
                record = CommitRecord.from_user_metadata(text)
            except MergeResultError as error:
                raise AirflowFailException(f"What the merge recorded in {self.path} can't be read: {error}") from error
            if record is not None and record.identity.application_id == self.application_id:
                version = self._version_of(table, record, commit["version"])
                return {"result": record.result_of(version).to_dict()}
        return None

    def _version_of(self, table: DeltaTable, record: CommitRecord, highest: int) -> int:
        """The version of a record's commit.

        :param highest: what ``deltalake`` takes for it, which skips later commits that say nothing of themselves.
        """
        for version in range(highest, -1, -1):
            data = log_reader.commit_data(table.table_uri, self.options(), version)
            if data is not None and read_commit(version, data).record == record:
                return version
        return highest


def commits_after(table: StoredTable, version: int | None) -> tuple[int, list[str]] | None:
    """The version that a table has, and the operations of the commits after another one, the newest first.

    A table whose version is lower was made anew, so all its commits are new ones. Commits that the log no longer has
    count as ``unknown``, as do those beyond :data:`MOST_COMMITS`.

    :param version: the other version; with None there are no operations.
    :return: None when there is no table.
    :raises AirflowException: as :func:`read_log`.
    """

    def look(table: DeltaTable) -> tuple[int, list[str]]:
        now = table.version()
        if version is None or version == now:
            return now, []
        number = now - version if now > version else now + 1
        commits = table.history(min(number, MOST_COMMITS))
        operations = [str(commit.get("operation", UNKNOWN)) for commit in commits]
        lost = [UNKNOWN] if len(commits) < number else []
        return now, list(dict.fromkeys(operations + lost))

    return read_log(table, look)


def read_log(table: StoredTable, look: Callable[[DeltaTable], _T | None]) -> _T | None:
    """Read a table's log; None if there is no table.

    :raises AirflowFailException: when waiting won't help: ``deltalake`` is missing or can't read such a table.
    :raises AirflowException: when the log can't be read after several attempts, or the connection can't be used.
    """
    try:
        return log_reader.read_log(table.path, table.options(), look)
    except UnreadableTableError as error:
        raise AirflowFailException(str(error)) from error
    except (TableLogError, StoreAccessError) as error:
        raise AirflowException(str(error)) from error


def _last_update(table: DeltaTable) -> int:
    """When the newest commit was made of those that say so, as most writers' do: milliseconds since 1970; 0 if none."""
    for count in (1, _COMMITS_AT_FIRST):
        for commit in table.history(count):
            if isinstance(commit.get("timestamp"), int):
                return int(commit["timestamp"])
    return 0


def moment(text: str) -> datetime:
    """A moment given as ISO 8601 text, in UTC if it names no zone.

    :raises ValueError: when the text is no moment.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"updated_since is {text!r}, which is no moment like 2026-01-31T06:00:00+00:00.") from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
