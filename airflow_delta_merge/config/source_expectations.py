"""What a merge's source has to be like; looked at when it was read and nothing is written yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import check_keys, column_names, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart

_SAMPLES = ("keys", "rows", "none")


@dataclass(frozen=True, kw_only=True)
class SourceExpectations:
    """What the rows must be like that a merge takes; they are those that are left by its window and dedupe.

    :param unique: columns whose values together no two rows share. A row with a NULL in one of them shares them with
        none, as in SQL; name it in ``not_null`` too.
    :param not_null: columns that are never NULL.
    :param columns: columns that must be there, with their types as Spark SQL writes them; there may be more.
    :param sample: what a few of the rows that don't meet them show in the log: ``keys`` (the columns in ``unique`` and
        those that ``on`` compares), ``rows`` (all columns) or ``none``, when also keys tell too much.
    :raises MergeConfigError: when nothing is expected, or it can't be meant so.
    """

    unique: tuple[str, ...] = ()
    not_null: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    sample: str = "keys"

    def __post_init__(self) -> None:
        for name in ("unique", "not_null"):
            names = column_names(getattr(self, name), f"expect_source's {name}")
            _refuse_twins(names, name)
            object.__setattr__(self, name, names)
        object.__setattr__(self, "columns", _columns(self.columns))
        _refuse_twins([name for name, _ in self.columns], "columns")
        if not (self.unique or self.not_null or self.columns):
            raise MergeConfigError("expect_source expects nothing: give it unique, not_null or columns.")
        if self.sample not in _SAMPLES:
            raise MergeConfigError(f"expect_source's sample is {self.sample!r}; it can be: {', '.join(_SAMPLES)}.")

    @classmethod
    def of(cls, value: SourceExpectations | Mapping[str, Any]) -> SourceExpectations:
        """Read them from a dict of the parameters."""
        if isinstance(value, SourceExpectations):
            return value
        if not isinstance(value, Mapping):
            raise MergeConfigError(
                f'expect_source is a dict like {{"unique": ["id"], "not_null": ["id", "day"]}}, not {value!r:.80}.'
            )
        check_keys(value, "expect_source", optional=("unique", "not_null", "columns", "sample"))
        return cls(**value)

    def is_unique_by(self, keys: tuple[str, ...]) -> bool:
        """Whether rows of which no two share these keys are unique as expected, whatever else they hold."""
        return bool(self.unique) and {_parts(key) for key in keys} <= {_parts(name) for name in self.unique}

    def to_dict(self) -> dict[str, Any]:
        return {
            "unique": list(self.unique),
            "not_null": list(self.not_null),
            "columns": dict(self.columns),
            "sample": self.sample,
        }


def _columns(columns: Any) -> tuple[tuple[str, str], ...]:
    checked = tuple(columns.items()) if isinstance(columns, Mapping) else columns
    if not isinstance(checked, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in checked):
        raise MergeConfigError(
            f'expect_source\'s columns is a dict of types by name, like {{"id": "bigint"}}, not {columns!r:.80}.'
        )
    column_names((name for name, _ in checked), "expect_source's columns")
    for name, type_ in checked:
        require_text(type_, f"the type of {name} in expect_source's columns")
    return checked


def _refuse_twins(names: Any, where: str) -> None:
    parts = [_parts(name) for name in names]
    if len(set(parts)) < len(parts):
        raise MergeConfigError(f"expect_source's {where} names a column twice: {', '.join(names)}.")


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.lower() for part in parse_multipart(name))
