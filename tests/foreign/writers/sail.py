"""Writes tables by Sail, a Spark Connect server in Rust with a writer of Delta tables of its own.

usage: python sail.py FOLDER TABLE ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from tests.foreign.rows import FILES, TYPES, file_of_columns, literal
from tests.foreign.writers.logs import create


def all_types(spark: SparkSession, path: Path) -> None:
    create(path, list(TYPES))
    for number in range(FILES):
        held = file_of_columns(number, list(TYPES))
        literals = ([literal(value, TYPES.get(name, "STRING")) for value in values] for name, values in held.items())
        rows = ", ".join(f"({', '.join(row)})" for row in zip(*literals, strict=True))
        query = f"SELECT * FROM VALUES {rows} AS v({', '.join(held)})"
        spark.sql(query).coalesce(1).write.format("delta").mode("append").save(str(path))


TABLES = {"all_types": all_types}

if __name__ == "__main__":
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for name in sys.argv[2:]:
        TABLES[name](session, Path(sys.argv[1]) / name)
