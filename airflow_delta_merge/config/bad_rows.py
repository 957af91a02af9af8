"""How to treat rows of a JSON or CSV file that the reader can't parse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import require_text
from airflow_delta_merge.exceptions import MergeConfigError

#: Formats whose readers can detect bad rows.
FORMATS_WITH_BAD_ROWS = ("csv", "json")
ACTIONS = ("fail", "skip", "keep")
# Spark's own options for bad rows, which take precedence.
_OWN_OPTIONS = ("mode", "columnnameofcorruptrecord")


@dataclass(frozen=True, kw_only=True)
class BadRows:
    """How to treat bad rows.

    :param action: ``fail`` the merge, ``skip`` the rows, or ``keep`` them in a separate table.
    :param most: maximum number of bad rows: a count, or a fraction below 1 of all rows; None for any number.
    :param path: with ``keep``: the path of the Delta table for bad rows.
    :raises MergeConfigError: when the values are invalid or don't fit together.
    """

    action: str = "fail"
    most: int | float | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise MergeConfigError(f"bad_rows must be one of {', '.join(ACTIONS)}, got {self.action!r}.")
        object.__setattr__(self, "most", _most(self.most))
        if self.action == "fail" and self.most is not None:
            raise MergeConfigError('max_bad_rows needs bad_rows="skip" or "keep", since "fail" allows no bad rows.')
        if (self.action == "keep") != (self.path is not None):
            raise MergeConfigError('bad_rows="keep" and bad_rows_path need each other. Set both or neither.')
        if self.path is not None:
            require_text(self.path, "bad_rows_path")

    def allows(self, num_bad: int, num_rows: int) -> bool:
        """Whether this number of bad rows among all rows is within the limit."""
        if self.most is None:
            return True
        return num_bad <= (self.most * num_rows if isinstance(self.most, float) else self.most)


def bad_rows_of(given: Mapping[str, Any], *, format: str | None, options: Any) -> BadRows | None:
    """How to treat the bad rows of a source; None if this package does not handle them.

    :param given: those of the source's ``bad_rows``, ``max_bad_rows`` and ``bad_rows_path`` that are set.
    :param format: the format of its files; None for a source of another kind.
    :param options: its reader options, as pairs.
    :raises MergeConfigError: when the values are invalid or don't fit together.
    """
    named = ", ".join(given)
    if str(format).lower() not in FORMATS_WITH_BAD_ROWS:
        if named:
            kind = "a query or a table" if format is None else f"files of the format {format}"
            raise MergeConfigError(f"{named} is only available for JSON and CSV files, not for {kind}. Remove it.")
        return None
    if any(option.lower() in _OWN_OPTIONS for option, _ in options):
        if named:
            raise MergeConfigError(
                f"{named} can't be combined with the reader's options mode and columnNameOfCorruptRecord. Remove one "
                "of the two."
            )
        return None
    return BadRows(
        action=given.get("bad_rows", "fail"), most=given.get("max_bad_rows"), path=given.get("bad_rows_path")
    )


def _most(value: Any) -> int | float | None:
    if value is None:
        return None
    try:
        number = float(value)  # accepts a template's text, too
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not isinstance(value, bool) and number >= 0 and (number < 1 or number.is_integer()):
        return number if 0 < number < 1 else int(number)
    raise MergeConfigError(
        f"max_bad_rows must be a whole number of rows, or a fraction between 0 and 1, got {value!r}."
    )
