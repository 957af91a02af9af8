"""A table of very many small files: its data by pyarrow, its log by hand, so that a laptop makes it in minutes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.session import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in (("id", "long"), ("amount", "double"), ("note", "string"))
    ],
}
#: What a table with deletion vectors says of itself; one without is of the oldest kind.
_WITH_DELETION_VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
}
_PLAIN = {"minReaderVersion": 1, "minWriterVersion": 2}


def make_table(spark: SparkSession, path: Path, *, data: Path, rows_per_file: int, deletion_vectors: bool) -> None:
    """Make a table of all files of a folder; its log ends with a checkpoint, as that of a table in use.

    :param data: what :func:`make_files` made; the table gets hard links to them.
    """
    shutil.copytree(data, path, copy_function=lambda source, target: Path(target).hardlink_to(source))
    log = path / "_delta_log"
    log.mkdir()
    with (log / f"{0:020}.json").open("w", encoding="utf-8") as commit:
        for action in _actions(path, rows_per_file, deletion_vectors):
            commit.write(json.dumps(action) + "\n")
    # A commit by Delta itself leaves a checksum, too.
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('made' = 'for the benchmark')")
    delta_log = jvm(spark).org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))
    delta_log.checkpoint()


def make_files(folder: Path, *, files: int, rows_per_file: int) -> None:
    """Write the data files: ``id`` counts on from file to file."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True)
    for number in range(files):
        ids = range(number * rows_per_file, (number + 1) * rows_per_file)
        columns = {
            "id": pyarrow.array(ids, pyarrow.int64()),
            "amount": pyarrow.array([id_ % 1000 / 10 for id_ in ids], pyarrow.float64()),
            "note": pyarrow.array([f"note on {id_}" for id_ in ids], pyarrow.string()),
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"part-{number:06}.parquet", compression="none")


def _actions(path: Path, rows_per_file: int, deletion_vectors: bool) -> Iterator[dict[str, Any]]:
    yield {"protocol": _WITH_DELETION_VECTORS if deletion_vectors else _PLAIN}
    yield {
        "metaData": {
            "id": "00000000-0000-4000-8000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_SCHEMA),
            "partitionColumns": [],
            "configuration": {"delta.enableDeletionVectors": "true"} if deletion_vectors else {},
            "createdTime": 0,
        }
    }
    for file in sorted(path.glob("*.parquet")):
        number = int(file.stem.removeprefix("part-"))
        statistics = {
            "numRecords": rows_per_file,
            "minValues": {"id": number * rows_per_file},
            "maxValues": {"id": (number + 1) * rows_per_file - 1},
            "nullCount": {"id": 0},
            "tightBounds": True,
        }
        yield {
            "add": {
                "path": file.name,
                "partitionValues": {},
                "size": file.stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps(statistics),
            }
        }
