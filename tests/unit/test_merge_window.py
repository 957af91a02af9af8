"""Windows: which span of a column's values a merge is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, MergeWindow, from_json, to_json
from airflow_delta_merge.exceptions import MergeConfigError
from tests.readable_ids import readable

DAY = {"column": "at", "start": "2024-03-30T23:00:00+00:00", "end": "2024-03-31T22:00:00+00:00"}
BERLIN = {**DAY, "timezone": "Europe/Berlin"}  # the day has 23 hours there
CAIRO = {"column": "at", "column_type": "date", "timezone": "Africa/Cairo"}


@pytest.mark.parametrize(
    ("window", "span"),
    [
        (
            DAY,
            "`at` >= TIMESTAMP_LTZ '2024-03-30 23:00:00+00:00' AND `at` < TIMESTAMP_LTZ '2024-03-31 22:00:00+00:00'",
        ),
        (
            {**BERLIN, "column_type": "timestamp_ntz"},
            "`at` >= TIMESTAMP_NTZ '2024-03-31 00:00:00' AND `at` < TIMESTAMP_NTZ '2024-04-01 00:00:00'",
        ),
        ({**BERLIN, "column_type": "date"}, "`at` >= DATE '2024-03-31' AND `at` < DATE '2024-04-01'"),
        ({**BERLIN, "column_type": "string"}, "`at` >= '2024-03-31' AND `at` < '2024-04-01'"),
        (
            # Without an offset it is local time, and a name may be odd.
            {**BERLIN, "column": "`a.b`", "column_type": "date", "start": "2024-03-31", "end": "2024-04-02 00:00"},
            "`a.b` >= DATE '2024-03-31' AND `a.b` < DATE '2024-04-02'",
        ),
        (
            # From 2 o'clock summer time to 2 o'clock winter time.
            {**BERLIN, "start": "2024-10-27T00:00Z", "end": "2024-10-27T01:00Z"},
            "`at` >= TIMESTAMP_LTZ '2024-10-27 00:00:00+00:00' AND `at` < TIMESTAMP_LTZ '2024-10-27 01:00:00+00:00'",
        ),
        (
            # There clocks went from midnight to 1 o'clock.
            {**CAIRO, "start": "2024-04-25T22:00Z", "end": "2024-04-26T21:00Z"},
            "`at` >= DATE '2024-04-26' AND `at` < DATE '2024-04-27'",
        ),
        (
            {**CAIRO, "start": "2024-04-25", "end": "2024-04-26"},
            "`at` >= DATE '2024-04-25' AND `at` < DATE '2024-04-26'",
        ),
        (
            {**DAY, "column_type": "date", "timezone": "+05:30", "start": "2024-03-31", "end": "2024-04-01"},
            "`at` >= DATE '2024-03-31' AND `at` < DATE '2024-04-01'",
        ),
    ],
    ids=[
        "timestamps",
        "timestamps without a zone",
        "dates",
        "dates as texts",
        "local dates of an odd name",
        "the hour that comes twice",
        "a day without a midnight",
        "the day before it",
        "an offset as time zone",
    ],
)
def test_a_span_in_sql(window: dict[str, Any], span: str) -> None:
    assert MergeWindow(**window).source_condition() == span


def test_a_date_column_of_the_target_is_bounded_too() -> None:
    window = MergeWindow(**{**BERLIN, "date_column": "day"})
    assert window.target_condition("`t`").startswith(
        "`t`.`day` >= DATE '2024-03-31' AND `t`.`day` <= DATE '2024-03-31'"
    )
    an_hour = MergeWindow(column="at", start="2024-03-31T23:00", end="2024-04-01T01:00", date_column="day")
    assert "`t`.`day` >= DATE '2024-03-31' AND `t`.`day` <= DATE '2024-04-01'" in an_hour.target_condition("`t`")


def test_a_date_column_is_bounded_by_the_last_moment_where_clocks_go_back_at_midnight() -> None:
    window = {"column": "at", "date_column": "day", "timezone": "America/Havana"}
    two_hours = MergeWindow(**window, start="2024-11-03T03:00Z", end="2024-11-03T05:00Z")
    assert "`t`.`day` >= DATE '2024-11-02' AND `t`.`day` <= DATE '2024-11-03'" in two_hours.target_condition("`t`")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"column": ""}, "some text for a window's column"),
        ({"column_type": "time"}, "must be one of timestamp, timestamp_ntz, date, string"),
        ({"timezone": "Mars/Olympus"}, "no timezone 'Mars/Olympus'"),
        ({"timezone": "Europe"}, "no timezone 'Europe'"),  # a folder of zones
        ({**BERLIN, "start": "0001-01-01"}, "start must be within the years 1 to 9999 in each time zone"),
        ({"end": "9999-12-31T23:00", "timezone": "America/New_York"}, "end must be within the years 1 to 9999"),
        ({"start": "yesterday"}, "window's start must be a timestamp like .* got 'yesterday'"),
        ({"start": ""}, "no data interval"),
        ({"end": DAY["start"]}, "is empty. If it is the run's data interval"),
        ({"start": DAY["end"], "end": DAY["start"]}, "is empty. Its end must be after its start"),
        ({"column_type": "date"}, "has no whole days in UTC"),
        (
            {**BERLIN, "column_type": "date", "date_column": "day"},
            "date_column is only available for a column of timestamps",
        ),
        # From 2:30 summer time to 2:15 winter time: 45 minutes, but back by the clock.
        (
            {**BERLIN, "column_type": "timestamp_ntz", "start": "2024-10-27T00:30Z", "end": "2024-10-27T01:15Z"},
            "is empty. .* local time of Europe/Berlin",
        ),
    ],
    ids=readable,
)
def test_what_is_no_window(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        MergeWindow(**{**DAY, **changes})


def test_the_statement_is_bound_to_it_on_both_sides() -> None:
    config = MergeConfig(
        target="t",
        source="s",
        on="target.id = source.id -- a comment",
        clauses=[
            {"kind": "not_matched_by_source", "action": "delete", "condition": "target.a OR target.b"},
            {"kind": "matched", "action": "delete"},
        ],
        window={**BERLIN, "column": "day", "column_type": "date"},
    )
    assert config.to_sql() == (
        "MERGE INTO `t` AS `target`\n"
        "USING (\nSELECT * FROM `s` WHERE `day` >= DATE '2024-03-31' AND `day` < DATE '2024-04-01'\n) AS `source`\n"
        "ON `target`.`day` >= DATE '2024-03-31' AND `target`.`day` < DATE '2024-04-01' AND (\n"
        "  target.id = source.id -- a comment\n)\n"
        "WHEN MATCHED THEN DELETE\n"
        "WHEN NOT MATCHED BY SOURCE AND (\n"
        "  `target`.`day` >= DATE '2024-03-31' AND `target`.`day` < DATE '2024-04-01' AND (\n"
        "  target.a OR target.b\n)\n) THEN DELETE"
    )
    assert from_json(to_json(config)) == config


def test_moments_are_kept_as_utc() -> None:
    by_text = MergeWindow(**{**DAY, "start": "2024-03-31T00:00:00+01:00"})
    by_value = MergeWindow(**{**DAY, "start": datetime(2024, 3, 30, 23, tzinfo=UTC)})
    assert by_text == by_value == MergeWindow(**DAY)
