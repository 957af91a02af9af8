"""The engine that merges: this package's, or Delta's own."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_delta_merge.exceptions import MergeConfigError

if TYPE_CHECKING:
    from airflow_delta_merge.config.guards import MergeGuards


class MergeEngine(StrEnum):
    """The engine that finds and writes the changes. Identity, guards, commit and result are the same for both."""

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
            raise MergeConfigError(f"engine must be one of {', '.join(cls)}, got {value!r}.") from None

    def check_options(self, *, update_only_changed: bool, guards: MergeGuards) -> None:
        """Refuse options that only this package's engine supports.

        :raises MergeConfigError: when such an option is set for Delta's engine.
        """
        if self is MergeEngine.DELTA_MERGE:
            return
        needing = {"update_only_changed": update_only_changed, "expect_source": guards.expect_source is not None}
        for option, is_set in needing.items():
            if is_set:
                raise MergeConfigError(f'{option} is not available with engine="builtin". Remove one of the two.')
