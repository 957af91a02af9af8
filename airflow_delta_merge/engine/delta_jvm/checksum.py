"""What the checksum file of a table's version has, which Delta reads with the log and writes with each commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject


class VersionChecksum:
    """A version's checksum file, if there is one.

    :param snapshot: the JVM ``Snapshot`` of the version.
    :param use: whether it may be asked for what it has, which the log has too.
    """

    def __init__(self, snapshot: JavaObject, *, use: bool) -> None:
        found = snapshot.checksumOpt() if use else None
        self._checksum: JavaObject | None = found.get() if found is not None and found.isDefined() else None

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
