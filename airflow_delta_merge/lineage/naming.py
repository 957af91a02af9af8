"""Tables as OpenLineage names them: by namespace, which is their store, and name, which is where they lie there."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import MergeTarget
from airflow_delta_merge.identifiers import parse_multipart

#: Namespace of tables whose place is not known; in it they have the names by which Spark knows them.
NAMED_TABLES = "delta://table"


def dataset_of_uri(uri: str) -> tuple[str, str]:
    """Namespace and name of a ``delta://`` URI.

    ``delta://file/lake/day`` is ``/lake/day`` in ``file``, ``delta://s3/bucket/day`` is ``day`` in ``s3://bucket``. A
    table by name, ``delta://table/sales.day``, is ``sales.day`` in ``delta://table``.
    """
    parts = urlsplit(uri)
    store, path = parts.netloc, unquote(parts.path)
    if store == "file":
        return "file", path
    if store == "table":
        return NAMED_TABLES, ".".join(parse_multipart(path.lstrip("/")))
    authority, _, name = path.lstrip("/").partition("/")
    return f"{store}://{authority}", name or "/"


def dataset_of_path(path: str) -> tuple[str, str] | None:
    """None for a relative path, which is another one on each machine."""
    try:
        return dataset_of_uri(delta_asset(MergeTarget(path=path)).uri)
    except ValueError:
        return None


# The URLs of databases: their scheme in OpenLineage, the default port, and the schema of a name without one.
_DATABASES = (
    (r"jdbc:postgresql://([^/:]+)(?::(\d+))?/([^?]*)", "postgres", "5432", "public"),
    (r"jdbc:mysql://([^/:]+)(?::(\d+))?/([^?]*)", "mysql", "3306", ""),
    (r"jdbc:sqlserver://([^;:]+)(?::(\d+))?.*?;databaseName=\{?([^};]+)", "mssql", "1433", "dbo"),
    (r"jdbc:oracle:thin:@(?://)?([^/:]+)(?::(\d+))?[/:]([^?]+)", "oracle", "1521", ""),
)


def dataset_of_jdbc(url: str, table: str) -> tuple[str, str] | None:
    """Namespace and name of a database's table: ``shop.public.orders`` in ``postgres://db:5432``.

    :param url: the JDBC URL of the database.
    :param table: the table as a source names it.
    :return: None for a URL of another kind.
    """
    parts = [part.strip('"`[]') for part in re.findall(r'"[^"]*"|`[^`]*`|\[[^\]]*\]|[^.]+', table)]
    for pattern, scheme, port, schema in _DATABASES:
        if found := re.match(pattern, url):
            parts = [schema, *parts] if schema and len(parts) == 1 else parts
            return f"{scheme}://{found[1]}:{found[2] or port}", ".".join([unquote(found[3]), *parts])
    return None
