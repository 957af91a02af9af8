"""Writes tables by DuckDB's extension for Delta, which writes the log through delta-kernel-rs.

usage: python duck.py FOLDER TABLE ...
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import duckdb_extension_delta

from tests.foreign.rows import FILES, TYPES, file_of_columns
from tests.foreign.writers.logs import create

KINDS = {"STRING": "VARCHAR", "BINARY": "BLOB", "TIMESTAMP": "TIMESTAMPTZ", "TIMESTAMP_NTZ": "TIMESTAMP"}


def connected() -> duckdb.DuckDBPyConnection:
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension"))
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def write(path: Path, names: list[str]) -> None:
    create(path, names)
    connection = connected()
    connection.execute(f"ATTACH '{path}' AS t (TYPE delta)")
    for number in range(FILES):
        held = file_of_columns(number, names)
        kinds = [KINDS.get(kind, kind) for kind in (TYPES.get(name, "STRING") for name in held)]
        rows = [*zip(*held.values(), strict=True)]
        places = ", ".join("(" + ", ".join(f"CAST(? AS {kind})" for kind in kinds) + ")" for _ in rows)
        connection.execute(f"INSERT INTO t VALUES {places}", [value for row in rows for value in row])


TABLES = {
    "all_types": lambda path: write(path, list(TYPES)),
}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        TABLES[name](Path(sys.argv[1]) / name)
