"""The engine that merges: this package's, or Delta's own."""

from __future__ import annotations

from enum import StrEnum

from airflow_delta_merge.exceptions import MergeConfigError


class MergeEngine(StrEnum):
    """The engine that finds and writes the changes. Identity, guards, commit and result are the same for both.

    ``delta_merge`` is this package's engine, ``builtin`` is Delta's own ``MERGE``.
    """

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
