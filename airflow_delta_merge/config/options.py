"""The options that every merge has, whether it is a config or a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from airflow_delta_merge.config.checks import CONFIG_VERSION, check_fields, require_bool
from airflow_delta_merge.config.guards import MergeGuards
from airflow_delta_merge.config.merge_engine import MergeEngine
from airflow_delta_merge.exceptions import MergeConfigError


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """How a merge runs, beside its statement.

    :param update_only_changed: whether an update skips rows that it would not change; they are not counted either.
    :param guards: conditions under which the merge fails instead of committing, as :class:`MergeGuards` or a dict of
        its parameters.
    :param engine: the engine that finds and writes the changes, as :class:`MergeEngine` or its name.
    :raises MergeConfigError: when a value is invalid, or only this package's engine has the option.
    """

    _WHAT: ClassVar[str]

    update_only_changed: bool = False
    guards: MergeGuards = field(default_factory=MergeGuards)
    engine: MergeEngine = MergeEngine.DELTA_MERGE

    def __post_init__(self) -> None:
        require_bool(self.update_only_changed, "update_only_changed")
        object.__setattr__(self, "guards", MergeGuards.of(self.guards))
        object.__setattr__(self, "engine", MergeEngine.of(self.engine))
        if self.engine is MergeEngine.BUILTIN:
            expects = self.guards.expect_source is not None
            needing = {"update_only_changed": self.update_only_changed, "expect_source": expects}
            for option in filter(needing.get, needing):
                raise MergeConfigError(f'{option} is not available with engine="builtin". Remove one of the two.')

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_dict` reads it back."""
        return {
            "version": CONFIG_VERSION,
            "update_only_changed": self.update_only_changed,
            "guards": self.guards.to_dict(),
            "engine": str(self.engine),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read a merge from a dict of JSON types.

        :raises MergeConfigError: for unknown keys, another version, or an invalid merge.
        """
        check_fields(cls, data, cls._WHAT, others=("version",))
        if data.get("version", CONFIG_VERSION) != CONFIG_VERSION:
            raise MergeConfigError(
                f"This config has version {data['version']!r}, but this package reads version {CONFIG_VERSION}. "
                "Use the same release on both ends."
            )
        return cls(**{key: value for key, value in data.items() if key != "version"})
