"""Databases as Airflow's own connections name them, for Spark to read from over JDBC.

Login and password travel in Spark's private properties, as the keys of object stores do: never in the merge's config,
in arguments or in the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import Connection

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.config.checks import option_text
from airflow_delta_merge.config.jdbc_access import JdbcAccess
from airflow_delta_merge.connections.fields import existing_connection
from airflow_delta_merge.connections.secrets import mask_secrets
from airflow_delta_merge.exceptions import JdbcConnectionError


@dataclass(frozen=True)
class _Kind:
    """A kind of database.

    :param driver: the driver's class.
    :param package: group and artifact of its jar.
    :param port: the port where nobody names one.
    :param url: makes the URL of an address, a database's name and a connection's extra.
    :param same_extras: what the driver knows by the name that the connection's extra has for it.
    """

    driver: str
    package: str
    port: int
    url: Callable[[str, str, Mapping[str, Any]], str]
    same_extras: tuple[str, ...] = ()


def _oracle_url(address: str, database: str, extra: Mapping[str, Any]) -> str:
    if sid := extra.get("sid"):
        return f"jdbc:oracle:thin:@{address}:{sid}"
    return f"jdbc:oracle:thin:@//{address}/{extra.get('service_name') or database}"


def _sqlserver_url(address: str, database: str, _: Mapping[str, Any]) -> str:
    quoted = database.replace("}", "}}")  # a brace would end it, and begin another property
    return f"jdbc:sqlserver://{address}" + (f";databaseName={{{quoted}}}" if database else "")


#: By the type of the Airflow connection.
_KINDS = {
    "postgres": _Kind(
        "org.postgresql.Driver",
        "org.postgresql:postgresql",
        5432,
        lambda address, database, _: f"jdbc:postgresql://{address}/{quote(database, safe='')}",
        ("sslmode", "sslrootcert", "sslcert", "sslkey"),
    ),
    "mysql": _Kind(
        "com.mysql.cj.jdbc.Driver",
        "com.mysql:mysql-connector-j",
        3306,
        lambda address, database, _: f"jdbc:mysql://{address}/{quote(database, safe='')}",
    ),
    "mssql": _Kind(
        "com.microsoft.sqlserver.jdbc.SQLServerDriver", "com.microsoft.sqlserver:mssql-jdbc", 1433, _sqlserver_url
    ),
    "oracle": _Kind("oracle.jdbc.OracleDriver", "com.oracle.database.jdbc:ojdbc11", 1521, _oracle_url),
}
_JDBC_TYPE = "jdbc"
# How the URLs of the same databases begin in a connection of the type jdbc.
_KIND_OF_URL = {
    "jdbc:postgresql:": "postgres",
    "jdbc:mysql:": "mysql",
    "jdbc:sqlserver:": "mssql",
    "jdbc:oracle:": "oracle",
}


def databases_of(merges: Sequence[MergeConfig | MergeStatement]) -> dict[str, JdbcAccess]:
    """By connection, the databases that these merges read from; Airflow masks their secrets from now on.

    :raises JdbcConnectionError: when a connection is missing, or doesn't say it.
    """
    sources = [merge.source.jdbc for merge in merges if isinstance(merge, MergeConfig)]
    return {conn_id: access_of(conn_id) for conn_id in dict.fromkeys(source.conn_id for source in sources if source)}


def access_of(conn_id: str) -> JdbcAccess:
    """How Spark reaches the database of a connection.

    :raises JdbcConnectionError: as :func:`databases_of`.
    """
    connection = existing_connection(conn_id, JdbcConnectionError, "Create it, or correct the source's conn_id.")
    url, kind = _url_and_kind(connection)
    extra = connection.extra_dejson
    same = {name: extra[name] for name in (kind.same_extras if kind else ()) if extra.get(name)}
    access = JdbcAccess(
        url=url,
        driver=extra.get("driver_class") or (kind.driver if kind else None),
        package=kind.package if kind else None,
        user=connection.login or None,
        password=connection.password or None,
        properties={name: option_text(value) for name, value in {**same, **_options(connection)}.items()},
    )
    mask_secrets(asdict(access))
    return access


def spark_properties(databases: Mapping[str, JdbcAccess]) -> dict[str, str]:
    """The same as Spark properties with secrets: for the private properties file only."""
    return {JdbcAccess.property_of(conn_id): access.to_json() for conn_id, access in databases.items()}


def _url_and_kind(connection: Connection) -> tuple[str, _Kind | None]:
    host = (connection.host or "").strip()
    if connection.conn_type == _JDBC_TYPE:
        if not host.startswith("jdbc:"):
            raise JdbcConnectionError(
                f"The connection {connection.conn_id!r} of type 'jdbc' has no JDBC URL. Set the host to one, e.g. "
                "jdbc:postgresql://db.internal:5432/shop."
            )
        return host, _KINDS.get(next((kind for start, kind in _KIND_OF_URL.items() if host.startswith(start)), ""))
    kind = _KINDS.get(connection.conn_type or "")
    if kind is None:
        raise JdbcConnectionError(
            f"The connection {connection.conn_id!r} has type {connection.conn_type!r}, which is not for a database. "
            f"Use type {', '.join(_KINDS)}, or jdbc with the URL as host."
        )
    if not host:
        raise JdbcConnectionError(f"The connection {connection.conn_id!r} has no host. Set it.")
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    address = f"{host}:{connection.port or kind.port}"
    return kind.url(address, connection.schema or "", connection.extra_dejson), kind


def _options(connection: Connection) -> Mapping[str, Any]:
    options = connection.extra_dejson.get("jdbc_options") or {}
    if not isinstance(options, Mapping):
        raise JdbcConnectionError(
            f"The connection {connection.conn_id!r} has jdbc_options that are not a JSON object. Write them "
            'like {"loginTimeout": "10"}.'
        )
    return options
