"""Which bounds of a column can be trusted to leave a file out, and how far they are widened first.

The log holds the least and the greatest value of a column in each file as the file's writer wrote them, and writers
round, cut and replace values on their way to JSON. Values that this engine takes from the source pass through the
JVM's and Python's texts, too. So a range of values and a file's bounds are compared with a margin that covers what
writers are known to do, and types for which no margin would do leave no file out. ``docs/strategies.md`` lists what was
checked for each writer.

Values are compared in these forms: whole numbers as they are, dates as days and timestamps as microseconds since 1970,
decimals as ``Decimal``, texts as texts.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

#: From the smallest to the greatest value, both included.
Range = tuple[Any, Any]
#: The same; None where there is no end.
OpenRange = tuple[Any | None, Any | None]

#: Bits of the whole numbers, by their types as Spark SQL writes them.
INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_MOMENTS = frozenset({"timestamp", "timestamp_ntz"})
#: Floating point is left out (writers differ in NaN, -0.0 and infinity), as are binary values and boolean ones, and
#: texts under a collation other than the binary one.
_ORDERED = frozenset({*INTEGER_BITS, *_MOMENTS, "date", "string"})

#: A double keeps so many digits of any decimal.
_DIGITS_OF_A_DOUBLE = 15
#: A double keeps each whole number up to here; beyond, the error is less than the number divided by 2^52.
_WHOLE_IN_A_DOUBLE = 1 << 53
_GREATEST_INTEGER = (1 << 63) - 1

#: Delta 3.2 and 3.3 cut zone offsets to minutes, and all cut the greatest value to milliseconds.
_SECOND = 1_000_000
_MINUTE = 61 * _SECOND
_DAY_IN_MICROS = 24 * 60 * 60 * _SECOND
_EPOCH = datetime.date(1970, 1, 1)
#: Spark 2 wrote dates by the Julian calendar before October 1582, and times by other zones before 1900. Beyond 9999
#: writers differ in how they write a year.
_FIRST_DAY = (datetime.date(1583, 1, 1) - _EPOCH).days
_FIRST_MOMENT = (datetime.date(1900, 1, 3) - _EPOCH).days * _DAY_IN_MICROS
_LAST_DAY = (datetime.date(9999, 12, 30) - _EPOCH).days

#: Delta and others keep so many characters of a text, whatever they put behind them.
_KEPT_OF_A_TEXT = 32
#: What a writer's JSON keeps as it is, in an order that is the same by bytes and by UTF-16: no surrogates, no U+FFFD in
#: place of bytes that are no UTF-8, and nothing that sorts below the blanks with which a CHAR is filled.
_KEPT = re.compile("[ -\ud7fe]*")
#: The same where no bytes that are no UTF-8 can stand for what comes after it.
_ASCII = re.compile("[ -~]*")


def leaves_files_out(type_: str, *, of_partition: bool = False) -> bool:
    """Whether a column of this type may leave a file out by its bounds.

    :param type_: as Spark SQL writes it.
    :param of_partition: whether the table is partitioned by the column: Spark takes its values from the log.
    """
    digits = _digits(type_)
    if digits is not None:
        return of_partition or digits <= _DIGITS_OF_A_DOUBLE
    return type_ in _ORDERED


def leaves_rows_out(type_: str) -> bool:
    """Whether predicates on a column may be pushed down to the statistics in Parquet's footers.

    Several writers compare decimals there as bytes without a sign.
    """
    return type_ in _ORDERED


def with_margin(type_: str, values: Range, *, in_utc: bool, ascii_only: bool = False) -> OpenRange:
    """The range in which bounds may lie of a file that holds one of these values; None for an end that is not known.

    It works both ways: of a file's bounds it gives the range in which its values may lie.

    :param type_: one for which :func:`leaves_files_out`.
    :param values: the smallest and the greatest.
    :param in_utc: whether the session's time zone is UTC. Some writers leave the zone out, which Delta then takes for
        the session's.
    :param ascii_only: whether the other side of the comparison may hold texts that were no UTF-8, which can't be seen
        here; texts are compared by what is ASCII then.
    """
    low, high = values
    if type_ in INTEGER_BITS:
        low, high = low - _error_of_a_double(low), high + _error_of_a_double(high)
        return max(low, -_GREATEST_INTEGER - 1), min(high, _GREATEST_INTEGER)
    if type_ == "date":
        return _between(low, high, _FIRST_DAY, _LAST_DAY)
    if type_ in _MOMENTS:
        margin = _MINUTE if in_utc else _DAY_IN_MICROS
        return _between(low - margin, high + margin, _FIRST_MOMENT, _LAST_DAY * _DAY_IN_MICROS)
    if type_ == "string":
        kept = _ASCII if ascii_only else _KEPT
        # Nobody cuts or replaces an empty text; as a CHAR it is filled with blanks.
        return _beginning(low, kept), _after(_beginning(high, kept)) if high else "!"
    precision, scale = map(int, re.findall(r"-?\d+", type_))
    least = Decimal(1).scaleb(-scale)
    greatest = Decimal(10**precision - 1).scaleb(-scale)
    return max(low - least, -greatest), min(high + least, greatest)


def of_partition(type_: str, values: Range, *, in_utc: bool) -> OpenRange:
    """The same for a partition column. The log has its values as text, in full."""
    if type_ in _MOMENTS:
        return with_margin(type_, values, in_utc=in_utc)
    if type_ != "string":
        return values
    low, high = values
    if all("\ufffd" not in text and min(text, default=" ") >= " " for text in values):
        return low.rstrip(" "), high
    return with_margin(type_, values, in_utc=in_utc, ascii_only=True)


def _digits(type_: str) -> int | None:
    found = re.fullmatch(r"decimal\((\d+),-?\d+\)", type_)
    return int(found[1]) if found else None


def _error_of_a_double(number: int) -> int:
    return 0 if abs(number) <= _WHOLE_IN_A_DOUBLE else abs(number) >> 52


def _between(low: int, high: int, first: int, last: int) -> OpenRange:
    """A range, without an end where it goes beyond what writers agree on."""
    return None if low < first else min(low, last), None if high > last else max(high, first)


def _beginning(text: str, kept: re.Pattern[str]) -> str:
    found = kept.match(text[:_KEPT_OF_A_TEXT])
    assert found is not None, "it matches nothing, too"
    beginning = found[0]
    # Delta 2 cut some characters in two, and for such a half its JSON has a question mark.
    if beginning != text or len(text) == _KEPT_OF_A_TEXT:
        beginning = beginning.removesuffix("?")
    return beginning.rstrip(" ")


def _after(beginning: str) -> str | None:
    """The first text after all that begin so; None if there is none."""
    return beginning[:-1] + chr(ord(beginning[-1]) + 1) if beginning else None
