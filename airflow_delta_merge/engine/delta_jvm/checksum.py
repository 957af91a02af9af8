"""The checksum file of a table's version, which Delta reads with the log and writes with each commit.

Other writers write no such files. If another writer replaces a version whose commit was rolled back, the old commit's
checksum file is still there, and Delta derives later checksum files from it. So a file is used only if it names the
transaction whose commit is in the log, and so do the files of earlier versions, back to one that Delta computed from
the log's state: because there was no earlier file, or at a checkpoint, where Delta compares them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from airflow_delta_merge.engine.delta_jvm.commit_history import commit_info
from airflow_delta_merge.engine.delta_jvm.gateway import scala_option

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject

#: Delta's default number of commits per checkpoint. Checking more commits takes longer than the file saves.
_MOST_COMMITS = 10

#: For each log, the last version whose checksum file was verified, and its transaction.
_proven: dict[str, tuple[int, str]] = {}


class VersionChecksum:
    """The checksum file of the version that a transaction reads, if there is one; loaded when it is needed.

    :param use: whether to use the file; the log has the same information.
    """

    def __init__(self, gateway: Gateway, transaction: JavaObject, *, use: bool) -> None:
        self._gateway = gateway
        self._transaction = transaction
        self._use = use

    @cached_property
    def _checksum(self) -> JavaObject | None:
        if not self._use:
            return None
        snapshot = self._transaction.snapshot()
        checksum = scala_option(snapshot.checksumOpt())
        return checksum if checksum is not None and self._is_of_log(checksum, snapshot) else None

    def _is_of_log(self, checksum: JavaObject, snapshot: JavaObject) -> bool:
        version, log = int(snapshot.version()), snapshot.deltaLog()
        # Not by the number of files since the checkpoint: a compacted one stands for several commits.
        before = min(version - 1, int(snapshot.logSegment().checkpointProvider().version()))
        path = str(log.logPath().toString())
        newest = transaction = self._transaction_of(checksum, snapshot, version)
        while transaction is not None and _proven.get(path) != (version, transaction):
            version -= 1
            if version == before:
                break
            earlier = scala_option(log.readChecksum(version, self._gateway.none))
            if earlier is None:
                break
            if int(snapshot.version()) - version == _MOST_COMMITS:
                return False
            transaction = self._transaction_of(earlier, snapshot, version)
        if newest is None or transaction is None:
            return False
        _proven[path] = int(snapshot.version()), newest
        return True

    def _transaction_of(self, checksum: JavaObject, snapshot: JavaObject, version: int) -> str | None:
        """The transaction that a version's checksum file names; None if the log has another one."""
        named = scala_option(checksum.txnId())
        if named is None:
            return None
        try:
            info = commit_info(self._gateway, snapshot, version)
        except Py4JJavaError:  # cleaned up after a checkpoint, or not as Delta writes it
            return None
        return str(named) if info is not None and info.txnId().contains(named) else None

    @property
    def table_size(self) -> tuple[int, int] | None:
        """Files and bytes of the table; None without a checksum file."""
        if self._checksum is None:
            return None
        return int(self._checksum.numFiles()), int(self._checksum.tableSizeBytes())

    def listed(self, name: str) -> JavaObject | None:
        """A JVM sequence of actions from the file; None if they were too many to include.

        :param name: ``allFiles`` or ``setTransactions``.
        """
        return None if self._checksum is None else scala_option(getattr(self._checksum, name)())
