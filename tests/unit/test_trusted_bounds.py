"""The rule by which bounds leave a file out: none that holds the value, whoever wrote the bounds."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_delta_merge.engine.data_files.trusted_bounds import (
    OpenRange,
    leaves_files_out,
    leaves_rows_out,
    of_partition,
    with_margin,
)

FIRST_DAY = (datetime.date(1583, 1, 1) - datetime.date(1970, 1, 1)).days
DAY = 24 * 60 * 60 * 1_000_000
LONG = st.integers(-(2**63), 2**63 - 1)
#: Texts as their bytes, UTF-8 or not.
BYTES = st.one_of(
    st.text(max_size=40).map(str.encode),
    st.text(alphabet="a\u00e9\ufffc\U00010000", max_size=40).map(str.encode),
    st.binary(max_size=4),
    st.tuples(st.text(alphabet="ab", max_size=3), st.binary(max_size=3)).map(lambda two: two[0].encode() + two[1]),
)


@pytest.mark.parametrize(
    ("type_", "files", "rows"),
    [
        *((type_, True, True) for type_ in ("tinyint", "smallint", "int", "bigint", "date", "string")),
        *((type_, True, True) for type_ in ("timestamp", "timestamp_ntz")),
        *((type_, False, False) for type_ in ("float", "double", "boolean", "binary", "interval day", "variant")),
        *((type_, False, False) for type_ in ("string collate UTF8_LCASE", "decimal(16,2)", "decimal(38,18)")),
        ("decimal(15,2)", True, False),
    ],
)
def test_types(type_: str, files: bool, rows: bool) -> None:
    assert (leaves_files_out(type_), leaves_rows_out(type_)) == (files, rows)


def test_partitions_of_any_decimal_leave_files_out() -> None:
    """Spark takes their values from the very text that is compared."""
    assert leaves_files_out("decimal(38,18)", of_partition=True)
    assert not leaves_files_out("double", of_partition=True)


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        ("int", (5, 10), (5, 10)),
        ("bigint", (-(2**53), 2**53), (-(2**53), 2**53)),
        ("bigint", (2**60, 2**63 - 1), (2**60 - 256, 2**63 - 1)),
        ("date", (0, 19_000), (0, 19_000)),
        ("date", (-200_000, -190_000), (None, FIRST_DAY)),
        ("date", (19_000, 3_000_000), (19_000, None)),
        ("decimal(9,2)", (Decimal("1.10"), Decimal("2.00")), (Decimal("1.09"), Decimal("2.01"))),
        ("decimal(3,2)", (Decimal("-9.99"), Decimal("9.99")), (Decimal("-9.99"), Decimal("9.99"))),
        ("string", ("abc", "abd"), ("abc", "abe")),
        ("string", ("x" * 40, "x" * 40), ("x" * 32, "x" * 31 + "y")),
        ("string", ("caf\ufffd1", "caf\ufffd9"), ("caf", "cag")),
        ("string", ("", "\ufffd"), ("", None)),
        ("string", ("ab   ", "ab   "), ("ab", "ac")),
        ("string", ("a", "x?\ufffd"), ("a", "y")),  # a half of a character, and what Delta puts behind
        ("string", ("a", "x" * 31 + "?"), ("a", "x" * 30 + "y")),
        ("string", ("a", "who?"), ("a", "who@")),
    ],
)
def test_margins(type_: str, values: tuple[Any, Any], expected: OpenRange) -> None:
    assert with_margin(type_, values, in_utc=True) == expected


def test_a_moment_has_a_minute_or_a_day_where_zones_may_be_missing() -> None:
    noon = 1_700_000_000_000_000
    assert with_margin("timestamp", (noon, noon), in_utc=True) == (noon - 61_000_000, noon + 61_000_000)
    assert with_margin("timestamp", (noon, noon), in_utc=False) == (noon - DAY, noon + DAY)


def test_partitions_of_texts_are_exact_but_for_blanks_and_lost_bytes() -> None:
    assert of_partition("string", ("Köln  ", "Zürich" * 10), in_utc=True) == ("Köln", "Zürich" * 10)
    assert of_partition("string", ("a\ufffd", "b"), in_utc=True) == ("a", "c")
    assert of_partition("int", (2**60, 2**60), in_utc=True) == (2**60, 2**60)


# --- whoever wrote the bounds ---


def is_chosen(type_: str, key: OpenRange, bounds: tuple[Any, Any], *, ascii_only: bool, in_utc: bool = True) -> bool:
    """Whether a file with these bounds is a candidate for a key; by Delta's job they are taken as they are."""
    (smallest, largest), (low, high) = key, bounds
    if type_ == "bigint" and ascii_only:
        low, high = _read_by_spark(low), _read_by_spark(high)
    elif not ascii_only:
        low, high = with_margin(type_, bounds, in_utc=in_utc)
    is_below = smallest is not None and high is not None and order(high) < order(smallest)
    is_above = largest is not None and low is not None and order(low) > order(largest)
    return not is_below and not is_above


