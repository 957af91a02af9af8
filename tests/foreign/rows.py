"""The rows that every writer of the corpus writes, and new ones that only sources have.

Imported by the writers, too, which run in other environments: standard library only.

Each column is a line of :data:`FILES` times two values that rise from file to file, so that a key lies in the bounds of
one file only. Values are chosen where writers are known to go wrong: beyond the 53 bits of a double, longer than the 32
characters to which texts are cut, between two milliseconds, before 1900.
"""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal
from typing import Any

FILES = 6
ROWS_A_FILE = 2
NULLS_IN_FILE = 3  # the file that has a row of NULLs beside its two
# Which of them tables have that are partitioned by a column, where not all: the names of folders would be too long, or
# delta-rs can't read what it writes, which is -123.-45 for a negative decimal.
PARTITIONED_FILES = {
    "text": (0, 1, 2, 3, 4),
    "raw": (0, 1, 2, 3, 4),
    "dec8": (2, 3, 4, 5),
    "dec38_18": (1, 2, 3, 4, 5),
    "real": (0, 2, 3, 5),
}

INF, NAN = float("inf"), float("nan")
LONG = "a text that is longer than thirty-two characters "
LAST = "\U0010ffff"  # the greatest character, beyond which no cut text can be rounded up


def _scaled(numbers: Any, digits: int) -> list[Any]:
    return [Decimal(n).scaleb(-digits, Context(prec=60)) for n in numbers]


def _at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def _days(*texts: str) -> list[Any]:
    return [dt.date.fromisoformat(text) for text in texts]


# Twelve values that the tables have, then some that only a source brings.
_AT = [
    *("0001-01-02 00:00:00", "1582-10-04 12:00:00"),
    *("1850-01-01 01:01:01.000001", "1850-01-01 01:01:30.999999"),
    *("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00"),
    *("2024-03-31 02:30:00.123456", "2024-03-31 02:30:00.123457"),
    *("2024-03-31 02:30:00.123500", "2024-03-31 02:30:00.123999"),
    *("2024-10-27 02:30:59.999999", "9999-12-31 23:59:59.999999"),
]
_NEW_AT = ["1850-01-01 01:01:15", "2024-03-31 02:30:00.123458", "2024-03-31 02:30:00.124"]

