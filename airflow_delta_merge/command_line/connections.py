"""Airflow's connections for the command line. Importing this module requires Airflow."""

from __future__ import annotations

from airflow_delta_merge.connections.fields import existing_connection
from airflow_delta_merge.connections.spark import CONNECTION_TYPE, ConnectionSettings
from airflow_delta_merge.connections.stores import StoreConnections
from airflow_delta_merge.exceptions import StoreConnectionError

#: Which store a connection of a type is for.
_STORES = {
    "aws": "aws_conn_id",
    "wasb": "azure_conn_id",
    "adls": "azure_conn_id",
    "google_cloud_platform": "gcp_conn_id",
}


def storage_options_of(conn_id: str) -> dict[str, str]:
    """Storage options for ``deltalake``, from a connection to a store or from a merge's connection that names one.

    :raises DeltaMergeError: when there is no such connection, or it can't be used.
    """
    connection = existing_connection(conn_id, StoreConnectionError, "Create it, or correct --conn-id.")
    if connection.conn_type in (CONNECTION_TYPE, "spark"):
        return ConnectionSettings.of(connection).stores.deltalake_options()
    if connection.conn_type not in _STORES:
        known = ", ".join([*_STORES, CONNECTION_TYPE, "spark"])
        raise StoreConnectionError(
            f"The connection {conn_id!r} has type {connection.conn_type!r}, which is not for a store. Use one of: "
            f"{known}."
        )
    return StoreConnections(**{_STORES[connection.conn_type]: conn_id}).deltalake_options()