def _read_by_spark(number: int) -> int | None:
    """As Delta's job reads a whole number in the statistics: what is too large for its type is not known."""
    return number if -(2**63) <= number < 2**63 else None


def order(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def through_a_double(number: int) -> int:
    return int(json.loads(json.dumps(float(number))))


@pytest.mark.parametrize("written", [int, through_a_double], ids=["exactly", "through a double"])
@given(others=st.lists(LONG, min_size=1, max_size=3), key=LONG, more=LONG, ascii_only=st.booleans())
@example(others=[2**63 - 512], key=2**63 - 512, more=0, ascii_only=True)
def test_whole_numbers(written: Callable[[int], int], others: list[int], key: int, more: int, ascii_only: bool) -> None:
    bounds = written(min([*others, key])), written(max([*others, key]))
    values = with_margin("bigint", (min(key, more), max(key, more)), in_utc=True)
    assert is_chosen("bigint", values, bounds, ascii_only=ascii_only)


def unscaled_double(value: Decimal) -> Decimal:
    """As delta-rs: the unscaled number, divided by a power of ten, both doubles."""
    scale = -int(value.as_tuple().exponent)
    return Decimal(json.dumps(int(value.scaleb(scale)) / 10.0**scale))


def times_a_fraction(value: Decimal) -> Decimal:
    scale = -int(value.as_tuple().exponent)
    return Decimal(json.dumps(int(value.scaleb(scale)) * 10.0**-scale))


@pytest.mark.parametrize(
    "written",
    [
        lambda value: value,
        lambda value: Decimal(json.dumps(float(value))),
        unscaled_double,
        times_a_fraction,
    ],
    ids=["exactly", "a double", "an unscaled double", "a double times a fraction"],
)
@given(
    precision=st.integers(1, 15),
    scale=st.integers(0, 15),
    numbers=st.lists(st.integers(-(10**15) + 1, 10**15 - 1), min_size=2, max_size=4),
    ascii_only=st.booleans(),
)
def test_decimals(
    written: Callable[[Decimal], Decimal], precision: int, scale: int, numbers: list[int], ascii_only: bool
) -> None:
    scale = min(precision, scale)
    most = 10**precision
    values = [Decimal(int(number / abs(number or 1)) * (abs(number) % most)).scaleb(-scale) for number in numbers]
    key = values[0]
    type_ = f"decimal({precision},{scale})"
    # Spark reads a bound as one of the column's type.
    low, high = (
        written(bound).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_EVEN) for bound in (min(values), max(values))
    )
    assert is_chosen(type_, with_margin(type_, (key, key), in_utc=True), (low, high), ascii_only=ascii_only)


def cut_to_milliseconds(micros: int) -> int:
    return micros // 1000 * 1000


def as_julian(days: int) -> int:
    """What Spark 2 wrote for a day before October 1582, read by the other calendar; up to ten days off."""
    return days + (10 if -200_000 < days < -141_427 else 0)


@given(days=st.lists(st.integers(-719_162, 2_932_896), min_size=1, max_size=4), ascii_only=st.booleans())
def test_dates(days: list[int], ascii_only: bool) -> None:
    bounds = as_julian(min(days)), as_julian(max(days))
    assert is_chosen("date", with_margin("date", (days[0], days[0]), in_utc=True), bounds, ascii_only=ascii_only)


