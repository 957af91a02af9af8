"""The rows of the corpus as tables of Arrow."""

from __future__ import annotations

import pyarrow as pa

from tests.foreign.rows import file_of_columns

ARROW = {
    "id": pa.int32(),
    "big": pa.int64(),
    "text": pa.string(),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "at_ntz": pa.timestamp("us"),
    "dec8": pa.decimal128(8, 2),
    "dec20": pa.decimal128(20, 4),
    "dec38": pa.decimal128(38, 0),
    "dec38_18": pa.decimal128(38, 18),
    "dec_edge": pa.decimal128(38, 0),
    "real": pa.float64(),
    "single": pa.float32(),
    "flag": pa.bool_(),
    "raw": pa.binary(),
    "note": pa.string(),
}


def arrow_file(number: int, names: list[str]) -> pa.Table:
    columns = file_of_columns(number, names)
    return pa.table({name: pa.array(values, ARROW[name]) for name, values in columns.items()})
