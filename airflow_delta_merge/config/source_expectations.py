"""Conditions on a merge's source, checked before the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import check_keys, column_names, require_text
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart

#: What becomes of rows that break an expectation.
ON_FAILURE = ("fail", "warn", "set_aside")
_SAMPLES = ("keys", "rows", "none")
_KEYS = ("unique", "not_null", "columns", "sample", "failed_rows_path")


@dataclass(frozen=True, kw_only=True)
class RowCondition:
    """A condition that each row of a source must meet.

    :param name: the name of the expectation in results and logs.
    :param condition: a SQL condition over the source's columns. A row for which it is NULL meets it, as in a CHECK.
    :param on_failure: for rows that don't meet it: ``fail`` the merge, ``warn``, or ``set_aside`` these rows.
    :raises MergeConfigError: when a value is invalid, or the name is a key of ``expect_source``.
    """

    name: str
    condition: str
    on_failure: str = "fail"

    def __post_init__(self) -> None:
        require_text(self.name, "the name of an expectation")
        require_text(self.condition, f"the condition of {self.name} in expect_source")
        _check_on_failure(self.on_failure, self.name)
        if self.name in _KEYS:
            raise MergeConfigError(f"expect_source can't call a condition {self.name!r}. Choose another name.")


@dataclass(frozen=True, kw_only=True)
class SourceExpectations:
    """Conditions on the source rows that a merge reads: those in its window, after its dedupe.

    :param unique: columns that must be unique together. A row with a NULL in one of them equals no other, as in SQL, so
        name them in ``not_null``, too. Rows that other conditions set aside don't count.
    :param not_null: columns that are never NULL.
    :param columns: columns that must exist, with their types as Spark SQL writes them, as a dict or pairs; the source
        may have more.
    :param sample: what the log shows of a few failing rows: ``keys`` (the columns in ``unique`` and those that ``on``
        compares), ``rows`` (all columns) or ``none`` (if keys are personal data).
    :param conditions: conditions that each row must meet, as :class:`RowCondition`; :meth:`of` reads each under its
        name.
    :param unique_on_failure: for rows that aren't ``unique``: ``fail`` the merge, ``warn``, or ``set_aside`` all rows
        that share their values.
    :param not_null_on_failure: the same for rows with a NULL in one of ``not_null``.
    :param failed_rows_path: with ``set_aside``: path of the Delta table to which such rows are added; it is created if
        missing.
    :raises MergeConfigError: when it is empty or invalid.
    """

    unique: tuple[str, ...] = ()
    not_null: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    sample: str = "keys"
    conditions: tuple[RowCondition, ...] = ()
    unique_on_failure: str = "fail"
    not_null_on_failure: str = "fail"
    failed_rows_path: str | None = None

    def __post_init__(self) -> None:
        for name in ("unique", "not_null"):
            names = column_names(getattr(self, name), f"expect_source's {name}")
            _refuse_twins(names, name)
            object.__setattr__(self, name, names)
            _check_on_failure(getattr(self, f"{name}_on_failure"), name)
        object.__setattr__(self, "columns", _columns(self.columns))
        _refuse_twins([name for name, _ in self.columns], "columns")
        conditions = self.conditions
        if not isinstance(conditions, Iterable) or not all(isinstance(each, RowCondition) for each in conditions):
            raise MergeConfigError(f"expect_source's conditions must be RowConditions, got {conditions!r:.80}.")
        object.__setattr__(self, "conditions", tuple(conditions))
        called = [each.name for each in self.conditions]
        if len(set(called)) < len(called):
            raise MergeConfigError(f"expect_source's conditions have a name twice: {', '.join(called)}. Rename one.")
        if not (self.unique or self.not_null or self.columns or self.conditions):
            raise MergeConfigError("expect_source is empty. Set unique, not_null, columns or a named condition.")
        if self.sample not in _SAMPLES:
            raise MergeConfigError(f"expect_source's sample must be one of {', '.join(_SAMPLES)}, got {self.sample!r}.")
        self._check_path()

    def _check_path(self) -> None:
        if self.failed_rows_path is not None:
            require_text(self.failed_rows_path, "failed_rows_path")
        if self.sets_aside != (self.failed_rows_path is not None):
            raise MergeConfigError('on_failure="set_aside" and failed_rows_path need each other. Set both or neither.')

    @classmethod
    def of(cls, value: SourceExpectations | Mapping[str, Any]) -> SourceExpectations:
        """Read them from a dict of the parameters.

        In it ``unique`` and ``not_null`` may be dicts of ``columns`` and ``on_failure``. Any other key names a
        condition, a dict of ``condition`` and ``on_failure``.

        :raises MergeConfigError: when it is no such dict.
        """
        if isinstance(value, SourceExpectations):
            return value
        if not isinstance(value, Mapping):
            raise MergeConfigError(
                f'expect_source must be a dict like {{"unique": ["id"], "not_null": ["id", "day"]}}, got {value!r:.80}.'
            )
        named = {name: part for name, part in value.items() if name not in _KEYS and isinstance(part, Mapping)}
        parts = {name: part for name, part in value.items() if name not in named}
        check_keys(
            parts,
            "expect_source",
            optional=_KEYS,
            advice="Any other names a condition of your own, a dict like {'condition': 'price > 0'}.",
        )
        for name in ("unique", "not_null"):
            if isinstance(part := parts.get(name), Mapping):
                check_keys(part, f"expect_source's {name}", required=("columns",), optional=("on_failure",))
                parts |= {name: part["columns"], f"{name}_on_failure": part.get("on_failure", "fail")}
        for name, part in named.items():
            check_keys(part, f"expectation {name}", required=("condition",), optional=("on_failure",))
        return cls(**parts, conditions=tuple(RowCondition(name=name, **part) for name, part in named.items()))

    @property
    def sets_aside(self) -> bool:
        """Whether rows may be left out of the merge."""
        of_columns = [(self.unique, self.unique_on_failure), (self.not_null, self.not_null_on_failure)]
        given = [on_failure for columns, on_failure in of_columns if columns]
        return "set_aside" in (*given, *(each.on_failure for each in self.conditions))

    def is_unique_by(self, keys: tuple[str, ...]) -> bool:
        """Whether rows of which no two share these keys are unique as expected, whatever else they hold."""
        return bool(self.unique) and {_parts(key) for key in keys} <= {_parts(name) for name in self.unique}

    def to_dict(self) -> dict[str, Any]:
        path = {} if self.failed_rows_path is None else {"failed_rows_path": self.failed_rows_path}
        return {
            "unique": _plain(self.unique, self.unique_on_failure),
            "not_null": _plain(self.not_null, self.not_null_on_failure),
            "columns": dict(self.columns),
            "sample": self.sample,
            **path,
            **{each.name: {"condition": each.condition, "on_failure": each.on_failure} for each in self.conditions},
        }


def _plain(columns: tuple[str, ...], on_failure: str) -> Any:
    return list(columns) if on_failure == "fail" else {"columns": list(columns), "on_failure": on_failure}


def _check_on_failure(value: Any, name: str) -> None:
    if value not in ON_FAILURE:
        raise MergeConfigError(f"on_failure of {name} must be one of {', '.join(ON_FAILURE)}, got {value!r}.")


def _columns(columns: Any) -> tuple[tuple[str, str], ...]:
    checked = tuple(columns.items()) if isinstance(columns, Mapping) else columns
    if not isinstance(checked, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in checked):
        raise MergeConfigError(
            f'expect_source\'s columns must be a dict of types by name, like {{"id": "bigint"}}, got {columns!r:.80}.'
        )
    column_names((name for name, _ in checked), "expect_source's columns")
    for name, type_ in checked:
        require_text(type_, f"the type of {name} in expect_source's columns")
    return checked


def _refuse_twins(names: Iterable[str], where: str) -> None:
    parts = [_parts(name) for name in names]
    if len(set(parts)) < len(parts):
        raise MergeConfigError(f"expect_source's {where} names a column twice: {', '.join(names)}.")


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.lower() for part in parse_multipart(name))
