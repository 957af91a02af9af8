"""What a transaction asks of copies of its table's data files, and the actions that make them part of the table."""

from __future__ import annotations

import importlib.util
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
from airflow_delta_merge.engine.old_rows.arrow_statistics import StatisticsPlan
from airflow_delta_merge.engine.old_rows.parquet_copy import CODECS

_PREFIX_OF_TABLE, _PREFIX_OF_SESSION = (
    "delta.dataSkippingStringPrefixLength",
    "spark.databricks.io.skipping.stringPrefixLength",
)
_CODEC_OF_TABLE, _CODEC_OF_SESSION = "delta.parquet.compression.codec", "spark.sql.parquet.compression.codec"
_COMPACTION_OF_TABLE, _COMPACTION_OF_SESSION = (
    "delta.autoOptimize.autoCompact",
    "spark.databricks.delta.autoCompact.enabled",
)
#: Types, as Spark's schemas name them, that Arrow writes as it reads them.
_TYPES = frozenset(
    [
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "string",
    ]
)
#: Properties of tables whose files are more than Parquet with Delta's statistics.
_OTHER_WRITERS = (
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    "delta.enableTypeWidening",
)
#: Settings of Hadoop by which Parquet's writer does what Arrow is not told of.
_OTHER_FILES = ("parquet.crypto.factory.class", "parquet.bloom.filter.enabled")
#: Where there are change files, Delta writes their columns into data files, too.
_OF_CHANGE_DATA = ("_change_type", "__is_cdc")
#: The first that can write small decimals as integers.
_LEAST_ARROW = 18


@dataclass(frozen=True)
class CopyTerms:
    """How copies of data files are made.

    :param folder: where the table lies.
    :param codec: one of :data:`~airflow_delta_merge.engine.old_rows.parquet_copy.CODECS`.
    :param columns: physical names of the columns that are in each file.
    :param may_have: those of further ones, whose values the log has, or which are NULL in files of the table.
    :param statistics: what is told of their rows.
    """

    folder: Path
    codec: str
    columns: tuple[str, ...]
    may_have: frozenset[str]
    statistics: StatisticsPlan

    def path_of(self, add: dict[str, Any]) -> Path | None:
        """Where a file is; None if it isn't below the table's folder, or has marked rows."""
        path = add["path"]
        if "deletionVector" in add or path.startswith("/") or ":" in path.split("/")[0]:
            return None
        return self.folder / unquote(path)

    def path_of_copy(self, path: str, number: int) -> str:
        """Where a file's copy goes: beside it, as both are of one partition.

        :param path: the file's, as the log has it.
        :param number: the copy's, from 0.
        """
        folder, slash, _ = path.rpartition("/")
        _, _, extension = CODECS[self.codec]
        return f"{folder}{slash}part-{number:05d}-{uuid.uuid4()}.c000{extension}.parquet"


def reason_against_copies(gateway: Gateway, transaction: JavaObject) -> str | None:
    """Why data files of the table must be written by Spark; None if Arrow can copy them.

    :param transaction: Delta's, which has nothing written yet.
    """
    return next(_reasons(gateway, transaction), None)


def _reasons(gateway: Gateway, transaction: JavaObject) -> Iterator[str]:
    metadata = metadata_of(transaction)
    if not gateway.session.sparkContext().isLocal():
        yield "the executors are other processes"
    if not _has_arrow():
        yield f"Python has no pyarrow of version {_LEAST_ARROW} or later"
    if str(transaction.deltaLog().dataPath().toUri().getScheme() or "file") != "file":
        yield "the table is not in a file system of this machine"
    if transaction.newMetadata().isDefined():
        yield "the merge changes the table's schema"
    yield from _reasons_of_table(metadata)
    yield from _reasons_of_writer(gateway, transaction, metadata["configuration"])


def _reasons_of_table(metadata: dict[str, Any]) -> Iterator[str]:
    configuration = metadata["configuration"]
    if configuration.get("delta.columnMapping.mode") == "id":
        yield "columns are known by ids"
    if any(configuration.get(name, "false").lower() == "true" for name in _OTHER_WRITERS):
        yield "the table's properties ask for files that Spark alone writes"
    if configuration.get("delta.universalFormat.enabledFormats"):
        yield "the table is one of Iceberg or Hudi, too"
    if not all(map(_is_copied, json.loads(metadata["schemaString"])["fields"])):
        yield "it has columns of types that Arrow may write otherwise"


