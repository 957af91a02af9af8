"""Statistics of text columns in the files that a transaction writes, from these files' footers.

Delta's writer tracks the least and the greatest text and copies both for each row, which takes a quarter of the time to
write two text columns among seven. Parquet's writer also tracks them, without copying, and writes them to the file's
footer. So this module excludes these columns from Delta's statistics and reads the footers afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, java_items, scala_list
from airflow_delta_merge.engine.delta_jvm.table_metadata import (
    has_collation,
    metadata_of,
    physical_name_of,
    prefix_length_of,
)
from airflow_delta_merge.engine.footer_statistics import TextsOfFile, of_all, with_texts
from airflow_delta_merge.identifiers import quote_multipart

#: Bytes of each bound in a footer. Footers omit bounds of more than 4096 bytes together; Delta keeps about a hundred,
#: see :data:`_LONGEST_PREFIX`.
_BYTES_IN_FOOTER = 1024
#: Longest prefix for which these bytes determine Delta's bounds: it checks twice as many characters, of 4 bytes each.
_LONGEST_PREFIX = 64

#: Maximum footers in memory at a time: each takes about 100 kB of the driver's memory.
_FOOTERS_AT_ONCE = 100
_FOOTER_THREADS = 16

_STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"
_CUT_IN_FOOTER = "parquet.statistics.truncate.length"
#: Settings of Parquet's writer that change or remove the bounds in a footer.
_OTHER_FOOTERS = (_CUT_IN_FOOTER, "parquet.column.statistics.enabled")


@dataclass(frozen=True)
class WrittenTexts:
    """The text columns whose statistics come from footers.

    :param columns: physical names of all columns that have statistics, in the table's order.
    :param texts: physical names of the text columns among them.
    :param others: quoted names of the other columns, and of fields of columns.
    :param prefix_length: number of characters that Delta keeps of a long text.
    :param share: the text columns' share of the table's columns, from 0 to 1.
    """

    columns: tuple[str, ...]
    texts: tuple[str, ...]
    others: tuple[str, ...]
    prefix_length: int
    share: float

    @classmethod
    def of(cls, gateway: Gateway, transaction: JavaObject) -> WrittenTexts | None:
        """The table's text columns; None if there are none, or if footers would give other statistics than Delta.

        :param transaction: Delta's transaction, which has written nothing yet.
        """
        if transaction.newMetadata().isDefined() or not gateway.flag("spark.databricks.delta.stats.collect"):
            return None
        configuration = metadata_of(transaction)["configuration"]
        hadoop = transaction.deltaLog().newDeltaHadoopConf()
        if any(name in configuration or hadoop.get(name) is not None for name in _OTHER_FOOTERS):
            return None
        prefix_length = prefix_length_of(gateway, configuration)
        if not 0 < prefix_length <= _LONGEST_PREFIX:
            return None
        fields = json.loads(transaction.snapshot().statCollectionLogicalSchema().json())["fields"]
        texts = [field for field in fields if _is_text(field)]
        others = [quote_multipart(path) for field in fields if field not in texts for path in _leaves(field)]
        if not texts or '"type": "variant"' in json.dumps(fields):
            return None
        columns = tuple(physical_name_of(field) for field in fields)
        share = len(texts) / int(transaction.metadata().schema().size())
        return cls(columns, tuple(physical_name_of(field) for field in texts), tuple(others), prefix_length, share)

    @contextmanager
    def left_out(self, gateway: Gateway, transaction: JavaObject) -> Iterator[None]:
        """Make the transaction write files without statistics of the text columns inside this context.

        The transaction sees changed table properties meanwhile; they are not committed.
        """
        metadata = metadata_of(transaction)
        metadata["configuration"] |= {
            _STATISTICS_COLUMNS: ",".join(self.others),
            _CUT_IN_FOOTER: str(_BYTES_IN_FOOTER),
        }
        narrowed = gateway.delta("actions.Action").fromJson(json.dumps({"metaData": metadata}))
        before = transaction.newMetadata()
        change_metadata = getattr(transaction, "newMetadata_$eq")
        change_metadata(gateway.some(narrowed))
        try:
            yield
        finally:
            change_metadata(before)

    def added_to(self, actions: JavaObject, gateway: Gateway, transaction: JavaObject) -> JavaObject:
        """Add the statistics of the text columns to a write's file actions: a JVM sequence in the same order."""
        listed = scala_list(actions)
        adds = [json.loads(action.json()).get("add") for action in listed]
        files = [add for add in adds if add is not None]
        for start in range(0, len(files), _FOOTERS_AT_ONCE):
            self._add_texts(files[start : start + _FOOTERS_AT_ONCE], gateway, transaction)
        made = gateway.delta("actions.Action").fromJson
        return gateway.seq(
            action if add is None else made(json.dumps({"add": add})) for action, add in zip(listed, adds, strict=True)
        )

    def _add_texts(self, files: list[dict[str, Any]], gateway: Gateway, transaction: JavaObject) -> None:
        footers = _footers(gateway, transaction, files)
        paths = gateway.as_json(footers[0].getFileMetaData().getSchema().getPaths())  # one write, one schema
        positions = {name: paths.index([name]) for name in self.texts}
        cut_above = partial(gateway.delta("stats.StatisticsCollection").truncateMaxStringAgg, self.prefix_length)
        for add, footer in zip(files, footers, strict=True):
            texts = _texts_of(footer.getBlocks(), positions)
            add["stats"] = with_texts(
                add["stats"], texts, self.columns, prefix_length=self.prefix_length, cut_above=cut_above
            )


