"""Copies Parquet files without some of their rows, with Arrow, so that the remaining rows don't go through Spark.

Needs nothing else of this package but :mod:`~airflow_delta_merge.engine.data_files.arrow_statistics`, as Spark's
executors use both.

A copy keeps the old file's schema, field ids, row order, row groups and key-value metadata. :func:`reason_not_to_copy`
rules out files that Arrow would write differently; after writing, both footers are compared.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.engine.data_files.arrow_statistics import GatheredStatistics, Leaf, LeafStatistics

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: The first version of pyarrow that can write small decimals as integers.
LEAST_ARROW = 18

#: Parquet's codecs by their name in Spark's setting: Arrow's name, the level of Java's writer, the file's extension.
CODECS: dict[str, tuple[str, int | None, str]] = {
    "none": ("none", None, ""),
    "uncompressed": ("none", None, ""),
    "snappy": ("snappy", None, ".snappy"),
    "gzip": ("gzip", 6, ".gz"),
    "zstd": ("zstd", 3, ".zstd"),
}
#: Spark's keys for dates of the old calendar and times from before uniform time zones: their bounds would differ.
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
#: The first Spark that writes all in the new calendar, or else a key. Spark, too, compares versions as texts.
_NEW_CALENDAR_SINCE = b"3.1.0"

_INT96 = re.compile(r"(\s*\w+ )int96( field_id=.*);")
_INT64 = r"\1int64\2 (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds));"
#: Set when a footer also has the old form of a type, which means the same.
_OLD_FORMS = re.compile(r", is_from_converted_type=\w+, force_set_converted_type=\w+")


class CannotCopyError(Exception):
    """Arrow would write this file differently."""


@dataclass(frozen=True)
class FileToCopy:
    """A file to copy without some of its rows.

    :param path: where it is.
    :param copy: where to write the rows that stay.
    :param taken: positions of the rows to leave out, distinct and ascending.
    :param taken_rows: where to write these rows; None if they are not needed.
    """

    path: str
    copy: str
    taken: pa.Int64Array
    taken_rows: str | None = None


@dataclass(frozen=True)
class CopiedFile:
    """A copy.

    :param path: where it is.
    :param num_rows: its rows; 0 if all were taken and there is no copy.
    :param num_bytes: its size.
    :param modified_ms: when it was written, in milliseconds since 1970.
    :param statistics: of its rows, by the leaf's path.
    """

    path: str
    num_rows: int
    num_bytes: int
    modified_ms: int
    statistics: dict[tuple[str, ...], LeafStatistics]


def arrow_version() -> int:
    """The major version of pyarrow, which must be installed."""
    import pyarrow

    return int(pyarrow.__version__.split(".")[0])


def reason_not_to_copy(path: str, columns: Sequence[str], may_have: Collection[str]) -> str | None:
    """Why a file can't be copied unchanged, according to its footer; None if it can.

    :param columns: the physical names of its required columns, in this order.
    :param may_have: the physical names of optional columns.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    keys = metadata.metadata or {}
    if any(key in keys for key in _LEGACY_KEYS):
        return "it has dates of the old calendar"
    by_java = str(metadata.created_by).startswith("parquet-mr")  # as all of Spark 2, which may not say its version
    if keys.get(_SPARK_VERSION, b"" if by_java else _NEW_CALENDAR_SINCE) < _NEW_CALENDAR_SINCE:
        return "an old Spark with another calendar may have written it"
    if [name for name in metadata.schema.to_arrow_schema().names if name not in may_have] != list(columns):
        return "its columns are not those of the table"
    return None


def copy_file(
    file: FileToCopy, *, codec: str, leaves: Sequence[Leaf], most_bytes: int, use_threads: bool = False
) -> CopiedFile:
    """Copy a file without the rows that are taken.

    :param codec: the name of a codec in :data:`CODECS`.
    :param leaves: what to collect statistics of.
    :param most_bytes: maximum bytes of a row group to decode at a time, as Parquet counts them.
    :param use_threads: whether to decode its columns in parallel.
    :raises CannotCopyError: when the copy's footer differs from the old one.
    """
    import pyarrow.parquet as pq

    statistics = GatheredStatistics(leaves)
    # Mapped memory is read on demand and doesn't count as the process's own.
    with pq.ParquetFile(file.path, memory_map=True, coerce_int96_timestamp_unit="us") as old:
        stay = _Output(file.copy, old, codec)
        taken = _Output(file.taken_rows, old, "snappy") if file.taken_rows else None
        try:
            for position, rows in _parts(old, most_bytes=most_bytes, use_threads=use_threads):
                positions = _taken_of(file.taken, position, rows.num_rows)
                kept = _without(rows, positions)
                if kept.num_rows:
                    statistics.add(kept)
                    stay.write(kept)
                if taken and positions:
                    taken.write(_at(rows, positions))
        finally:
            stay.close()
            if taken:
                taken.close()
        if not statistics.num_rows:
            return CopiedFile(file.copy, 0, 0, 0, {})
        _check(file, old, statistics.num_rows)
    about = Path(file.copy).stat()
    modified_ms = round(about.st_mtime * 1000)
    return CopiedFile(file.copy, statistics.num_rows, about.st_size, modified_ms, statistics.of_leaves)


