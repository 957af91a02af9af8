"""Whether and how a table's data files can be copied natively, and the actions that add the copies."""

from __future__ import annotations

import importlib.util
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from airflow_delta_merge.engine.data_files.delta_statistics import StatisticsPlan
from airflow_delta_merge.engine.data_files.parquet_copy import CODECS, LEAST_ARROW, CopiedFile, arrow_version
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
from airflow_delta_merge.engine.delta_jvm.store_files import StoreFiles

_CODEC_OF_TABLE, _CODEC_OF_SESSION = "delta.parquet.compression.codec", "spark.sql.parquet.compression.codec"
_COMPACTION_OF_TABLE, _COMPACTION_OF_SESSION = (
    "delta.autoOptimize.autoCompact",
    "spark.databricks.delta.autoCompact.enabled",
)
_PREFIX_OF_TABLE, _PREFIX_OF_SESSION = (
    "delta.dataSkippingStringPrefixLength",
    "spark.databricks.io.skipping.stringPrefixLength",
)
#: Metadata of a schema's field: its name in data files, and the collations of its texts except the binary one.
_PHYSICAL_NAME, _COLLATIONS = "delta.columnMapping.physicalName", "__COLLATIONS"
#: Types, as Spark's schemas name them, that Arrow writes exactly as it reads them.
_TYPES = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "boolean", "binary"}
    | {"date", "timestamp", "timestamp_ntz", "string"}
)
#: Properties of tables whose files need more than Parquet with Delta's statistics.
_OTHER_WRITERS = (
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    "delta.enableTypeWidening",
)
#: The feature of tables whose new files must have the partition columns, too.
_PARTITIONS_IN_FILES = "materializePartitionColumns"
#: Settings that make Parquet's writer do what a copy by Arrow would not, in Hadoop's configuration or the table's
#: properties; one for a column ends in ``#column``. The last two ask for other encodings and pages.
_OTHER_FILES = (
    "parquet.crypto.factory.class",
    "parquet.bloom.filter.enabled",
    "parquet.writer.version",
    "delta.parquet.format.version",
)
#: Settings by which Spark reads other values from a file than Arrow does, and from the copy.
_OTHER_VALUES = (
    "spark.sql.parquet.int96TimestampConversion",
    "spark.sql.parquet.int96RebaseModeInRead",
    "spark.sql.parquet.datetimeRebaseModeInRead",
)
#: With a change data feed Delta writes these columns into data files, too.
_OF_CHANGE_DATA = ("_change_type", "__is_cdc")
#: Row tracking's entries in an add action; Delta assigns new ones to a new file.
_NUMBERS_OF_ROWS = ("baseRowId", "defaultRowCommitVersion")


@dataclass(frozen=True)
class CopyTerms:
    """How copies of data files are made.

    :param folder: the table's folder, in its file system.
    :param store: that file system, unless it is this machine's.
    :param codec: one of :data:`~airflow_delta_merge.engine.data_files.parquet_copy.CODECS`.
    :param columns: physical names of the columns that each file must have.
    :param may_have: physical names of optional columns: those of change data, and mostly partition columns.
    :param statistics: the statistics that each copy gets.
    :param by_executors: whether Spark's executors copy, because they are other processes than the driver.
    """

    folder: Path
    store: StoreFiles | None
    codec: str
    columns: tuple[str, ...]
    may_have: frozenset[str]
    statistics: StatisticsPlan
    by_executors: bool

    def path_of(self, add: dict[str, Any]) -> Path | None:
        """The file's path in its file system; None if it is outside the table's folder or has a deletion vector."""
        path = add["path"]
        if "deletionVector" in add or path.startswith("/") or ":" in path.split("/")[0]:
            return None
        return self.folder / unquote(path)

    def name_of_copy(self, number: int) -> str:
        """The name of a copy.

        :param number: the copy's number, from 0.
        """
        _, _, extension = CODECS[self.codec]
        return f"part-{number:05d}-{uuid.uuid4()}.c000{extension}.parquet"

    def add_of_copy(self, add: dict[str, Any], copy: CopiedFile) -> dict[str, Any]:
        """The action that adds a copy.

        :param add: the action of the original file, which is in the same folder: both belong to one partition.
        """
        folder, slash, _ = add["path"].rpartition("/")
        return {
            **{name: value for name, value in add.items() if name not in _NUMBERS_OF_ROWS},
            "path": f"{folder}{slash}{Path(copy.path).name}",
            "size": copy.num_bytes,
            "modificationTime": copy.modified_ms,
            "dataChange": True,
            "stats": self.statistics.to_json(copy.num_rows, copy.statistics),
        }


def are_files_copied(gateway: Gateway, transaction: JavaObject) -> bool:
    """Whether Arrow can copy the table's data files; else Spark must write them.

    :param transaction: Delta's transaction, which has written nothing yet.
    """
    metadata = _metadata(transaction)
    return (
        (_is_on_this_machine(transaction) or _are_files_fetched(gateway))
        and not transaction.newMetadata().isDefined()  # the merge doesn't change the table's schema
        and _is_copied_table(metadata)
        and _is_copied_from_writer(gateway, transaction, metadata["configuration"])
        and _has_arrow()  # which imports it
    )


def _is_on_this_machine(transaction: JavaObject) -> bool:
    return str(transaction.deltaLog().dataPath().toUri().getScheme() or "file") == "file"


