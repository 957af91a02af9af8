"""The trigger of a watched asset: DAGs run on the commits of a Delta table, from any writer."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from asgiref.sync import sync_to_async

from airflow_delta_merge.config.checks import is_seconds
from airflow_delta_merge.connections.secrets import holds_secrets
from airflow_delta_merge.history.awaited import StoredTable, commits_after

try:
    from airflow.triggers.base import BaseEventTrigger, TriggerEvent
except ImportError as error:
    raise ImportError(
        "Watching assets needs Airflow 3. To wait for commits in Airflow 2, use DeltaTableSensor."
    ) from error

#: Operations that don't change a table's rows.
MAINTENANCE = ("OPTIMIZE", "VACUUM START", "VACUUM END")
# The known version of a table that doesn't exist yet: version 0 will be its first.
_BEFORE_THE_FIRST = -1


class DeltaCommitTrigger(BaseEventTrigger):
    """Fires when a Delta table has new commits, for the watcher of an asset.

    The event's payload has the ``path``, the table's current ``version``, the ``previous_version`` and the
    ``operations`` of the commits since then. One check makes one event, regardless of the number of commits.

    Reported versions are stored in Airflow's asset state store. At its first start the trigger begins with the current
    version; after a restart it continues where it was. A version is stored one check after its event, so a triggerer
    that dies loses no event, but may report the same versions twice. Before Airflow 3.3 there is no such store, and
    commits made while no triggerer runs are missed.

    If the log can't be read, the trigger logs a warning and checks again later. Needs the extra ``deltalake`` in the
    triggerer.

    :param path: the table's folder or URI.
    :param storage_options: access to its storage, by the names of ``deltalake``, without secrets: Airflow stores
        watchers in plain text. Set secrets in the triggerer's environment (``AWS_SECRET_ACCESS_KEY`` …).
    :param aws_conn_id: for a table in S3: a connection of type ``aws``, which the triggerer reads at each check;
        ``storage_options`` take precedence.
    :param azure_conn_id: the same for a table in Azure's storage: a connection of type ``wasb`` or ``adls``.
    :param gcp_conn_id: the same for a table in Google Cloud Storage: one of type ``google_cloud_platform``.
    :param poke_interval: seconds between two checks.
    :param ignore_operations: operations in the table's history whose commits are ignored; by default those that don't
        change rows.
    :raises ValueError: for a secret in ``storage_options``, and for values of other types.
    """

    def __init__(
        self,
        *,
        path: str,
        storage_options: Mapping[str, str] | None = None,
        aws_conn_id: str | None = None,
        azure_conn_id: str | None = None,
        gcp_conn_id: str | None = None,
        poke_interval: float = 60.0,
        ignore_operations: Sequence[str] = MAINTENANCE,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        connections = {"aws_conn_id": aws_conn_id, "azure_conn_id": azure_conn_id, "gcp_conn_id": gcp_conn_id}
        ignored = [ignore_operations] if isinstance(ignore_operations, str) else ignore_operations
        _check(path, storage_options, connections, poke_interval, ignored)
        if secrets := holds_secrets(storage_options or {}):
            raise ValueError(
                f"storage_options of a watcher contain {', '.join(secrets)}, which Airflow would store in plain text "
                "with the DAG. Remove it, and set it in the triggerer's environment."
            )
        self.table = StoredTable(path=str(path), storage_options=dict(storage_options or {}), **connections)
        self.poke_interval = poke_interval
        self.ignore_operations = list(ignored)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            **self.table.to_dict(),
            "poke_interval": self.poke_interval,
            "ignore_operations": self.ignore_operations,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        known = stored = await self._stored_version()
        while True:
            if known != stored and known is not None and await self._store(known):
                stored = known
            found = await self._commits_after(known)
            if found is not None:
                version, operations = found
                if known is not None and set(operations) - set(self.ignore_operations):
                    payload = {
                        "path": self.table.path,
                        "version": version,
                        "previous_version": known,
                        "operations": operations,
                    }
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                elif version != stored and await self._store(version):
                    stored = version
                known = version
            await asyncio.sleep(self.poke_interval)

    async def _commits_after(self, known: int | None) -> tuple[int, list[str]] | None:
        """The table's version and the operations since the known one; None if the log can't be read."""
        try:
            # Not asyncio.to_thread: connections must be read in the triggerer's event loop.
            read_commits = sync_to_async(commits_after, thread_sensitive=False)
            found = await read_commits(self.table, known)
        except Exception as error:  # the trigger must go on
            self.log.warning(
                "Could not read the commits of %s, trying again in %s s: %s", self.table.path, self.poke_interval, error
            )
            return None
        return (_BEFORE_THE_FIRST, []) if found is None else found

    @property
    def _key(self) -> str:
        """The key in the asset's state store, by table, since an asset may have several watchers."""
        return f"delta_commit_{hashlib.sha256(self.table.path.encode()).hexdigest()[:16]}"

    async def _stored_version(self) -> int | None:
        store = getattr(self, "asset_state_store", None)
        while store is not None:
            try:
                stored = await store.aget(self._key)
                return stored if isinstance(stored, int) else None
            except ValueError as error:
                self.log.warning(
                    "Airflow keeps no state for the watcher of %s, so it misses commits made while it is down: %s",
                    self.table.path,
                    error,
                )
                self.asset_state_store = store = None
            except Exception as error:  # starting from the current version would lose commits
                self.log.warning(
                    "Could not read the last reported version of %s, trying again in %s s: %s",
                    self.table.path,
                    self.poke_interval,
                    error,
                )
                await asyncio.sleep(self.poke_interval)
        return None

    async def _store(self, version: int) -> bool:
        store = getattr(self, "asset_state_store", None)
        if store is None:
            return True
        try:
            await store.aset(self._key, version)
        except Exception as error:
            self.log.warning(
                "Could not store version %s of %s, trying again at the next check: %s", version, self.table.path, error
            )
            return False
        return True


def _check(
    path: object,
    storage_options: object,
    connections: Mapping[str, object],
    poke_interval: object,
    ignored: object,
) -> None:
    """Check arguments whose faults would show only in the triggerer's log."""
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip() or "{{" in str(path):
        raise ValueError(f"path of a watcher must be a table's folder or URI, without templates, got {path!r:.80}.")
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ValueError("storage_options of a watcher must be a dict of names and values.")
    for name, conn_id in connections.items():
        if conn_id is not None and (not isinstance(conn_id, str) or "{{" in conn_id):
            raise ValueError(f"{name} of a watcher must name a connection, without templates, got {conn_id!r:.80}.")
    if not is_seconds(poke_interval) or not poke_interval:
        raise ValueError(f"poke_interval of a watcher must be a number of seconds above 0, got {poke_interval!r:.80}.")
    if not isinstance(ignored, Collection) or not all(isinstance(operation, str) for operation in ignored):
        raise ValueError(f"ignore_operations of a watcher must be a list of operations, got {ignored!r:.80}.")
