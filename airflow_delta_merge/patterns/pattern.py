"""The base of all patterns: keys, and the conversion to a :class:`MergeConfig`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from airflow_delta_merge.config import MergeConfig, MergeSource, MergeTarget
from airflow_delta_merge.config.checks import column_names, in_order, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier, quote_text


@dataclass(frozen=True, kw_only=True)
class Pattern(ABC):
    """A kind of merge.

    :param keys: the columns of target and source by which a source row finds its target row.
    """

    #: The pattern's name in a dict.
    NAME: ClassVar[str]

    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", column_names(self.keys, "keys"))
        if not self.keys:
            raise MergeConfigError("keys is empty. Name at least one key column.")

    def to_config(
        self,
        *,
        target: MergeTarget | str | Mapping[str, Any],
        source: MergeSource | str | Sequence[str] | Mapping[str, Any],
        **options: Any,
    ) -> MergeConfig:
        """The merge of this source into this target.

        :param target: as in :class:`MergeConfig`.
        :param source: as in :class:`MergeConfig`.
        :param options: further parameters of :class:`MergeConfig` that the pattern doesn't set, e.g. ``guards``.
        :raises MergeConfigError: when a value is invalid.
        """
        target, source = MergeTarget.of(target), MergeSource.of(source)
        return MergeConfig(**{"target": target, "source": source, **self._parts(target, source), **options})

    @abstractmethod
    def _parts(self, target: MergeTarget, source: MergeSource) -> dict[str, Any]:
        """The parameters of :class:`MergeConfig` that make the pattern; ``source`` too, if its rows are reshaped."""

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; :func:`~airflow_delta_merge.patterns.pattern_from_dict` reads it back."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"pattern": self.NAME, **values}


@dataclass(frozen=True, kw_only=True)
class ChangePattern(Pattern):
    """A kind of merge whose source holds changes, some of which may be deletes.

    :param keys: the columns of target and source by which a source row finds its target row.
    :param operation_column: the source's column that says what a change is; without it no change is a delete.
    :param delete_operations: the values of ``operation_column`` that mean a delete, in any case.
    """

    operation_column: str | None = None
    delete_operations: tuple[str, ...] = ("D", "DELETE")

    def __post_init__(self) -> None:
        super().__post_init__()
        operations = self.delete_operations
        if not isinstance(operations, Iterable):
            raise MergeConfigError(f"delete_operations must be a list of operations, got {operations!r:.80}.")
        operations = (operations,) if isinstance(operations, str) else in_order(operations)
        object.__setattr__(self, "delete_operations", operations)
        if not operations:
            raise MergeConfigError(
                "delete_operations is empty. Give at least one, or remove operation_column if there are no deletes."
            )
        for operation in operations:
            require_text(operation, "an operation in delete_operations")

    def _is_delete(self, *, of: str = "") -> str:
        """Whether a change is a delete, in SQL.

        :param of: the alias of the source.
        """
        if self.operation_column is None:
            return "false"
        values = ", ".join(quote_text(operation.upper()) for operation in self.delete_operations)
        return f"coalesce(upper({column_list([self.operation_column], of=of)}) IN ({values}), false)"


def column(name: str) -> str:
    """A column's name in SQL."""
    parts = parse_multipart(require_text(name, "a column of a pattern"))
    if len(parts) > 1:
        raise MergeConfigError(
            f"{name!r} is a field of a struct, which a pattern does not support here. Name a whole column."
        )
    return quote_identifier(parts[0])


def column_list(names: Sequence[str], *, of: str = "") -> str:
    """Columns in SQL, separated by commas.

    :param of: the alias of their table.
    """
    return ", ".join(f"{of}.{column(name)}" if of else column(name) for name in names)
