"""Which planes flew from New York, by which carrier, in a month of 2013: what the examples of patterns merge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import flights_feed

if TYPE_CHECKING:
    from pandas import DataFrame
    from pendulum import DateTime

FOLDER = Path(os.environ.get("FLIGHTS_DEMO_FOLDER") or Path(__file__).resolve().parents[1] / ".demo")


def planes(start: DateTime, end: DateTime) -> DataFrame:
    """One row for each plane and carrier: ``tailnum``, ``carrier``, and ``seen_at``, when it first left so in the
    interval; planes that changed their carrier have two."""
    import pandas as pd

    flights = flights_feed.read_flights()
    flights["seen_at"] = pd.to_datetime(flights["time_hour"])
    flown = flights[flights["dep_time"].notna() & flights["tailnum"].notna()]
    flown = flown[(flown["seen_at"] >= start) & (flown["seen_at"] < end)]
    return flown.groupby(["tailnum", "carrier"], as_index=False)["seen_at"].min()


def write_planes(name: str, start: DateTime, end: DateTime) -> str:
    """Write them as Parquet, in microseconds as Spark has them, and return the path."""
    path = FOLDER / "feeds" / f"{name}-{start.date()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    planes(start, end).to_parquet(path, coerce_timestamps="us", index=False)
    return str(path)
