"""What the checksum file of a table's version has, which Delta reads with the log and writes with each commit."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject


class VersionChecksum:
    """The checksum file of the version that a transaction reads, if there is one; it is asked for when it is needed.

    :param transaction: Delta's transaction.
    :param use: whether it may be asked for what it has, which the log has too.
    """

    def __init__(self, transaction: JavaObject, *, use: bool) -> None:
        self._transaction = transaction
        self._use = use

    @cached_property
    def _checksum(self) -> JavaObject | None:
        if not self._use:
            return None
        checksum = self._transaction.snapshot().checksumOpt()
        return checksum.get() if checksum.isDefined() else None

    @property
    def table_size(self) -> tuple[int, int] | None:
        """Files and bytes of the table; None without a checksum file."""
        if self._checksum is None:
            return None
        return int(self._checksum.numFiles()), int(self._checksum.tableSizeBytes())

    def listed(self, name: str) -> JavaObject | None:
        """A JVM sequence of actions that the file has, if they were few enough to be put there.

        :param name: ``allFiles`` or ``setTransactions``.
        """
        if self._checksum is None:
            return None
        listed = getattr(self._checksum, name)()
        return listed.get() if listed.isDefined() else None
