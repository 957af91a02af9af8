"""The demo's flights of December 2013: what its feed says on each of some days."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "dags"))

import flights_feed

FIRST_DAY, LAST_DAY = datetime(2013, 12, 5), datetime(2013, 12, 28)


def feeds(folder: Path) -> Path:
    """Where the feeds are."""
    return folder / "feeds"


def write_feeds(folder: Path) -> int:
    """Write each day's feed; the first is all that is known by then of the month. Returns their number."""
    flights = flights_feed.read_flights()
    flights = flights[flights["month"] == FIRST_DAY.month]
    days = [(FIRST_DAY + timedelta(days=day)).date() for day in range((LAST_DAY - FIRST_DAY).days + 1)]
    for day in days:
        if day == days[0]:
            feed = flights_feed.snapshot(flights, day).assign(cancelled=False)
        else:
            feed = flights_feed.changes(flights, day)
        flights_feed.write_parquet(feed, feeds(folder) / f"{day}.parquet")
    return len(days)
