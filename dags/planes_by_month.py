"""Which planes flew from New York, by which carrier, in a month of 2013: what the examples of patterns merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import task

import flights_feed

if TYPE_CHECKING:
    from pandas import DataFrame
    from pendulum import DateTime


def read_planes(start: DateTime, end: DateTime) -> DataFrame:
    """One row for each plane and carrier: ``tailnum``, ``carrier``, and ``seen_at``, when it first left so in the
    interval; planes that changed their carrier have two."""
    import pandas as pd

    flights = flights_feed.read_flights()
    flights["seen_at"] = pd.to_datetime(flights["time_hour"])
    flown = flights[flights["dep_time"].notna() & flights["tailnum"].notna()]
    flown = flown[(flown["seen_at"] >= start) & (flown["seen_at"] < end)]
    return flown.groupby(["tailnum", "carrier"], as_index=False)["seen_at"].min()


@task
def planes(name: str, data_interval_start: DateTime | None = None, data_interval_end: DateTime | None = None) -> str:
    """Write the interval's planes as Parquet, in microseconds as Spark has them, and return the path."""
    assert data_interval_start is not None
    assert data_interval_end is not None
    path = flights_feed.FOLDER / "feeds" / f"{name}-{data_interval_start.date()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    read_planes(data_interval_start, data_interval_end).to_parquet(path, coerce_timestamps="us", index=False)
    return str(path)
