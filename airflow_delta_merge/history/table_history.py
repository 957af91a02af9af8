"""The commits of a Delta table in pages, newest first.

A process opens a log once and then only updates it, and reads each commit once. ``deltalake``'s own ``history()`` isn't
used: it skips commits without commit info, and then assigns wrong versions to the others.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_delta_merge.exceptions import TableLogError
from airflow_delta_merge.history.commit_files import PartitionChange, changes_by_partition, read_commit
from airflow_delta_merge.history.log_reader import commit_data, commit_file, open_table, read_log
from airflow_delta_merge.history.records import Commit, Table

if TYPE_CHECKING:
    from deltalake import DeltaTable

_T = TypeVar("_T")

#: Commits on a page, unless another number is asked for.
PAGE_SIZE = 20
_MOST_LOGS = 16
_MOST_COMMITS_KEPT = 5_000
_REQUESTS_AT_ONCE = 8
# A user is waiting: fail soon if a store doesn't answer, while deltalake would retry for minutes.
_OF_STORES = {"max_retries": "2", "retry_timeout": "10s", "connect_timeout": "5s", "timeout": "30s"}
_PAUSES_SECONDS = (0.2, 0.5)


@dataclass(frozen=True, kw_only=True)
class HistoryPage:
    """Some commits of a table.

    :param table: the table as it is now.
    :param commits: the newest first, without gaps.
    :param older: the version at which the next page begins; None when there is none.
    :param cleaned_before: the oldest version that the log still has, when older ones were cleaned up.
    """

    table: Table
    commits: tuple[Commit, ...]
    older: int | None = None
    cleaned_before: int | None = None


@dataclass(frozen=True, kw_only=True)
class CommitDetails:
    """One commit with its files.

    :param table: the table as it is now.
    :param commit: the commit.
    :param partitions: what it did to files, by partition.
    """

    table: Table
    commit: Commit
    partitions: tuple[PartitionChange, ...]


def read_history(
    path: str, storage_options: Mapping[str, str] | None = None, *, limit: int = PAGE_SIZE, before: int | None = None
) -> HistoryPage:
    """A page of a table's commits.

    :param path: the table's folder or URI.
    :param storage_options: access to its storage, by the names of ``deltalake``.
    :param limit: maximum number of commits.
    :param before: only commits of lower versions; by default the newest.
    :raises TableLogError: with a sentence, when there is no table, or its log or its storage can't be read.
    """
    return _log(path, storage_options).look(lambda log, table: log.page(table, limit, before))


def read_details(path: str, version: int, storage_options: Mapping[str, str] | None = None) -> CommitDetails:
    """One commit of a table with its files.

    :param version: the version that the commit made.
    :raises TableLogError: as :func:`read_history`, and when the log has no such commit (any more).
    """
    return _log(path, storage_options).look(lambda log, table: log.details(table, version))


class _Log:
    """A table's log, kept open."""

    def __init__(self, path: str, storage_options: Mapping[str, str]) -> None:
        self._path = path
        self._options = storage_options
        self._lock = threading.Lock()
        self._table: DeltaTable | None = None
        self._newest: tuple[Any, ...] | None = None
        self._table_id: str | None = None
        self._commits: OrderedDict[int, Commit] = OrderedDict()

    def look(self, look: Callable[[_Log, Table], _T]) -> _T:
        with self._lock:
            try:
                found = read_log(
                    self._path,
                    self._options,
                    lambda opened: look(self, self._describe(opened)),
                    open_table=lambda *_: self._opened(),
                    pauses=_PAUSES_SECONDS,
                )
            except OSError as error:
                raise TableLogError(f"The storage of {self._path} can't be read: {_said(error)}") from error
        if found is None:
            raise TableLogError(
                f"There is no Delta table at {self._path}: give the folder or the URI that holds its _delta_log."
            )
        return found

    def page(self, table: Table, limit: int, before: int | None) -> HistoryPage:
        end = table.version + 1 if before is None else max(0, min(before, table.version + 1))
        versions = range(end - 1, max(-1, end - 1 - limit), -1)
        commits = tuple(self._commits_of(versions))
        if len(commits) < len(versions):
            return HistoryPage(table=table, commits=commits, cleaned_before=end - len(commits))
        return HistoryPage(table=table, commits=commits, older=versions[-1] if versions and versions[-1] > 0 else None)

    def details(self, table: Table, version: int) -> CommitDetails:
        data = self._read(version)
        if data is None:
            why = "it was cleaned up" if version < table.version else f"the newest is {table.version}"
            raise TableLogError(f"The log of {self._path} has no commit of version {version}: {why}.")
        return CommitDetails(
            table=table, commit=read_commit(version, data), partitions=tuple(changes_by_partition(data))
        )

    def _commits_of(self, versions: Sequence[int]) -> Iterator[Commit]:
        """Up to the first that isn't there."""
        if "://" not in self._path:
            found = [*takewhile(_is_there, map(self._commit, versions))]
        else:  # each is a request
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
                found = [*takewhile(_is_there, pool.map(self._commit, versions))]
        return (commit for commit in found if commit is not None)

    def _commit(self, version: int) -> Commit | None:
        found = self._commits.get(version)
        if found is None:
            data = self._read(version)
            if data is None:
                return None
            found = read_commit(version, data)
            while len(self._commits) >= _MOST_COMMITS_KEPT:
                self._commits.popitem(last=False)
            self._commits[version] = found
        return found

    def _read(self, version: int) -> bytes | None:
        assert self._table is not None
        return None if version < 0 else commit_data(self._table.table_uri, self._options, version)

    def _opened(self) -> DeltaTable | None:
        """The table, updated, or opened again if it was replaced."""
        known = self._table
        try:
            if known is not None and self._newest is not None and self._state_of(known.version()) == self._newest:
                known.update_incremental()
            else:
                known = open_table(self._path, self._options)
        except BaseException:
            self._table = None
            raise
        self._table = known
        if known is not None:
            self._remember(known)
        return known

    def _remember(self, table: DeltaTable) -> None:
        self._newest = self._state_of(table.version())
        table_id = str(table.metadata().id)
        if table_id != self._table_id:  # dropped and made anew
            self._commits.clear()
            self._table_id = table_id

    def _state_of(self, version: int) -> tuple[Any, ...] | None:
        """Identifies a commit's file, to detect that it was replaced; None if it doesn't exist."""
        from deltalake.fs import DeltaStorageHandler

        assert self._table is not None
        files = DeltaStorageHandler(self._table.table_uri, dict(self._options) or None)
        (info,) = files.get_file_info([commit_file(version)])
        return (version, info.size, info.mtime_ns) if info.is_file else None

    def _describe(self, opened: DeltaTable) -> Table:
        metadata, protocol = opened.metadata(), opened.protocol()
        return Table(
            path=self._path,
            version=opened.version(),
            name=metadata.name,
            properties={str(name): str(value) for name, value in metadata.configuration.items()},
            partition_columns=tuple(metadata.partition_columns),
            features=frozenset(map(str, [*(protocol.writer_features or ()), *(protocol.reader_features or ())])),
        )


_LOGS: OrderedDict[tuple[str, frozenset[tuple[str, str]]], _Log] = OrderedDict()
_LOGS_LOCK = threading.Lock()


def _log(path: str, storage_options: Mapping[str, str] | None) -> _Log:
    of_stores = _OF_STORES if "://" in path else {}
    options = {**of_stores, **(storage_options or {})}
    with _LOGS_LOCK:
        log = _LOGS.setdefault((path, frozenset(options.items())), _Log(path, options))
        _LOGS.move_to_end((path, frozenset(options.items())))
        if len(_LOGS) > _MOST_LOGS:
            _LOGS.popitem(last=False)
    return log


def _is_there(commit: Commit | None) -> bool:
    return commit is not None


def _said(error: OSError) -> str:
    """First and last cause of a store's error, without its colours and its URLs, which may contain keys."""
    lines = [re.sub(r"\x1b\[\d*m|↳", "", line).strip() for line in str(error).splitlines()]
    causes = [line for line in lines if line and "://" not in line]
    ends = list(dict.fromkeys([*causes[:1], *causes[-1:]]))
    return ": ".join(ends).rstrip(".") + "." if ends else "it doesn't answer."
