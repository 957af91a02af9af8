"""Rows read straight from the Parquet files of a table, without Spark: a hundred times quicker for tiny tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

from tests.differential.delta_log import DeltaTableLog


def can_read_plainly(log: DeltaTableLog) -> bool:
    """Whether the files alone tell the rows: no deletion vectors, no mapped names, no row ids to look at."""
    configuration = log.metadata["configuration"]
    return (
        configuration.get("delta.columnMapping.mode", "none") == "none"
        and not log.enabled("delta.enableRowTracking")
        and not any(add.get("deletionVector") for add in log.files.values())
        and "typeWidening" not in json.dumps(log.protocol)
    )


def read_plainly(table: Path, log: DeltaTableLog, *, skip: set[str], without: tuple[str, ...]) -> Counter[str]:
    """The rows as a bag, each as a text that tells all of it. Partition values are the log's texts.

    :param skip: files to leave out, as the log names them.
    :param without: columns to leave out.
    """
    import pyarrow.parquet as pq

    names = [column["name"] for column in log.schema["fields"] if column["name"] not in without]
    bag: Counter[str] = Counter()
    for add in log.files.values():
        if add["path"] in skip:
            continue
        file = pq.ParquetFile(table / unquote(add["path"]), coerce_int96_timestamp_unit="us")
        columns = file.read().to_pydict()
        count = file.metadata.num_rows
        columns |= {name: [f"partition {value}"] * count for name, value in add["partitionValues"].items()}
        nothing = [None] * count
        for row in zip(*(columns.get(name, nothing) for name in names), strict=True):
            bag[repr(row)] += 1
    return bag
