"""The demo's data rule: what each day's feed says, and that the feeds add up."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import flights_feed
from flights_feed import KEYS, TABLE_COLUMNS, changes, snapshot
from tests.readable_ids import readable

KEY = list(KEYS)
ACTUALS = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]


def merged(table: pd.DataFrame, feed: pd.DataFrame) -> pd.DataFrame:
    """The demo's MERGE in plain pandas: newer reports win, cancelled flights go, unknown ones come."""
    pairs = feed.merge(table[[*KEY, "reported_on"]], on=KEY, how="left", suffixes=("", "_there"))
    there = pairs["reported_on_there"].notna()
    newer = there & (pairs["reported_on"] > pairs["reported_on_there"])
    stays = pairs[(newer | ~there) & ~pairs["cancelled"]]
    goes = pd.MultiIndex.from_frame(pairs[newer][KEY])
    kept = table[~pd.MultiIndex.from_frame(table[KEY]).isin(goes)]
    return pd.concat([kept, stays[list(TABLE_COLUMNS)]], ignore_index=True)


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(KEY).reset_index(drop=True)


def test_the_data_are_the_336776_flights_of_2013(all_flights: pd.DataFrame) -> None:
    assert len(all_flights) == 336_776
    assert not all_flights.duplicated(KEY).any()


def test_changes_added_to_a_snapshot_give_the_next_snapshot(flights: pd.DataFrame, days: list[date]) -> None:
    table = snapshot(flights, days[0])
    for day in days[1:]:
        table = merged(table, changes(flights, day))
        pd.testing.assert_frame_equal(in_order(table), in_order(snapshot(flights, day)))


def test_the_same_changes_twice_change_nothing(flights: pd.DataFrame, days: list[date]) -> None:
    table = snapshot(flights, days[1])
    pd.testing.assert_frame_equal(merged(table, changes(flights, days[1])), table)


@pytest.mark.parametrize(
    "day", [date(2013, 1, 1), date(2013, 1, 2), date(2013, 3, 10), date(2013, 12, 31)], ids=readable
)
def test_any_day_of_the_year_follows_from_the_day_before(all_flights: pd.DataFrame, day: date) -> None:
    flights = all_flights[(pd.Timestamp(day) - all_flights["flight_date"]).dt.days < 40]
    before = snapshot(flights, day - timedelta(days=1))
    pd.testing.assert_frame_equal(in_order(merged(before, changes(flights, day))), in_order(snapshot(flights, day)))


def test_a_flight_of_the_day_has_its_schedule_only(flights: pd.DataFrame, days: list[date]) -> None:
    feed = changes(flights, days[1])
    today = feed[feed["flight_date"] == pd.Timestamp(days[1])]
    assert len(today) == (flights["flight_date"] == pd.Timestamp(days[1])).sum()
    assert today[ACTUALS].isna().all().all()
    assert not today["cancelled"].any()


def test_a_flight_without_departure_is_withdrawn_a_day_later(flights: pd.DataFrame, days: list[date]) -> None:
    never_left = flights[(flights["flight_date"] == pd.Timestamp(days[0])) & flights["dep_time"].isna()]
    feed = changes(flights, days[1])
    assert len(never_left) > 0
    pd.testing.assert_frame_equal(in_order(feed[feed["cancelled"]][KEY]), in_order(never_left[KEY]))
    stayed = snapshot(flights, days[1]).merge(never_left[KEY], on=KEY)
    assert stayed.empty


def test_a_very_late_or_diverted_flight_gets_its_arrival_30_days_later(flights: pd.DataFrame) -> None:
    day = date(2013, 12, 1)
    key = ["flight_date", *KEY[1:]]
    on_the_day = flights["flight_date"] == pd.Timestamp(day)
    late = flights[on_the_day & flights["dep_time"].notna() & ~(flights["arr_delay"] < flights_feed.LATE_MINUTES)]
    assert 0 < len(late) < 50

    next_day = changes(flights, day + timedelta(days=1)).merge(late[key], on=key)
    assert next_day["dep_time"].notna().all()
    assert next_day[["arr_time", "arr_delay", "air_time"]].isna().all().all()

    feed = changes(flights, day + timedelta(days=flights_feed.CORRECTION_AFTER_DAYS))
    corrected = feed[feed["flight_date"] == pd.Timestamp(day)]
    reported = corrected.merge(late, on=key, suffixes=("", "_final"))
    assert len(corrected) == len(reported) == len(late)
    for column in ACTUALS:
        assert reported[column].astype("float").equals(reported[f"{column}_final"].astype("float"))


def test_corrections_concern_known_flights_only(flights: pd.DataFrame, days: list[date]) -> None:
    known = pd.MultiIndex.from_frame(snapshot(flights, days[0])[KEY])
    feed = changes(flights, days[1])
    earlier = feed[feed["flight_date"] < pd.Timestamp(days[1])]
    assert pd.MultiIndex.from_frame(earlier[KEY]).isin(known).all()
    assert not feed.duplicated(KEY).any()


def test_a_feed_is_small_and_reaches_back_one_month_at_most(flights: pd.DataFrame, days: list[date]) -> None:
    for day in days[1:]:
        feed = changes(flights, day)
        assert len(feed) < 3_000
        assert feed["flight_month"].nunique() <= 2


def test_the_same_day_gives_the_same_feed(flights: pd.DataFrame, days: list[date]) -> None:
    shuffled = flights.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(in_order(changes(flights, days[2])), in_order(changes(shuffled, days[2])))


def test_the_feed_file_has_the_types_of_the_table(flights: pd.DataFrame, days: list[date], tmp_path: Path) -> None:
    path = flights_feed.write_parquet(changes(flights, days[2]), tmp_path / "feeds" / "day.parquet")
    schema = pq.read_schema(path)
    spelled = {"date32[day]": "DATE", "string": "STRING", "int32": "INT", "bool": "BOOLEAN"}
    assert {field.name: spelled[str(field.type)] for field in schema} == {**TABLE_COLUMNS, "cancelled": "BOOLEAN"}
    assert set(pq.read_table(path).column("flight_date").to_pylist()) == {days[1], days[2], date(2013, 12, 1)}
