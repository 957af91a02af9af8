"""Which engine merges: this package's, or Delta's own."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_delta_merge.exceptions import MergeConfigError

if TYPE_CHECKING:
    from airflow_delta_merge.config.guards import MergeGuards


class MergeEngine(StrEnum):
    """Who finds the changes and writes them; identity, guards, commit and result are the same by either."""

    DELTA_MERGE = "delta_merge"
    BUILTIN = "builtin"

    @classmethod
    def of(cls, value: str) -> MergeEngine:
        """Read its name.

        :raises MergeConfigError: when there is no such engine.
        """
        try:
            return cls(value)
        except ValueError:
            raise MergeConfigError(f"engine is {value!r}; it can be: {', '.join(cls)}.") from None

    def check_options(self, *, update_only_changed: bool, guards: MergeGuards) -> None:
        """Refuse what only this package's engine can do.

        :raises MergeConfigError: when an option needs it.
        """
        if self is MergeEngine.DELTA_MERGE:
            return
        needing = {"update_only_changed": update_only_changed, "expect_source": guards.expect_source is not None}
        for option, is_set in needing.items():
            if is_set:
                raise MergeConfigError(f'{option} needs this package\'s own engine: leave out it or engine="builtin".')
