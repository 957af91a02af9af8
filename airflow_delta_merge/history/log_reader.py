"""Opens a Delta table's log without Spark, with ``deltalake``, for sensors, triggers and the history.

It doesn't import Airflow, so that commands start quickly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from airflow_delta_merge.exceptions import TableLogError, UnreadableTableError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_T = TypeVar("_T")

# A listing during another writer's commit may miss a file in the middle, which deltalake reports as a broken log.
PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0)
_INSTALL = "Install it where this runs: pip install 'airflow-provider-delta-merge[deltalake]'."


def open_table(path: str, storage_options: Mapping[str, str]) -> DeltaTable | None:
    """The table as it is now; None when there is none."""
    from deltalake import DeltaTable

    options = dict(storage_options) or None
    return DeltaTable(path, storage_options=options) if DeltaTable.is_deltatable(path, options) else None


def commit_data(uri: str, storage_options: Mapping[str, str], version: int) -> bytes | None:
    """The file of a commit; None when the log has none, e.g. because it was cleaned up.

    :param uri: the table's, as ``deltalake`` writes it.
    """
    from deltalake.fs import DeltaStorageHandler

    try:
        with DeltaStorageHandler(uri, dict(storage_options) or None).open_input_file(commit_file(version)) as file:
            data: bytes = file.read()
    except FileNotFoundError:
        return None
    return data


def commit_file(version: int) -> str:
    """The path of a commit's file in its table's folder."""
    return f"_delta_log/{version:020}.json"


def read_log(
    path: str,
    storage_options: Mapping[str, str],
    look: Callable[[DeltaTable], _T | None],
    *,
    open_table: Callable[[str, Mapping[str, str]], DeltaTable | None] = open_table,
    pauses: Sequence[float] = PAUSES_SECONDS,
) -> _T | None:
    """Read a table's log; None if there is no table.

    :param path: the table's folder or URI.
    :param storage_options: access to its storage, by the names of ``deltalake``.
    :param look: gets the opened table.
    :param open_table: opens the table; by default it is opened again at each attempt.
    :param pauses: seconds between attempts while the log seems broken.
    :raises UnreadableTableError: when waiting won't help: ``deltalake`` is missing or can't read such a table.
    :raises TableLogError: when the log can't be read after several attempts.
    :raises OSError: when the storage can't be reached.
    """
    try:
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise UnreadableTableError(f"The log of {path} is read by deltalake, which is missing. {_INSTALL}") from error
    for pause in pauses:
        try:
            return _read_log(path, storage_options, look, open_table)
        except DeltaError:
            time.sleep(pause)
    try:
        return _read_log(path, storage_options, look, open_table)
    except DeltaError as error:
        (what, *_) = str(error).splitlines()  # the rest are frames without names
        raise TableLogError(
            f"The log of {path} can't be read, tried {len(pauses) + 1} times: {what[:300]} Is the storage "
            "reachable with these storage_options, and can Spark read the table?"
        ) from error


def _read_log(
    path: str,
    storage_options: Mapping[str, str],
    look: Callable[[DeltaTable], _T | None],
    open_table: Callable[[str, Mapping[str, str]], DeltaTable | None],
) -> _T | None:
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    try:
        table = open_table(path, storage_options)
        return None if table is None else look(table)
    except TableNotFoundError:  # dropped since
        return None
    except DeltaError as error:
        if not isinstance(error, DeltaProtocolError) and "Unsupported" not in str(error):
            raise
        raise UnreadableTableError(
            f"This release of deltalake can't read {path}: {error}. Upgrade it, or wait for a merge's task, by "
            "DeltaMergeSensor without path."
        ) from error
