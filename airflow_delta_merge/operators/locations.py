"""Converts Airflow's own objects to locations of files and tables: paths in object stores, and assets."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from airflow.providers.common.compat.sdk import Asset, ObjectStoragePath

from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import quote_name

# Schemes that have another name in Spark.
_SPARK_SCHEMES = {"s3": "s3a"}
# Stores whose paths always begin with a bucket or container, so that an asset's URI determines the path.
_WITH_AUTHORITY = ("s3", "gs", "abfss", "wasbs")


def spark_path(path: ObjectStoragePath) -> str:
    """The path for Spark, without the Airflow connection: Spark uses its own credentials."""
    text, conn_id = str(path), path.conn_id
    if conn_id:
        text = text.replace(f"://{conn_id}@", "://", 1)
    return _spark_uri(text)


def as_target(value: Any) -> Any:
    """A Delta table's asset as target; anything else unchanged.

    :raises MergeConfigError: for another asset.
    """
    return _table_of(value) if isinstance(value, Asset) else value


def as_source(value: Any) -> Any:
    """An asset of a Delta table or of files as source; lists may have assets of files."""
    if isinstance(value, Asset):
        if not _is_table(value):
            return _files_of(value)
        table = _table_of(value)
        return {**table, "format": "delta"} if "path" in table else table
    if isinstance(value, (list, tuple)):
        return [_files_of(each) if isinstance(each, Asset) else each for each in value]
    return value


def _is_table(asset: Asset) -> bool:
    return asset.uri.startswith("delta://")


def _table_of(asset: Asset) -> dict[str, str]:
    """The table for which :func:`~airflow_delta_merge.assets.delta.delta_asset` made the asset."""
    if not _is_table(asset):
        raise MergeConfigError(
            f"{asset.uri} is not the asset of a Delta table. Make it with delta_asset, or use the path instead."
        )
    parts = urlsplit(asset.uri)
    if parts.netloc == "table":
        return {"table": quote_name(unquote(parts.path).lstrip("/"))}
    path = unquote(parts.path)
    if parts.netloc == "file":
        return {"path": path}
    if parts.netloc not in _WITH_AUTHORITY:
        raise MergeConfigError(f"It is not clear whether {asset.uri} includes a server. Use the path instead.")
    return {"path": _spark_uri(f"{parts.netloc}:/{path}")}


def _files_of(asset: Asset) -> str:
    if _is_table(asset):
        raise MergeConfigError(f"{asset.uri} is a Delta table. Use it alone as source, not in a list of files.")
    if "://" not in asset.uri:
        raise MergeConfigError(f"The asset {asset.uri} has no location. Use the path, or an asset with a URI.")
    return _spark_uri(asset.uri)


def _spark_uri(uri: str) -> str:
    scheme, found, rest = uri.partition("://")
    if not found:
        return uri
    if scheme == "file":
        return rest if rest.startswith("/") else f"/{rest}"
    return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}"
