"""A table's data files that are not on this machine: fetched to it, and put back."""

from __future__ import annotations

import logging
from pathlib import PurePosixPath

from py4j.protocol import Py4JJavaError

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject

_log = logging.getLogger(__name__)


class StoreFiles:
    """Whole files of the file system that a table lies in, by Hadoop: with the merge's credentials and settings.

    :param folder: the table's folder, a Hadoop path.
    :param hadoop: Hadoop's settings for the table.
    """

    def __init__(self, gateway: Gateway, folder: JavaObject, hadoop: JavaObject) -> None:
        self._gateway = gateway
        self._address = folder.toUri()
        self._files = folder.getFileSystem(hadoop)
        self._hadoop = hadoop

    def fetch(self, path: str, to: str) -> None:
        """Fetch a file.

        :param path: its path in the file system, without scheme and encoding.
        :param to: a path on this machine.
        """
        self._copy(self._files, self._there(path), self._here(to), False, self._hadoop)

    def put(self, local: str, path: str) -> tuple[int, int]:
        """Write a file of this machine as Spark writes data files.

        Not by ``copyFromLocalFile``, for which S3's file system has requests of its own that not all servers answer.

        :return: its size in bytes, and when it was written, in milliseconds since 1970.
        """
        self._copy(self._here(local), self._files, self._there(path), False, self._hadoop)
        status = self._files.getFileStatus(self._there(path))
        return int(status.getLen()), int(status.getModificationTime())

    def delete(self, path: str) -> None:
        """Delete a file, if there is one. If that fails it stays for ``VACUUM``."""
        try:
            self._files.delete(self._there(path), False)
        except Py4JJavaError as error:
            _log.warning("%s could not be deleted: %s", PurePosixPath(path).name, error.java_exception)

    @property
    def _copy(self) -> JavaObject:
        return self._gateway.java_class("org.apache.hadoop.fs.FileUtil").copy

    def _there(self, path: str) -> JavaObject:
        address = self._address
        return self._gateway.java_class("org.apache.hadoop.fs.Path")(address.getScheme(), address.getAuthority(), path)

    def _here(self, path: str) -> JavaObject:
        return self._gateway.java_class("java.io.File")(path)