def _are_files_fetched(gateway: Gateway) -> bool:
    """Whether files of a store may be fetched. The Python of executors can't do so, and Arrow encrypts no files."""
    encrypts = gateway.session.sparkContext().conf().getBoolean("spark.io.encryption.enabled", False)
    return _copies_in_driver(gateway) and not encrypts


def _copies_in_driver(gateway: Gateway) -> bool:
    return bool(gateway.session.sparkContext().isLocal())


def _is_copied_table(metadata: dict[str, Any]) -> bool:
    configuration = metadata["configuration"]
    return (
        configuration.get("delta.columnMapping.mode") != "id"
        and all(configuration.get(name, "false").lower() != "true" for name in _OTHER_WRITERS)
        and not configuration.get("delta.universalFormat.enabledFormats")  # Iceberg or Hudi clients read it, too
        and all(map(_is_copied, json.loads(metadata["schemaString"])["fields"]))
    )


def _is_copied_from_writer(gateway: Gateway, transaction: JavaObject, configuration: dict[str, str]) -> bool:
    """Whether the settings of Delta's and Parquet's writers make files as Arrow does."""
    hadoop = transaction.deltaLog().newDeltaHadoopConf()
    return (
        not _asks_for_compaction(gateway, configuration)  # copies make more files
        and _codec(gateway, configuration) in CODECS
        and gateway.flag("spark.databricks.delta.stats.collect")
        and _prefix_length(gateway, configuration) > 0
        and all(hadoop.getPropsWithPrefix(name).isEmpty() for name in _OTHER_FILES)
        and not any(name.startswith(_OTHER_FILES) for name in configuration)
        and not any(gateway.conf(name).lower() in ("true", "legacy") for name in _OTHER_VALUES)
    )


def terms_of_copies(gateway: Gateway, transaction: JavaObject) -> CopyTerms:
    """How to copy the files of a table for which :func:`are_files_copied` is true."""
    metadata = _metadata(transaction)
    configuration, prefix_length = metadata["configuration"], _prefix_length(gateway, metadata["configuration"])
    cut = gateway.delta("stats.StatisticsCollection").truncateMaxStringAgg

    def cut_above(text: str) -> str | None:
        # Java counts at most twice as many characters. Skip the call where possible: one per column and file adds up.
        return text if len(text) * 2 <= prefix_length else cut(prefix_length, text)

    def as_java_writes(number: float, type_: str) -> str:
        return str(gateway.java_class(f"java.lang.{type_.capitalize()}").toString(number))

    plan = StatisticsPlan.of(
        json.loads(transaction.snapshot().statsSchema().json()),
        prefix_length=prefix_length,
        cut_above=cut_above,
        as_java_writes=as_java_writes,
    )
    fields = json.loads(metadata["schemaString"])["fields"]
    names = {each["name"]: str(each["metadata"].get(_PHYSICAL_NAME, each["name"])) for each in fields}
    partitions = metadata["partitionColumns"]
    columns = tuple(physical for name, physical in names.items() if name not in partitions)
    if _PARTITIONS_IN_FILES in json.loads(transaction.protocol().json())["protocol"].get("writerFeatures", ()):
        columns += tuple(names[name] for name in partitions)  # Delta writes them last
    may_have = frozenset({*names.values(), *_OF_CHANGE_DATA}.difference(columns))
    path = transaction.deltaLog().dataPath()
    store = None
    if not _is_on_this_machine(transaction):
        store = StoreFiles(gateway, path, transaction.deltaLog().newDeltaHadoopConf())
    return CopyTerms(
        folder=Path(str(path.toUri().getPath())),
        store=store,
        codec=_codec(gateway, configuration),
        columns=columns,
        may_have=may_have,
        statistics=plan,
        by_executors=not _copies_in_driver(gateway),
    )


def add_elsewhere(add: dict[str, Any], path: Path) -> dict[str, Any]:
    """An action for a file outside the table that holds rows of one of the table's files.

    :param add: the action of the table's file; both have the same partition.
    :param path: the file's path on this machine.
    """
    about = path.stat()
    return {
        "path": path.as_uri(),
        "partitionValues": add["partitionValues"],
        "size": about.st_size,
        "modificationTime": round(about.st_mtime * 1000),
        "dataChange": False,
    }


def _asks_for_compaction(gateway: Gateway, configuration: dict[str, str]) -> bool:
    asked = [configuration.get(_COMPACTION_OF_TABLE), gateway.conf_if_set(_COMPACTION_OF_SESSION)]
    return any(value is not None and value.lower() != "false" for value in asked)


def _metadata(transaction: JavaObject) -> dict[str, Any]:
    """The table's metadata as the transaction sees it, in its log form."""
    metadata: dict[str, Any] = json.loads(transaction.metadata().json())["metaData"]
    return metadata


def _prefix_length(gateway: Gateway, configuration: dict[str, str]) -> int:
    """Number of characters of a long text that Delta keeps as a bound; 0 for what is no number, which Delta refuses."""
    length = configuration.get(_PREFIX_OF_TABLE) or gateway.conf(_PREFIX_OF_SESSION)
    return int(length) if length.isdecimal() else 0


def _has_arrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None and arrow_version() >= LEAST_ARROW


def _codec(gateway: Gateway, configuration: dict[str, str]) -> str:
    return (configuration.get(_CODEC_OF_TABLE) or gateway.conf(_CODEC_OF_SESSION)).lower()


def _is_copied(field: dict[str, Any]) -> bool:
    if _COLLATIONS in field["metadata"] or "delta.typeChanges" in field["metadata"]:
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