class _Output:
    """A new file with the schema and keys of another one, created with the first rows."""

    def __init__(self, path: str, like: pq.ParquetFile, codec: str) -> None:
        self._path = path
        self._like = like
        self._codec = codec
        self._schema = _written_schema(like)
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Write rows as a row group."""
        import pyarrow.parquet as pq

        if self._writer is None:
            compression, level, _ = CODECS[self._codec]
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                compression=compression,
                compression_level=level,
                version="2.6",
                store_schema=False,
                store_decimal_as_integer=_has_decimals_as_integers(self._like),
                # Arrow would try a dictionary for every column, which takes a quarter longer.
                use_dictionary=_columns_with_dictionary(self._like.metadata),
                write_statistics=_columns_with_bounds(self._like.metadata),
            )
        self._writer.write_table(rows.cast(self._schema), row_group_size=rows.num_rows)

    def close(self) -> None:
        if self._writer is None:
            return
        keys = self._like.metadata.metadata
        if keys:
            self._writer.add_key_value_metadata(dict(keys))
        self._writer.close()


def _has_decimals_as_integers(file: pq.ParquetFile) -> bool:
    schema = file.metadata.schema
    columns = (schema.column(number) for number in range(len(schema)))
    return any(each.logical_type.type == "DECIMAL" and each.physical_type in ("INT32", "INT64") for each in columns)


def _columns_with_dictionary(metadata: pq.FileMetaData) -> list[str]:
    """The paths of the columns that have a dictionary in some row group."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return sorted({chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page})


def _columns_with_bounds(metadata: pq.FileMetaData) -> list[str]:
    """The paths of the columns whose bounds are Spark's: Arrow leaves out NaN, for Spark the greatest number."""
    columns = [metadata.schema.column(number) for number in range(len(metadata.schema))]
    without = {each.path for each in columns if each.physical_type in ("FLOAT", "DOUBLE")}
    return [each.path for each in columns if each.path not in without]


def _parts(file: pq.ParquetFile, *, most_bytes: int, use_threads: bool) -> Iterator[tuple[int, pa.Table]]:
    """The rows in parts, each with the position of its first row."""
    import pyarrow as pa

    position = 0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        pieces = max(1, -(-group.total_byte_size // most_bytes))
        if pieces == 1:
            rows = file.read_row_group(number, use_threads=use_threads)
            yield position, rows
            position += rows.num_rows
            continue
        batch_size = -(-group.num_rows // pieces)
        for batch in file.iter_batches(batch_size, row_groups=[number], use_threads=use_threads):
            yield position, pa.Table.from_batches([batch])
            position += batch.num_rows


def _taken_of(taken: pa.Int64Array, start: int, count: int) -> list[int]:
    """The positions within one part, counted from its first row."""
    first, end = (bisect_left(taken, each, key=lambda position: position.as_py()) for each in (start, start + count))
    return [position - start for position in taken.slice(first, end - first).to_pylist()]


def _at(rows: pa.Table, positions: Sequence[int]) -> pa.Table:
    """The rows at the given positions."""
    import pyarrow as pa

    # Of numbers from Python pyarrow makes an array only with pandas, whose import takes 0.3 s.
    numbers = pa.py_buffer(array("q", positions))
    return rows.take(pa.Array.from_buffers(pa.int64(), len(positions), [None, numbers]))


def _without(rows: pa.Table, positions: Sequence[int]) -> pa.Table:
    """All rows except those at the given positions."""
    import pyarrow as pa

    if not positions:
        return rows
    stays = bytearray(b"\x01") * rows.num_rows
    for position in positions:
        stays[position] = 0
    mask = pa.Array.from_buffers(pa.uint8(), rows.num_rows, [None, pa.py_buffer(stays)]).cast(pa.bool_())
    return rows.filter(mask)


def _check(file: FileToCopy, old: pq.ParquetFile, num_rows: int) -> None:
    """Compare the copy's footer with the old one's."""
    import pyarrow.parquet as pq

    new = pq.read_metadata(file.copy)
    expected = old.metadata.num_rows - len(file.taken)
    if new.num_rows != expected or num_rows != expected:
        raise CannotCopyError(f"The copy of {file.path} has {new.num_rows} rows, expected {expected}.")
    if _comparable_schema(new) != _comparable_schema(old.metadata):
        raise CannotCopyError(f"The copy of {file.path} has a different schema.")


def _comparable_schema(metadata: pq.FileMetaData) -> list[str]:
    """A footer's schema, field by field, with INT96 timestamps as the INT64 ones that replace them in a copy."""
    lines = str(metadata.schema).splitlines()[2:]  # without the class and the root, whose names differ
    return [_INT96.sub(_INT64, _OLD_FORMS.sub("", each)) for each in lines]


def _written_schema(file: pq.ParquetFile) -> pa.Schema:
    """The schema of a copy: INT96 timestamps are UTC, as Spark means them."""
    import pyarrow as pa

    columns = iter(file.metadata.schema.column(number) for number in range(len(file.metadata.schema)))
    fields = [each.with_type(_written_type(each.type, columns)) for each in file.schema_arrow]
    return pa.schema(fields)


def _written_type(type_: pa.DataType, columns: Iterator[Any]) -> pa.DataType:
    """A type with UTC in its INT96 timestamps. Consumes the file's ``columns`` that belong to it."""
    import pyarrow as pa

    if pa.types.is_struct(type_):
        return pa.struct([each.with_type(_written_type(each.type, columns)) for each in type_.fields])
    if pa.types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        key = key.with_type(_written_type(key.type, columns))
        return pa.map_(key, item.with_type(_written_type(item.type, columns)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_written_type(type_.value_type, columns)))
    return pa.timestamp("us", tz="UTC") if next(columns).physical_type == "INT96" else type_