@given(
    moments=st.lists(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999), min_size=1, max_size=4),
    seconds=st.integers(-59, 59),
    hours=st.integers(-12, 14),
    in_utc=st.booleans(),
    ascii_only=st.booleans(),
)
def test_moments(moments: list[int], seconds: int, hours: int, in_utc: bool, ascii_only: bool) -> None:
    """Cut to milliseconds, with a zone cut to minutes, or, if the session's isn't UTC, without one."""
    off = seconds * 1_000_000 + (0 if in_utc else hours * 3_600_000_000)
    # Delta takes the greatest for one millisecond more.
    bounds = cut_to_milliseconds(min(moments)) + off, cut_to_milliseconds(max(moments)) + off + 1000
    if abs(off) >= DAY:
        return
    key = with_margin("timestamp", (moments[0], moments[0]), in_utc=in_utc)
    assert is_chosen("timestamp", key, bounds, ascii_only=ascii_only, in_utc=in_utc)


def as_text(utf8: bytes) -> str:
    """As Java, Rust and Python read bytes that may be no UTF-8."""
    return utf8.decode("utf-8", "replace")


def by_utf16(utf8: bytes) -> bytes:
    return as_text(utf8).encode("utf-16-be")


def whole(text: str) -> str:
    return text


TEXT_WRITERS: dict[str, tuple[Callable[[bytes], Any], Callable[[str], str], Callable[[str], str]]] = {
    "whole": (bytes, whole, whole),
    "32 characters, U+FFFD": (bytes, lambda low: low[:32], lambda high: cut_above(high, "\ufffd")),
    "32 characters, U+10FFFF": (bytes, lambda low: low[:32], lambda high: cut_above(high, "\U0010ffff")),
    "32 characters, DEL": (bytes, lambda low: low[:32], lambda high: cut_above(high, "\x7f")),
    "32 characters, nothing behind them": (bytes, lambda low: low[:32], lambda high: high[:32]),
    "in the order of UTF-16": (by_utf16, whole, whole),
    "64 bytes": (
        bytes,
        lambda low: low.encode()[:64].decode("utf-8", "ignore"),
        lambda high: high if len(high.encode()) <= 64 else high.encode()[:64].decode("utf-8", "ignore") + "\U0010ffff",
    ),
    "CHAR without its blanks": (bytes, lambda low: low.rstrip(" "), lambda high: high.rstrip(" ")),
}


def cut_above(text: str, tie_breaker: str) -> str:
    """Cut behind the first character, of those that may be cut, that is less than the tie breaker."""
    for position in range(32, len(text)):
        if text[position] < tie_breaker:
            return text[:position] + tie_breaker
    return text


@pytest.mark.parametrize("writer", TEXT_WRITERS)
@given(keys=st.lists(BYTES, min_size=2, max_size=2), others=st.lists(BYTES, max_size=3), ascii_only=st.booleans())
def test_texts(writer: str, keys: list[bytes], others: list[bytes], ascii_only: bool) -> None:
    """The file holds the first key; the source both."""
    ordered, low, high = TEXT_WRITERS[writer]
    in_file = sorted([*others, keys[0]], key=ordered)
    bounds = low(as_text(in_file[0])), high(as_text(in_file[-1]))
    of_source = with_margin("string", (as_text(min(keys)), as_text(max(keys))), in_utc=True, ascii_only=ascii_only)
    assert is_chosen("string", of_source, bounds, ascii_only=ascii_only)


@given(texts=st.lists(BYTES, min_size=1, max_size=4))
def test_all_of_a_files_texts_are_in_what_its_bounds_become(texts: list[bytes]) -> None:
    low, high = with_margin("string", (as_text(min(texts)), as_text(max(texts))), in_utc=True)
    assert low.encode() <= min(texts)
    assert high is None or max(texts) < high.encode()


def test_the_first_day_and_the_last_that_writers_agree_on() -> None:
    last = (datetime.date(9999, 12, 30) - datetime.date(1970, 1, 1)).days
    assert with_margin("date", (FIRST_DAY, last), in_utc=True) == (FIRST_DAY, last)
    assert with_margin("date", (FIRST_DAY - 1, last + 1), in_utc=True) == (None, None)
