"""The table's metadata as a transaction sees it, and its settings for columns and their statistics."""

from __future__ import annotations

import json
from typing import Any

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject

_PREFIX_OF_TABLE, _PREFIX_OF_SESSION = (
    "delta.dataSkippingStringPrefixLength",
    "spark.databricks.io.skipping.stringPrefixLength",
)


def metadata_of(transaction: JavaObject) -> dict[str, Any]:
    """The table's metadata in its log form."""
    metadata: dict[str, Any] = json.loads(transaction.metadata().json())["metaData"]
    return metadata


def prefix_length_of(gateway: Gateway, configuration: dict[str, str]) -> int:
    """Number of characters of a long text that Delta keeps as a bound."""
    return int(configuration.get(_PREFIX_OF_TABLE) or gateway.conf(_PREFIX_OF_SESSION))


def physical_name_of(field: dict[str, Any]) -> str:
    """A schema field's name in data files."""
    return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))


def has_collation(field: dict[str, Any]) -> bool:
    """Whether a field of a schema holds texts under a collation other than the binary one."""
    return "__COLLATIONS" in field["metadata"]