VALUES: dict[str, list[Any]] = {
    "id": [*range(1, 13)],
    "big": [-(2**63), -(2**53) - 1, *(2**53 + n for n in range(9)), 2**63 - 1],
    "text": [
        *("", " a"),
        *("B", "a"),
        *(LONG + "1", LONG + "2"),
        *(LONG + "ä", LONG + "€"),
        *("z" * 31 + "ü", "z" * 31 + "😀" + "tail"),
        *("😀" * 20, LAST * 40),
    ],
    "day": _days(
        *("0001-01-01", "1582-10-04"),
        *("1582-10-15", "1850-01-01"),
        *("1899-12-31", "1900-01-01"),
        *("1969-12-31", "1970-01-01"),
        *("2024-02-28", "2024-02-29"),
        *("2024-03-31", "9999-12-31"),
    ),
    "at": [_at(text) for text in _AT],
    "at_ntz": [_at(text).replace(tzinfo=None) for text in _AT],
    "dec8": _scaled((-99999999, -12345, -1, 0, 1, 5, 10, 110, 12345, 1234567, 9999998, 99999999), 2),
    "dec20": _scaled((-9 * 10**19, -(2**62), *(12345678901234567000 + n for n in range(9)), 9 * 10**19 + 1), 4),
    "dec38": _scaled((-9 * 10**37 + 1, -(2**63) - 1, *(10**30 + n for n in range(9)), 9 * 10**37 + 1), 0),
    "dec38_18": _scaled(
        (-9 * 10**37 + 1, -1, *(1234567890123456789012345670 + n for n in range(9)), 9 * 10**37 + 1), 18
    ),
    # As a double the least and the greatest have a digit more than the type allows.
    "dec_edge": _scaled((*(-(10**38) + n for n in range(1, 7)), *(10**38 - n for n in range(6, 0, -1))), 0),
    "real": [-INF, -1.5, -0.0, 1e-300, 0.1, 0.3, 1.5, 2.0**53, 1e300, 1.7976931348623157e308, INF, NAN],
    "single": [-INF, -1.5, -0.0, 2.0**-140, 0.1, 0.3, 1.5, 16777216.0, 2.0**100, 2.0**120, INF, NAN],
    "flag": [False, False, False, False, False, True, True, True, True, True, True, True],
    "raw": [b"", b"\x00", b"\x01", b"a", b"ab", b"caf\xe9", b"z", b"\x7f", b"\x80", b"\xc3\xbc", b"\xff", b"\xff" * 40],
}  # fmt: skip
# What is in no table: between two values that are, and beyond all.
NEW: dict[str, list[Any]] = {
    "id": [0, 13, 2**31 - 1],
    "big": [2**53 + 9, -(2**53), 2**63 - 2],
    "text": [LONG + "3", LONG, "z" * 31],
    "day": _days("1582-10-16", "1899-12-30", "2024-03-01"),
    "at": [_at(text) for text in _NEW_AT],
    "at_ntz": [_at(text).replace(tzinfo=None) for text in _NEW_AT],
    "dec8": [Decimal("0.02"), Decimal("-0.02"), Decimal("999999.97")],
    "dec20": [Decimal("1234567890123456.7009"), Decimal("-0.0001"), Decimal(0)],
    "dec38": [Decimal(10**30 + 9), Decimal(0), Decimal(10**38 - 2)],
    "dec38_18": [Decimal("1234567890.123456789012345679"), Decimal(0), Decimal(10**19)],
    "dec_edge": [Decimal(-(10**38) + 7), Decimal(10**38 - 7), Decimal(0)],
    "real": [0.2, 0.30000000000000004, -1e300],
    "single": [0.25, 16777218.0, -1.0],
    "flag": [],
    "raw": [b"caf\xe8", b"\x00\x00", b"\xff" * 39],
}
TYPES = {
    "id": "INT",
    "big": "BIGINT",
    "text": "STRING",
    "day": "DATE",
    "at": "TIMESTAMP",
    "at_ntz": "TIMESTAMP_NTZ",
    "dec8": "DECIMAL(8,2)",
    "dec20": "DECIMAL(20,4)",
    "dec38": "DECIMAL(38,0)",
    "dec38_18": "DECIMAL(38,18)",
    "dec_edge": "DECIMAL(38,0)",
    "real": "DOUBLE",
    "single": "FLOAT",
    "flag": "BOOLEAN",
    "raw": "BINARY",
}


def file_of_columns(number: int, names: list[str]) -> dict[str, list[Any]]:
    """The columns of one of the six files, by name; ``note`` tells each row's place."""
    start = number * ROWS_A_FILE
    nulls = [None] if number == NULLS_IN_FILE else []
    columns: dict[str, list[Any]] = {name: [*VALUES[name][start : start + ROWS_A_FILE], *nulls] for name in names}
    columns["note"] = [f"old {row}" for row in range(start, start + ROWS_A_FILE)]
    columns["note"] += ["of nulls"] * len(nulls)
    return columns


def literal(value: Any, sql_type: str) -> str:
    """A value in Spark's SQL, in any time zone of the session."""
    if value is None:
        return f"CAST(NULL AS {sql_type})"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        text = f"X'{value.hex()}'"
    elif isinstance(value, dt.datetime):
        text = f"'{value.replace(tzinfo=None).isoformat(' ')}{'Z' if value.tzinfo else ''}'"
    elif isinstance(value, Decimal):
        text = f"'{value:f}'"
    else:
        escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
        text = f"'{escaped}'"
    return f"CAST({text} AS {sql_type})"
