"""What the tables hold, and whether it is what pandas makes of the same data, as JSON.

Runs inside the scheduler's container, which has the volume and the keys: ``python - < tables.py``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, "/airflow/dags")

import pandas as pd
from deltalake import DeltaTable

import flights_feed
import planes_by_month

ZONE = "America/New_York"
Rows = set[tuple[Any, ...]]


def flights() -> Rows:
    known = flights_feed.snapshot(flights_feed.read_flights(), date(2013, 12, 31))
    return _rows(_as_in_the_feed(known), flights_feed.TABLE_COLUMNS)


def flights_changes() -> Rows:
    """Flights that were cancelled before the table knew them are in it, marked."""
    changes = _as_in_the_feed(flights_feed.changes(flights_feed.read_flights(), date(2013, 6, 14)))
    return _rows(changes.rename(columns={"cancelled": "is_cancelled"}), [*flights_feed.KEYS, "is_cancelled"])


def weather() -> Rows:
    hours = pd.read_csv(flights_feed.packaged_data() / "weather.csv")
    hours["observed_at"] = pd.to_datetime(hours["time_hour"], utc=True)
    local = hours["observed_at"].dt.tz_convert(ZONE)
    return _rows(hours[local.dt.date == date(2013, 3, 9)], ["origin", "observed_at"])


def planes() -> Rows:
    return _rows(_latest(_planes("2013-01", "2013-02")), ["tailnum", "carrier"])


def planes_in_service() -> Rows:
    return _rows(_latest(_planes("2013-01")).assign(is_grounded=False), ["tailnum", "carrier", "is_grounded"])


def planes_first_seen() -> Rows:
    return _rows(_planes("2013-01").groupby("tailnum", as_index=False)["seen_at"].min(), ["tailnum", "seen_at"])


def planes_carriers() -> Rows:
    """Of a plane with two carriers the earlier one has ended."""
    found = _planes("2013-03").sort_values("seen_at")
    found["is_current"] = ~found.duplicated("tailnum", keep="last")
    return _rows(found, ["tailnum", "carrier", "seen_at", "is_current"])


#: For each table its expected rows, and the columns of the table that are compared with them.
TABLES: dict[str, tuple[Callable[[], Rows], list[str]]] = {
    "flights": (flights, list(flights_feed.TABLE_COLUMNS)),
    "flights_changes": (flights_changes, [*flights_feed.KEYS, "is_cancelled"]),
    "weather": (weather, ["origin", "observed_at"]),
    "s3://lake/planes": (planes, ["tailnum", "carrier"]),
    "planes_in_service": (planes_in_service, ["tailnum", "carrier", "is_grounded"]),
    "planes_first_seen": (planes_first_seen, ["tailnum", "first_seen_at"]),
    "planes_carriers": (planes_carriers, ["tailnum", "carrier", "valid_from", "is_current"]),
}


def main(what: str) -> None:
    if what == "examples":
        print(json.dumps({name: _compare(name, *arguments) for name, arguments in TABLES.items()}))
    else:
        print(json.dumps(_state(_table(what))))


def _compare(name: str, expect: Callable[[], Rows], columns: list[str]) -> dict[str, Any]:
    table = _table(name)
    found = table.to_pandas(columns=columns)
    rows, expected = _rows(found, columns), expect()
    differing = sorted(map(str, rows ^ expected))[:3] or (["some twice"] if len(rows) != len(found) else [])
    return {**_state(table), "differing": differing}


def _state(table: DeltaTable) -> dict[str, Any]:
    """Rows, and the commits: what must be the same before and after."""
    found = table.to_pandas()
    return {
        "rows": len(found),
        "version": table.version(),
        "merges": sum(commit["operation"] == "MERGE" for commit in table.history()),
        "counts": sorted(found["n"].unique().tolist()) if "n" in found else [],
    }


def _table(name: str) -> DeltaTable:
    if not name.startswith("s3://"):
        return DeltaTable(str(flights_feed.FOLDER / name))
    lake = json.loads(os.environ["AIRFLOW_CONN_LAKE"])
    options = {
        "AWS_ACCESS_KEY_ID": lake["login"],
        "AWS_SECRET_ACCESS_KEY": lake["password"],
        "AWS_REGION": lake["extra"]["region_name"],
        "AWS_ENDPOINT_URL": lake["extra"]["endpoint_url"],
        "AWS_ALLOW_HTTP": "true",
    }
    return DeltaTable(name, storage_options=options)


def _planes(*months: str) -> pd.DataFrame:
    starts = [pd.Timestamp(month, tz=ZONE) for month in months]
    return pd.concat([planes_by_month.read_planes(start, start + pd.DateOffset(months=1)) for start in starts])


def _latest(found: pd.DataFrame) -> pd.DataFrame:
    return found.sort_values("seen_at").drop_duplicates("tailnum", keep="last")


def _as_in_the_feed(found: pd.DataFrame) -> pd.DataFrame:
    """Through Parquet, which gives dates and whole numbers the types that the table has."""
    path = Path("/tmp/expected.parquet")
    return pd.read_parquet(flights_feed.write_parquet(found, path))


def _rows(found: pd.DataFrame, columns: Iterable[str]) -> Rows:
    """Rows that are equal whatever pandas has made of their types."""
    plain = found[list(columns)].copy()
    for column in plain.select_dtypes("datetimetz"):
        plain[column] = plain[column].dt.tz_convert("UTC").dt.as_unit("us").astype("int64")
    return set(map(tuple, plain.astype(str).itertuples(index=False)))


if __name__ == "__main__":
    main(sys.argv[1])
    # Arrow's threads may still read for delta-rs while Python takes its libraries down, which then aborts.
    sys.stdout.flush()
    os._exit(0)
