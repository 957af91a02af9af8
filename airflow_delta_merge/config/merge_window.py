"""The part of a table that one merge is about: a span of a column's values, such as a run's data interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_delta_merge.config.checks import check_keys, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_multipart, quote_text

_COLUMN_TYPES = ("timestamp", "timestamp_ntz", "date", "string")
_WHOLE_DAYS = ("date", "string")


@dataclass(frozen=True, kw_only=True)
class MergeWindow:
    """Target rows from ``start`` up to, but not including, ``end`` by a column, and the source rows among them.

    The column is one whose value a row keeps: a row that moves into another window is a new one there.

    :param column: a column of target and source; rows where it is NULL are in no window.
    :param start: the first moment, as ISO 8601 text or a datetime; without an offset it is local time of ``timezone``.
    :param end: the first moment after it, likewise.
    :param column_type: what the column holds: ``timestamp`` (moments), ``timestamp_ntz`` (local times of ``timezone``),
        ``date`` (local dates) or ``string`` (local dates as text, ``2024-02-29``).
    :param timezone: the zone of local times and dates, e.g. ``Europe/Berlin``.
    :param date_column: for moments and local times: a further column of the target that holds their local date, e.g. a
        partition column, by which fewer files are searched and writers of different days don't conflict.
    :raises MergeConfigError: when there is no such span: it is empty, or not of whole local days for a column of dates.
    """

    column: str
    start: str | datetime
    end: str | datetime
    column_type: str = "timestamp"
    timezone: str = "UTC"
    date_column: str | None = None

    def __post_init__(self) -> None:
        for name in (self.column, *([] if self.date_column is None else [self.date_column])):
            parse_multipart(require_text(name, "a window's column"))
        if self.column_type not in _COLUMN_TYPES:
            raise MergeConfigError(
                f"A window's column_type is {self.column_type!r}; it can be: {', '.join(_COLUMN_TYPES)}."
            )
        for name in ("start", "end"):
            object.__setattr__(self, name, self._moment(name).isoformat())
        if self._local("start") >= self._local("end") or self._moment("start") >= self._moment("end"):
            raise MergeConfigError(
                f"The window from {self.start} to {self.end} is empty: its end must be after its start, also "
                f"by the local times of {self.timezone}."
            )
        if self.column_type in _WHOLE_DAYS:
            if self.date_column is not None:
                raise MergeConfigError("A window's date_column goes with a column of moments, not with one of dates.")
            for name in ("start", "end"):
                if self._local(name).time() != time_of_day.min:
                    raise MergeConfigError(
                        f"The window from {self.start} to {self.end} is not of whole days in {self.timezone}, but "
                        f"{self.column} holds dates: give the timezone of these days, or a schedule of days."
                    )

    @classmethod
    def of(cls, value: MergeWindow | Mapping[str, Any]) -> MergeWindow:
        """Read a window from a dict of the parameters."""
        if isinstance(value, MergeWindow):
            return value
        if not isinstance(value, Mapping):
            raise MergeConfigError(f"A window is a dict of column, start and end, not {type(value).__name__}.")
        required = ("column", "start", "end")
        check_keys(value, "window", required=required, optional=tuple(each.name for each in fields(cls))[3:])
        return cls(**value)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def source_condition(self) -> str:
        """Which source rows are inside, in SQL."""
        return self._span(self.column)

    def target_condition(self, alias: str) -> str:
        """Which target rows are inside, in SQL.

        :param alias: the target's, quoted.
        """
        span = self._span(self.column, f"{alias}.")
        if self.date_column is None:
            return span
        last = (self._local("end") - timedelta(microseconds=1)).date()
        name = f"{alias}.{quote_multipart(parse_multipart(self.date_column))}"
        return f"{name} >= {_date(self._local('start').date())} AND {name} <= {_date(last)} AND {span}"

    def _span(self, column: str, prefix: str = "") -> str:
        name = f"{prefix}{quote_multipart(parse_multipart(column))}"
        return f"{name} >= {self._literal('start')} AND {name} < {self._literal('end')}"

    def _literal(self, which: str) -> str:
        local = self._local(which)
        match self.column_type:
            case "timestamp":
                return f"TIMESTAMP_LTZ {quote_text(self._moment(which).isoformat(' '))}"
            case "timestamp_ntz":
                return f"TIMESTAMP_NTZ {quote_text(local.isoformat(' '))}"
            case "date":
                return _date(local.date())
            case _:
                return quote_text(local.date().isoformat())

    def _local(self, which: str) -> datetime:
        """Local time of the zone, without an offset."""
        return self._moment(which).astimezone(self._zone()).replace(tzinfo=None)

    def _moment(self, which: str) -> datetime:
        """The moment in UTC."""
        value = getattr(self, which)
        if not isinstance(value, datetime):
            if not str(value).strip():
                raise MergeConfigError(
                    f"The window has no {which}: this run has no data interval, as runs that are triggered by hand or "
                    "by assets. Give start and end, or use a schedule with intervals."
                )
            try:
                value = datetime.fromisoformat(str(value).strip())
            except ValueError as error:
                raise MergeConfigError(
                    f"The window's {which} is {value!r}; write a moment like 2024-02-29T00:00:00+01:00."
                ) from error
        zone = self._zone()
        return (value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(ZoneInfo("UTC"))

    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(require_text(self.timezone, "a window's timezone"))
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise MergeConfigError(
                f"There is no timezone {self.timezone!r}; write it like Europe/Berlin or UTC."
            ) from error


def _date(value: date) -> str:
    return f"DATE {quote_text(value.isoformat())}"