def _reasons_of_writer(gateway: Gateway, transaction: JavaObject, configuration: dict[str, str]) -> Iterator[str]:
    if _asks_for_compaction(gateway, configuration):
        yield "Delta compacts the files after the merge, for which there should be few"
    if (codec := _codec(gateway, configuration)) not in CODECS:
        yield f"Arrow does not write {codec}"
    if not gateway.flag("spark.databricks.delta.stats.collect") or _prefix_length(gateway, configuration) <= 0:
        yield "statistics are not collected"
    hadoop = transaction.deltaLog().newDeltaHadoopConf()
    if any(hadoop.get(name) is not None for name in _OTHER_FILES):
        yield "Parquet's writer is told to encrypt or to filter"


def terms_of_copies(gateway: Gateway, transaction: JavaObject) -> CopyTerms:
    """How copies are made of a table's files, against which :func:`reason_against_copies` knows nothing."""
    metadata = metadata_of(transaction)
    configuration, prefix_length = metadata["configuration"], _prefix_length(gateway, metadata["configuration"])
    cut = gateway.delta("stats.StatisticsCollection").truncateMaxStringAgg
    plan = StatisticsPlan.of(
        json.loads(transaction.snapshot().statsSchema().json()),
        prefix_length=prefix_length,
        cut_above=lambda text: cut(prefix_length, text),
    )
    fields = json.loads(metadata["schemaString"])["fields"]
    names = {each["metadata"].get("delta.columnMapping.physicalName", each["name"]): each["name"] for each in fields}
    columns = tuple(physical for physical, name in names.items() if name not in metadata["partitionColumns"])
    may_have = frozenset({*names, *_OF_CHANGE_DATA}.difference(columns))
    folder = Path(str(transaction.deltaLog().dataPath().toUri().getPath()))
    return CopyTerms(folder, _codec(gateway, configuration), columns, may_have, plan)


def metadata_of(transaction: JavaObject) -> dict[str, Any]:
    """The table's metadata as the log has it."""
    metadata: dict[str, Any] = json.loads(transaction.metadata().json())["metaData"]
    return metadata


def temporary_folder(gateway: Gateway) -> str:
    """A folder of Spark's own for what is read again soon, which goes with the session at the latest."""
    utils = gateway.java_class("org.apache.spark.util.Utils")
    return str(utils.getLocalDir(gateway.session.sparkContext().conf()))


def _asks_for_compaction(gateway: Gateway, configuration: dict[str, str]) -> bool:
    asked = [configuration.get(_COMPACTION_OF_TABLE), gateway.conf_if_set(_COMPACTION_OF_SESSION)]
    return any(value is not None and value.lower() != "false" for value in asked)


def _has_arrow() -> bool:
    if importlib.util.find_spec("pyarrow") is None:
        return False
    import pyarrow

    return int(pyarrow.__version__.split(".")[0]) >= _LEAST_ARROW


def _codec(gateway: Gateway, configuration: dict[str, str]) -> str:
    return (configuration.get(_CODEC_OF_TABLE) or gateway.conf(_CODEC_OF_SESSION)).lower()


def _prefix_length(gateway: Gateway, configuration: dict[str, str]) -> int:
    return int(configuration.get(_PREFIX_OF_TABLE) or gateway.conf(_PREFIX_OF_SESSION))


def _is_copied(field: dict[str, Any]) -> bool:
    if "__COLLATIONS" in field["metadata"] or "delta.typeChanges" in field["metadata"]:
        return False
    return _is_copied_type(field["type"])


def _is_copied_type(type_: Any) -> bool:
    if isinstance(type_, str):
        return type_ in _TYPES or type_.startswith("decimal")
    if type_["type"] == "struct":
        return all(map(_is_copied, type_["fields"]))
    if type_["type"] == "array":
        return _is_copied_type(type_["elementType"])
    return type_["type"] == "map" and _is_copied_type(type_["keyType"]) and _is_copied_type(type_["valueType"])
