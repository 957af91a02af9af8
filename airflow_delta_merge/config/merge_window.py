"""The part of a table that one merge covers: a span of a column's values, such as a run's data interval."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta, tzinfo
from datetime import time as time_of_day
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_delta_merge.config.checks import check_fields, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_name, quote_text

_COLUMN_TYPES = ("timestamp", "timestamp_ntz", "date", "string")
_WHOLE_DAYS = ("date", "string")


@dataclass(frozen=True, kw_only=True)
class MergeWindow:
    """Target and source rows whose column value is from ``start`` (inclusive) to ``end`` (exclusive).

    A row's value in this column must not change: a row that moves into another window would be a new row there.

    :param column: a column of target and source; rows with NULL are in no window.
    :param start: the start, as ISO 8601 text or a datetime; without an offset it is local time of ``timezone``.
    :param end: the end, in the same form.
    :param column_type: the column's content: ``timestamp`` (points in time), ``timestamp_ntz`` (local times of
        ``timezone``), ``date`` (local dates) or ``string`` (local dates as text, ``2024-02-29``).
    :param timezone: the time zone of local times and dates, e.g. ``Europe/Berlin`` or ``+01:00``.
    :param date_column: for timestamps and local times: another column of the target with their local date, e.g. a
        partition column. Fewer files are searched then, and writers of different days don't conflict.
    :raises MergeConfigError: when the span is empty, or does not consist of whole local days for a column of dates.
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
                f"A window's column_type must be one of {', '.join(_COLUMN_TYPES)}, got {self.column_type!r}."
            )
        for name in ("start", "end"):
            object.__setattr__(self, name, self._moment(name).isoformat())
        if self._moment("start") == self._moment("end"):
            raise MergeConfigError(
                f"The window from {self.start} to {self.end} is empty. If it is the run's data interval: in Airflow 3 "
                'schedule="@daily" has empty ones. Use CronDataIntervalTimetable, or set start and end.'
            )
        goes_back = self.column_type != "timestamp" and self._local("start") >= self._local("end")
        if goes_back or self._moment("start") >= self._moment("end"):
            raise MergeConfigError(
                f"The window from {self.start} to {self.end} is empty. Its end must be after its start, also in local "
                f"time of {self.timezone}."
            )
        if self.column_type in _WHOLE_DAYS:
            if self.date_column is not None:
                raise MergeConfigError(
                    "A window's date_column is only available for a column of timestamps, not of dates. Remove it."
                )
            for name in ("start", "end"):
                if not self._begins_day(name):
                    raise MergeConfigError(
                        f"The window from {self.start} to {self.end} has no whole days in {self.timezone}, "
                        f"but {self.column} holds dates. Set the timezone of these days, or use a daily schedule."
                    )

    @classmethod
    def of(cls, value: MergeWindow | Mapping[str, Any]) -> MergeWindow:
        """Read a window from a dict of the parameters."""
        if isinstance(value, MergeWindow):
            return value
        if not isinstance(value, Mapping):
            raise MergeConfigError(f"A window must be a dict of column, start and end, got {type(value).__name__}.")
        check_fields(cls, value, "window")
        return cls(**value)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def source_condition(self) -> str:
        """The SQL condition for source rows in the window."""
        return self._span()

    def target_condition(self, alias: str) -> str:
        """The SQL condition for target rows in the window.

        :param alias: the target's alias, quoted.
        """
        span = self._span(f"{alias}.")
        if self.date_column is None:
            return span
        last = self._last_local().date()
        name = f"{alias}.{quote_name(self.date_column)}"
        return f"{name} >= {_date(self._local('start').date())} AND {name} <= {_date(last)} AND {span}"

    def _span(self, prefix: str = "") -> str:
        name = f"{prefix}{quote_name(self.column)}"
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

    def _begins_day(self, which: str) -> bool:
        """Whether a local day begins then. Where clocks change at midnight, it may begin at 1 o'clock."""
        local = self._local(which)
        midnight = datetime.combine(local.date(), time_of_day.min, self._zone())
        return local.time() == time_of_day.min or self._in_zone(which, midnight, ZoneInfo("UTC")) == self._moment(which)

    def _last_local(self) -> datetime:
        """The last local time in the window. Clocks may go back at its end."""
        tick = timedelta(microseconds=1)
        if self.column_type == "timestamp":
            return self._in_zone("end", self._moment("end") - tick, self._zone())
        return self._local("end") - tick

    def _local(self, which: str) -> datetime:
        """Local time in the window's time zone, without an offset."""
        return self._in_zone(which, self._moment(which), self._zone()).replace(tzinfo=None)

    def _moment(self, which: str) -> datetime:
        """The point in time in UTC."""
        value = getattr(self, which)
        if not isinstance(value, datetime):
            if not str(value).strip():
                raise MergeConfigError(
                    f"The window has no {which}: this run has no data interval, e.g. because an asset triggered it. "
                    "Set start and end, or use CronDataIntervalTimetable."
                )
            try:
                value = datetime.fromisoformat(str(value).strip())
            except ValueError as error:
                raise MergeConfigError(
                    f"The window's {which} must be a timestamp like 2024-02-29T00:00:00+01:00, got {value!r}."
                ) from error
        zone = self._zone()
        return self._in_zone(which, value if value.tzinfo else value.replace(tzinfo=zone), ZoneInfo("UTC"))

    def _in_zone(self, which: str, moment: datetime, zone: tzinfo) -> datetime:
        try:
            return moment.astimezone(zone)
        except OverflowError as error:
            raise MergeConfigError(
                f"The window's {which} must be within the years 1 to 9999 in each time zone, got {moment}."
            ) from error

    def _zone(self) -> tzinfo:
        name = require_text(self.timezone, "a window's timezone")
        with suppress(ValueError):  # an offset, as of a DAG whose start_date has one
            if (offset := datetime.strptime(name, "%z").tzinfo) is not None:
                return offset
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise MergeConfigError(
                f"There is no timezone {self.timezone!r}. Write it like Europe/Berlin, UTC or +01:00."
            ) from error


def _date(value: date) -> str:
    return f"DATE {quote_text(value.isoformat())}"
