"""TPC-H's refresh functions on `orders` and `lineitem`, whose rows `tpchgen-cli` makes.

RF1 inserts 0.1 % new orders and their items, RF2 deletes 0.1 % of the orders and their items. As in TPC-H's own refresh
data both take one range of keys, and new orders lie in the gaps of the key space (TPC-H uses eight of 32 keys).
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.case import DELETE, INSERT, Case, Regime
from bench.data import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = 20
_ROWS_AT_SF_1 = {"orders": 1_500_000, "lineitem": 6_000_000}
_KEYS_AT_SF_1 = 6_000_000
#: The scale factor at scale 1.
_SCALE_FACTOR = 0.5


def _make(table: str, spark: SparkSession, rows: int, folder: Path) -> DataFrame:
    """One of TPC-H's tables, a partition of the frame for each file, in the order of its keys."""
    if not _binary().exists():
        raise RuntimeError("tpchgen-cli is not installed, which makes TPC-H's data: `make bench` installs it.")
    arguments = ("parquet", "--tables", table, "--parts", str(_FILES), "--output-dir", str(folder))
    scale_factor = f"{rows / _ROWS_AT_SF_1[table]:.6f}"
    subprocess.run([str(_binary()), *arguments, "--scale-factor", scale_factor], check=True, stdout=subprocess.DEVNULL)
    parts = [spark.read.parquet(str(folder / table / f"{table}.{part}.parquet")) for part in range(1, _FILES + 1)]
    return functools.reduce(lambda one, other: one.union(other.coalesce(1)), parts[1:], parts[0].coalesce(1))


def _binary() -> Path:
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = shutil.which("tpchgen-cli")  # `uv run` has the programs of its packages elsewhere
    return Path(found) if found and not beside.exists() else beside


_TABLES = {
    name: Table(
        name=f"tpch_{name}",
        rows=round(rows * _SCALE_FACTOR),
        files=_FILES,
        made_by=functools.partial(_make, name),
    )
    for name, rows in _ROWS_AT_SF_1.items()
}


def _cases(table: str, key: str, on: tuple[str, ...]) -> list[Case]:
    key_space = f"({{rows}} * {_KEYS_AT_SF_1 // _ROWS_AT_SF_1[table]})"
    thousandth = f"{key} BETWEEN {key_space} div 2 AND {key_space} div 2 + greatest(64, {key_space} div 1000)"
    return [
        Case(
            name=f"tpch_rf1_{table}",
            regime=Regime.LITTLE_IN_MUCH,
            table=_TABLES[table],
            source=f"SELECT {key} + 8 AS {key}, * EXCEPT ({key}) FROM {{table}} WHERE {thousandth}",
            on=on,
            clauses=INSERT,
            group="tpch",
        ),
        Case(
            name=f"tpch_rf2_{table}",
            regime=Regime.LITTLE_IN_MUCH,
            table=_TABLES[table],
            source=f"SELECT DISTINCT {key} FROM {{table}} WHERE {thousandth}",
            on=(key,),
            clauses=DELETE,
            group="tpch",
        ),
    ]


def tpch_cases() -> list[Case]:
    """Both refresh functions on both tables."""
    return [
        *_cases("orders", "o_orderkey", ("o_orderkey",)),
        *_cases("lineitem", "l_orderkey", ("l_orderkey", "l_linenumber")),
    ]
