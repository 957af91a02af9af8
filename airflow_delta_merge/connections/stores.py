"""The Airflow connections that a merge, a sensor or a watcher uses for object stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_delta_merge.connections.azure import AzureAccess
from airflow_delta_merge.connections.google import GoogleAccess
from airflow_delta_merge.connections.s3 import S3Access


@dataclass(frozen=True, kw_only=True)
class StoreConnections:
    """The names of connections. Without one, a store uses properties, options and the machine's credentials.

    Connections are read at each use, so secrets stay in Airflow.

    :param aws_conn_id: a connection of type ``aws``, for S3.
    :param azure_conn_id: a connection of type ``wasb`` or ``adls``, for Azure's storage.
    :param gcp_conn_id: a connection of type ``google_cloud_platform``, for Google Cloud Storage.
    """

    aws_conn_id: str | None = None
    azure_conn_id: str | None = None
    gcp_conn_id: str | None = None

    def spark_properties(self) -> dict[str, str]:
        """Spark properties of the stores. They include secrets, so they belong only into the private properties file.

        :raises StoreAccessError: when a connection can't be used.
        """
        return {
            name: value
            for access in self._accesses(assumes_role=True)
            for name, value in access.spark_properties().items()
        }

    def deltalake_options(self) -> dict[str, str]:
        """Storage options for ``deltalake``.

        :raises StoreAccessError: when a connection can't be used.
        """
        return {name: value for access in self._accesses() for name, value in access.storage_options().items()}

    def _accesses(self, *, assumes_role: bool = False) -> Iterator[S3Access | AzureAccess | GoogleAccess]:
        if self.aws_conn_id is not None:
            yield S3Access.of(self.aws_conn_id, assumes_role=assumes_role)
        if self.azure_conn_id is not None:
            yield AzureAccess.of(self.azure_conn_id)
        if self.gcp_conn_id is not None:
            yield GoogleAccess.of(self.gcp_conn_id)