def _texts_of(row_groups: JavaObject, positions: dict[str, int]) -> dict[str, TextsOfFile]:
    """The columns' statistics in a footer; columns without statistics are left out.

    :param positions: the columns' positions in each row group, by their names.
    """
    texts = {}
    columns_of_groups = [group.getColumns() for group in java_items(row_groups)]
    for name, position in positions.items():
        groups = [_of_row_group(columns.get(position).getStatistics()) for columns in columns_of_groups]
        known = [group for group in groups if group is not None]
        if len(known) == len(groups):
            texts[name] = of_all(known)
    return texts


def _of_row_group(statistics: JavaObject) -> TextsOfFile | None:
    if statistics is None or not statistics.isNumNullsSet():
        return None
    nulls = int(statistics.getNumNulls())
    if not statistics.hasNonNullValue():
        # No bounds: all values are NULL, or the footer omits the bounds.
        return TextsOfFile(nulls, None, None)
    return TextsOfFile(nulls, bytes(statistics.getMinBytes()), bytes(statistics.getMaxBytes()))


def _footers(gateway: Gateway, transaction: JavaObject, files: list[dict[str, Any]]) -> list[JavaObject]:
    """The footers of data files, read by several driver threads."""
    log = transaction.deltaLog()
    base = log.dataPath().toString()
    absolute_path = gateway.delta("util.DeltaFileOperations").absolutePath
    status = gateway.java_class("org.apache.hadoop.fs.FileStatus")
    wanted = gateway.java_list(
        status(add["size"], False, 1, 0, add["modificationTime"], absolute_path(base, add["path"])) for add in files
    )
    conf = log.newDeltaHadoopConf()
    conf.setInt("parquet.metadata.read.parallelism", _FOOTER_THREADS)
    reader = gateway.java_class("org.apache.parquet.hadoop.ParquetFileReader")
    footers = reader.readAllFootersInParallel(conf, wanted, False)
    return [footer.getParquetMetadata() for footer in java_items(footers)]


def _is_text(field: dict[str, Any]) -> bool:
    """Whether a field of a schema holds texts of the binary collation; metadata marks other collations."""
    return field["type"] == "string" and not has_collation(field)


def _leaves(field: dict[str, Any], parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all non-struct fields within a field."""
    path = (*parents, field["name"])
    if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
        for each in field["type"]["fields"]:
            yield from _leaves(each, path)
    else:
        yield path
