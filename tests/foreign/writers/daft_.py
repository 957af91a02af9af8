"""Writes tables by Daft, which has statistics of its own.

usage: python daft_.py FOLDER TABLE ...
"""

from __future__ import annotations

import sys
from pathlib import Path

import daft

from tests.foreign.rows import FILES, PARTITIONED_FILES, TYPES
from tests.foreign.writers.arrow import arrow_file


def write(path: Path, names: list[str], by: str = "") -> None:
    for number in PARTITIONED_FILES.get(by, range(FILES)):
        options = {"partition_cols": [by]} if by else {}
        daft.from_arrow(arrow_file(number, names)).write_deltalake(str(path), mode="append", **options)


TABLES = {
    "all_types": lambda path: write(path, list(TYPES)),
    "partitioned_text": lambda path: write(path, ["id", "big", "text"], by="text"),
    "partitioned_at": lambda path: write(path, ["id", "big", "at"], by="at"),
}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        TABLES[name](Path(sys.argv[1]) / name)
