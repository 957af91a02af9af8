"""What becomes of rows of a JSON or CSV file that the reader can't read as they should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import require_text
from airflow_delta_merge.exceptions import MergeConfigError

#: Formats whose readers tell bad rows from good ones.
FORMATS_WITH_BAD_ROWS = ("csv", "json")
ACTIONS = ("fail", "skip", "keep")
# Spark's own options for bad rows; they stand as ever.
_OWN_OPTIONS = ("mode", "columnnameofcorruptrecord")


@dataclass(frozen=True, kw_only=True)
class BadRows:
    """What becomes of bad rows.

    :param action: ``fail`` the merge, ``skip`` the rows, or ``keep`` them in a table of their own.
    :param most: how many there may be: a count, or a fraction below 1 of all rows; None for any number.
    :param path: with ``keep``: where the Delta table is to which they are added.
    :raises MergeConfigError: when it can't be meant so.
    """

    action: str = "fail"
    most: int | float | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise MergeConfigError(f"bad_rows is {self.action!r}; it can be: {', '.join(ACTIONS)}.")
        object.__setattr__(self, "most", _most(self.most))
        if self.action == "fail" and self.most is not None:
            raise MergeConfigError('max_bad_rows goes with bad_rows="skip" or "keep"; "fail" allows none.')
        if (self.action == "keep") != (self.path is not None):
            raise MergeConfigError('bad_rows="keep" and bad_rows_path, a place for the rows, go together.')
        if self.path is not None:
            require_text(self.path, "bad_rows_path")

    def allows(self, num_bad: int, num_rows: int) -> bool:
        """Whether so many bad rows among all rows are within the bound."""
        if self.most is None:
            return True
        return num_bad <= (self.most * num_rows if isinstance(self.most, float) else self.most)


def chooses_own_mode(options: Sequence[tuple[str, str]]) -> bool:
    """Whether a reader's options say already, by Spark's own means, what becomes of bad rows."""
    return any(name.lower() in _OWN_OPTIONS for name, _ in options)


def bad_rows_of(value: Any, most: Any, path: Any, *, format: str | None, options: Any) -> BadRows | None:
    """What becomes of the bad rows of a source; None where that is not for this package to say.

    :param value: the source's ``bad_rows``, None where it says nothing.
    :param most: its ``max_bad_rows``.
    :param path: its ``bad_rows_path``.
    :param format: the format of its files, None for a source of another kind.
    :param options: its reader options, as pairs.
    :raises MergeConfigError: when it can't be meant so.
    """
    given = {"bad_rows": value, "max_bad_rows": most, "bad_rows_path": path}
    named = ", ".join(name for name, part in given.items() if part is not None)
    if str(format).lower() not in FORMATS_WITH_BAD_ROWS:
        if named:
            kind = "a query or a table" if format is None else f"files of the format {format}"
            raise MergeConfigError(f"{named} goes with JSON and CSV files, not with {kind}: leave it out.")
        return None
    if chooses_own_mode(options):
        if named:
            raise MergeConfigError(
                f"{named} and the reader's options mode and columnNameOfCorruptRecord exclude each other: leave out "
                "one of the two."
            )
        return None
    return BadRows(action="fail" if value is None else value, most=most, path=path)


def bad_rows_parts(value: Any, most: Any, path: Any) -> Mapping[str, Any]:
    """The given ones of these by their names in a source's dict."""
    parts = {"bad_rows": value, "max_bad_rows": most, "bad_rows_path": path}
    return {name: part for name, part in parts.items() if part is not None}


def _most(value: Any) -> int | float | None:
    if value is None:
        return None
    try:
        number = float(value)  # also of a template's text
    except (TypeError, ValueError):
        number = -1.0
    if not isinstance(value, bool) and number >= 0 and (number < 1 or number.is_integer()):
        return number if 0 < number < 1 else int(number)
    raise MergeConfigError(
        f"max_bad_rows is {value!r}; it can be a whole number of rows, or a fraction of them between 0 and 1."
    )
