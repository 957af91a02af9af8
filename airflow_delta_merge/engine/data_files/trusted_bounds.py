"""Which bounds of a column can be trusted to leave a file out, and how far to widen them first.

The log holds each column's least and greatest value per file, as the file's writer wrote them. Writers round, cut and
replace values when they write JSON. Values from the source are also converted between the JVM and Python. So ranges
and bounds are compared with a margin that covers what writers are known to do. Types for which no margin is safe leave
no file out. ``docs/developers/trusted_bounds.md`` lists what was checked for each writer.

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
#: The same; None means unbounded.
OpenRange = tuple[Any | None, Any | None]

#: Bits of the whole numbers, by their types as Spark SQL writes them.
INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_MOMENTS = frozenset({"timestamp", "timestamp_ntz"})
#: Excluded: floating point (writers differ in NaN, -0.0 and infinity), binary and boolean values, and texts under a
#: collation other than the binary one.
_ORDERED = frozenset({*INTEGER_BITS, *_MOMENTS, "date", "string"})

#: Number of decimal digits that a double always keeps.
_DIGITS_OF_A_DOUBLE = 15
#: A double is exact for whole numbers up to here; beyond, the error is less than the number divided by 2^52.
_WHOLE_IN_A_DOUBLE = 1 << 53
_GREATEST_INTEGER = (1 << 63) - 1

#: Delta 3.2 and 3.3 cut zone offsets to minutes, and all cut the greatest value to milliseconds.
_MICROS_PER_SECOND = 1_000_000
_MINUTE = 61 * _MICROS_PER_SECOND
_DAY_IN_MICROS = 24 * 60 * 60 * _MICROS_PER_SECOND
_EPOCH_DAY = datetime.date(1970, 1, 1)
#: Spark 2 wrote dates by the Julian calendar before October 1582, and times by other zones before 1900. Beyond 9999
#: writers differ in how they write a year.
_FIRST_DAY = (datetime.date(1583, 1, 1) - _EPOCH_DAY).days
_FIRST_MOMENT = (datetime.date(1900, 1, 3) - _EPOCH_DAY).days * _DAY_IN_MICROS
_LAST_DAY = (datetime.date(9999, 12, 30) - _EPOCH_DAY).days

#: Number of characters of a text that Delta and others keep, whatever they append.
_KEPT_OF_A_TEXT = 32
#: Characters that JSON keeps unchanged and that sort the same by bytes and by UTF-16: no surrogates, no U+FFFD in place
#: of bytes that are not UTF-8, and nothing below the blanks that pad a CHAR.
_KEPT = re.compile("[ -\ud7fe]*")
#: The same if the other side may hold bytes that are not UTF-8.
_ASCII = re.compile("[ -~]*")


def leaves_files_out(type_: str, *, of_partition: bool = False) -> bool:
    """Whether the bounds of a column of this type may leave a file out.

    :param type_: the type as Spark SQL writes it.
    :param of_partition: whether the table is partitioned by the column; its values then come from the log.
    """
    digits = _digits(type_)
    if digits is not None:
        return of_partition or digits <= _DIGITS_OF_A_DOUBLE
    return type_ in _ORDERED


def leaves_rows_out(type_: str) -> bool:
    """Whether predicates on a column may be pushed down to the statistics in Parquet's footers.

    Several writers compare decimals there as unsigned bytes.
    """
    return type_ in _ORDERED


def with_margin(type_: str, values: Range, *, in_utc: bool, ascii_only: bool = False) -> OpenRange:
    """The range of possible bounds of a file that holds one of these values; None for an unknown end.

    It works both ways: from a file's bounds it gives the range of the file's possible values.

    :param type_: a type for which :func:`leaves_files_out` is true.
    :param values: the smallest and the greatest value.
    :param in_utc: whether the session's time zone is UTC. Some writers leave the zone out; Delta then assumes the
        session's.
    :param ascii_only: whether the other side of the comparison may hold texts that were not UTF-8, which is not visible
        here. Only the ASCII part of texts is compared then.
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
        # No writer cuts or replaces an empty text; as a CHAR it is padded with blanks.
        return _beginning(low, kept), _after(_beginning(high, kept)) if high else "!"
    precision, scale = map(int, re.findall(r"-?\d+", type_))
    least = Decimal(1).scaleb(-scale)
    greatest = Decimal(10**precision - 1).scaleb(-scale)
    return max(low - least, -greatest), min(high + least, greatest)


def of_partition(type_: str, values: Range, *, in_utc: bool) -> OpenRange:
    """The same for a partition column, whose full values the log has as text."""
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
    """A range that is unbounded where it goes beyond what writers agree on."""
    return None if low < first else min(low, last), None if high > last else max(high, first)


def _beginning(text: str, kept: re.Pattern[str]) -> str:
    found = kept.match(text[:_KEPT_OF_A_TEXT])
    assert found is not None, "the pattern also matches the empty text"
    beginning = found[0]
    # Delta 2 cut some characters in half and wrote a question mark for the half.
    if beginning != text or len(text) == _KEPT_OF_A_TEXT:
        beginning = beginning.removesuffix("?")
    return beginning.rstrip(" ")


def _after(beginning: str) -> str | None:
    """The first text after all texts with this prefix; None if there is none."""
    return beginning[:-1] + chr(ord(beginning[-1]) + 1) if beginning else None
