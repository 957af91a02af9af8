"""The trigger behind a watched asset: DAGs run on the commits of a Delta table, whoever makes them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from asgiref.sync import sync_to_async

from airflow_delta_merge.connections.secrets import holds_secrets
from airflow_delta_merge.history.awaited import StoredTable, commits_after

try:
    from airflow.triggers.base import BaseEventTrigger, TriggerEvent
except ImportError as error:
    raise ImportError("Assets are watched by Airflow 3 alone; wait for commits by a DeltaTableSensor.") from error

#: Commits that leave a table's rows as they are.
MAINTENANCE = ("OPTIMIZE", "VACUUM START", "VACUUM END")
# What is known of a table that isn't there yet: version 0 will be its first.
_BEFORE_THE_FIRST = -1


class DeltaCommitTrigger(BaseEventTrigger):
    """Fires when a Delta table has new commits, for the watcher of an asset.

    The event's payload has the ``path``, the ``version`` that the table now has, the ``previous_version``, after which
    the commits are new, and their ``operations``. One look makes one event, however many commits it finds.

    What has been told is kept in Airflow's asset state store: at its first start the trigger takes the table as it is,
    after a restart it goes on where it was. A version is kept one look after its event, so that no event is lost with a
    triggerer that dies; instead, one that dies just then tells of the same versions twice. Before Airflow 3.3 there is
    no such store, and commits made while no triggerer runs are missed.

    A log that can't be read is told in the triggerer's log and looked at again. Needs the extra ``deltalake`` in the
    triggerer.

    :param path: the table's folder or URI.
    :param storage_options: access to its storage, by the names of ``deltalake``, but no secrets: Airflow keeps watchers
        as they stand in the DAG. The triggerer gets these by its environment (``AWS_SECRET_ACCESS_KEY`` …).
    :param aws_conn_id: for a table in S3: a connection of type ``aws``, which the triggerer reads at each look; what
        ``storage_options`` say goes before it.
    :param azure_conn_id: likewise for a table in Azure's storage: one of type ``wasb`` or ``adls``.
    :param gcp_conn_id: likewise for a table in Google Cloud Storage: one of type ``google_cloud_platform``.
    :param poke_interval: seconds between two looks.
    :param ignore_operations: commits that don't count, by their operation in the table's history; by default those that
        leave the rows as they are.
    :raises ValueError: for a secret in ``storage_options``.
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
        if secrets := holds_secrets(storage_options or {}):
            raise ValueError(
                f"storage_options of a watcher hold {', '.join(secrets)}, which Airflow would keep readable with the "
                "DAG: leave it out and set it in the triggerer's environment."
            )
        self.table = StoredTable(
            path=path,
            storage_options=dict(storage_options or {}),
            aws_conn_id=aws_conn_id,
            azure_conn_id=azure_conn_id,
            gcp_conn_id=gcp_conn_id,
        )
        self.poke_interval = poke_interval
        self.ignore_operations = list(ignore_operations)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            **self.table.to_dict(),
            "poke_interval": self.poke_interval,
            "ignore_operations": self.ignore_operations,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        known = kept = await self._kept_version()
        while True:
            if known != kept and known is not None and await self._keep(known):
                kept = known
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
                elif version != kept and await self._keep(version):
                    kept = version
                known = version
            await asyncio.sleep(self.poke_interval)

    async def _commits_after(self, known: int | None) -> tuple[int, list[str]] | None:
        """The table's version and what was done since the known one; None when the log can't be read."""
        try:
            # Not asyncio.to_thread: a connection must be asked for in the triggerer's loop.
            look = sync_to_async(commits_after, thread_sensitive=False)
            found = await look(self.table, known)
        except Exception as error:  # nobody else would look again
            self.log.warning("Looking for commits again in %s s: %s", self.poke_interval, error)
            return None
        return (_BEFORE_THE_FIRST, []) if found is None else found

    @property
    def _key(self) -> str:
        """An asset may have several watchers."""
        return f"delta_commit_{hashlib.sha256(self.table.path.encode()).hexdigest()[:16]}"

    async def _kept_version(self) -> int | None:
        store = getattr(self, "asset_state_store", None)
        while store is not None:
            try:
                kept = await store.aget(self._key)
                return kept if isinstance(kept, int) else None
            except ValueError as error:
                self.log.warning(
                    "Could not save which commits of %s were reported, so a restart may repeat them: %s",
                    self.table.path,
                    error,
                )
                self.asset_state_store = store = None
            except Exception as error:  # beginning anew would lose what was committed meanwhile
                self.log.warning(
                    "Reading the last announced version of %s failed, trying again in %s s: %s",
                    self.table.path,
                    self.poke_interval,
                    error,
                )
                await asyncio.sleep(self.poke_interval)
        return None

    async def _keep(self, version: int) -> bool:
        store = getattr(self, "asset_state_store", None)
        if store is None:
            return True
        try:
            await store.aset(self._key, version)
        except Exception as error:
            self.log.warning("Version %s of %s will be kept at the next look: %s", version, self.table.path, error)
            return False
        return True
