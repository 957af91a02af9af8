"""Writes tables by ClickHouse, of which delta-kernel-rs writes the log.

usage: python clickhouse.py FOLDER TABLE ...
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from chdb import session

from tests.foreign.rows import FILES, TYPES
from tests.foreign.writers.arrow import arrow_file
from tests.foreign.writers.logs import create

NAMES = list(TYPES)


def all_types(path: Path) -> None:
    create(path, NAMES)
    os.chdir(path.parent)  # below which alone ClickHouse opens files
    with tempfile.TemporaryDirectory(dir=path.parent) as home:
        clickhouse = session.Session(f"{home}/session")
        clickhouse.query("SET allow_experimental_delta_lake_writes = 1, session_timezone = 'UTC'")
        clickhouse.query(f"CREATE TABLE t ENGINE = DeltaLakeLocal('{path}/')")
        for number in range(FILES):
            file = f"{home}/{number}.parquet"
            pq.write_table(arrow_file(number, NAMES), file)
            clickhouse.query(f"INSERT INTO t SELECT * FROM file('{file}')")
        clickhouse.close()


TABLES = {"all_types": all_types}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        TABLES[name](Path(sys.argv[1]) / name)
