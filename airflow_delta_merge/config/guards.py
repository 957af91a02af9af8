"""When a merge fails instead of committing: limits for what it would change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import check_fields, require_text
from airflow_delta_merge.config.source_expectations import SourceExpectations
from airflow_delta_merge.exceptions import MergeConfigError

#: What guards can look at: rows of source and target, rows that the merge would change, these as fractions of the
#: target's rows (NULL for an empty target), and files.
GUARDED_COUNTS = (
    "num_source_rows",
    "num_target_rows",
    "num_affected_rows",
    "num_updated_rows",
    "num_deleted_rows",
    "num_inserted_rows",
    "num_touched_files",
    "num_touched_bytes",
    "affected_fraction",
    "updated_fraction",
    "deleted_fraction",
    "inserted_fraction",
)
# A merge may insert more rows than there are, but not update or delete more.
_AT_MOST_1 = ("updated_fraction", "deleted_fraction")
_ON_EMPTY_SOURCE = ("merge", "skip", "fail")


@dataclass(frozen=True, kw_only=True)
class MergeGuards:
    """Limits for a merge. Exceeding one fails it with the numbers, without a commit.

    :param fail_if: SQL conditions over :data:`GUARDED_COUNTS`. A dict has maximum values:
        ``{"deleted_fraction": 0.2}`` is ``deleted_fraction > 0.2``.
    :param on_empty_source: what a source without rows means: ``merge`` it like any other (a by-source clause takes
        every row of the target), ``skip`` the merge, or ``fail``.
    :param expect_source: conditions that the source's rows must meet, as :class:`SourceExpectations` or a dict like it.
    :raises MergeConfigError: for an unknown count, a maximum that is no number of 0 or more, or an invalid part.
    """

    fail_if: tuple[str, ...] = ()
    on_empty_source: str = "merge"
    expect_source: SourceExpectations | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fail_if", _conditions(self.fail_if))
        if self.on_empty_source not in _ON_EMPTY_SOURCE:
            raise MergeConfigError(
                f"on_empty_source must be one of {', '.join(_ON_EMPTY_SOURCE)}, got {self.on_empty_source!r}."
            )
        if self.expect_source is not None:
            object.__setattr__(self, "expect_source", SourceExpectations.of(self.expect_source))

    @classmethod
    def of(cls, value: MergeGuards | Mapping[str, Any]) -> MergeGuards:
        """Read guards from a dict of the parameters."""
        if isinstance(value, MergeGuards):
            return value
        if not isinstance(value, Mapping):
            raise MergeConfigError(
                f"guards must be a dict of fail_if, on_empty_source and expect_source, got {value!r:.80}."
            )
        check_fields(cls, value, "guards")
        return cls(**value)

    def to_dict(self) -> dict[str, Any]:
        return {
            "fail_if": list(self.fail_if),
            "on_empty_source": self.on_empty_source,
            "expect_source": None if self.expect_source is None else self.expect_source.to_dict(),
        }


def _conditions(fail_if: Any) -> tuple[str, ...]:
    if isinstance(fail_if, Mapping):
        return tuple(_bound(name, value) for name, value in fail_if.items())
    if isinstance(fail_if, str):
        fail_if = (fail_if,)
    if not isinstance(fail_if, Iterable):
        raise MergeConfigError(
            f'fail_if must be a dict like {{"deleted_fraction": 0.2}} or a list of SQL conditions, got {fail_if!r}.'
        )
    return tuple(require_text(condition, "a condition in fail_if") for condition in fail_if)


def _bound(name: Any, value: Any) -> str:
    if name not in GUARDED_COUNTS:
        raise MergeConfigError(f"fail_if has the unknown count {name!r}. Known are: {', '.join(GUARDED_COUNTS)}.")
    try:
        number = float(value)  # also of a template's text
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number < math.inf:
        raise MergeConfigError(f"fail_if[{name!r}] must be a number ≥ 0, got {value!r}.")
    if name in _AT_MOST_1 and number > 1:
        raise MergeConfigError(
            f"fail_if[{name!r}] is a fraction of the target's rows, which {value} is above. Write {number:g} % as "
            f"{number / 100:g}."
        )
    return f"{name} > {int(number) if number.is_integer() else number}"
