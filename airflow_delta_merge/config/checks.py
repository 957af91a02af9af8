"""Checks that all parts of a config share. Each error is a :class:`MergeConfigError`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart

#: Version of the configs' JSON format.
CONFIG_VERSION = 1


def in_order(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values as a tuple; those of a set in an order of their own, as a set has another one in each process."""
    return tuple(sorted(values, key=str) if isinstance(values, (set, frozenset)) else values)


def refuse_set(values: Any, what: str) -> None:
    """Check that columns have an order, where the first one counts most."""
    if isinstance(values, (set, frozenset)):
        raise MergeConfigError(f"{what} must be a list, because the order of its columns counts, got {values!r:.80}.")


def is_output(value: Any) -> bool:
    """Whether Airflow will resolve this at run time: an XComArg or one of its kind."""
    return callable(getattr(value, "iter_references", None))


def is_data_frame(value: Any) -> bool:
    """Whether a value is a DataFrame of any library, whose items are the names of its columns."""
    return hasattr(value, "columns")


def refuse_output(value: Any, what: str) -> None:
    """Check that a value is known; an output of another task even looks iterable."""
    if is_output(value):
        raise MergeConfigError(
            f"{what} is another task's output, which has no value while the DAG is parsed. Give the operator a dict "
            "in place of the object that holds it."
        )


def column_names(names: str | Iterable[str], what: str) -> tuple[str, ...]:
    refuse_output(names, what)
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise MergeConfigError(f"{what} must be a column or a list of columns, got {names!r:.80}.")
    columns = (names,) if isinstance(names, str) else in_order(names)
    for column in columns:
        parse_multipart(require_text(column, f"a column in {what}"))
    return columns


def pairs(values: Any, what: str) -> tuple[tuple[Any, Any], ...]:
    """The pairs of a dict, or of a list of pairs."""
    refuse_output(values, what)
    found = list(values.items()) if isinstance(values, Mapping) else values
    is_list = isinstance(found, Iterable) and not isinstance(found, str)
    checked = [tuple(pair) if isinstance(pair, (list, tuple)) else () for pair in found] if is_list else [()]
    if any(len(pair) != 2 for pair in checked):
        raise MergeConfigError(f"{what} must be a dict of names and values, got {values!r:.80}.")
    return tuple((name, value) for name, value in checked)


def option_pairs(options: Any, what: str) -> tuple[tuple[str, str], ...]:
    """Options or properties in order of their names, with values in Spark's text form."""
    return tuple(sorted((str(name), option_text(value)) for name, value in pairs(options, what)))


def require_bool(value: Any, what: str) -> None:
    if not isinstance(value, bool):
        raise MergeConfigError(f"{what} must be True or False, got {value!r:.80}.")


def require_text(value: Any, what: str) -> str:
    refuse_output(value, what)
    if not isinstance(value, str):
        raise MergeConfigError(f"Expected a string for {what}, got {type(value).__name__}.")
    if not value.strip():
        raise MergeConfigError(f"Expected some text for {what}, got an empty string.")
    return value


def is_seconds(value: Any) -> bool:
    """Whether a value is a finite number of seconds, 0 or more."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def option_text(value: Any) -> str:
    """The value of an option or a property in Spark's text form."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_keys(
    data: Mapping[str, Any], what: str, *, required: Sequence[str] = (), optional: Sequence[str] = (), advice: str = ""
) -> None:
    """Check that a dict has the required keys and no unknown ones.

    :param advice: what to do about an unknown key, as a sentence.
    """
    missing = [key for key in required if key not in data]
    unknown = sorted(str(key) for key in data if key not in required and key not in optional)
    if missing:
        raise MergeConfigError(f"The merge {what} lacks: {', '.join(missing)}.")
    if unknown:
        known = ", ".join((*required, *optional))
        text = f"The merge {what} has unknown keys: {', '.join(unknown)}. Known are: {known}. {advice}"
        raise MergeConfigError(text.rstrip())


def check_fields(cls: type[Any], data: Mapping[str, Any], what: str, *, others: Sequence[str] = ()) -> None:
    """Check that a dict has the fields of a dataclass: those without a default, and maybe the rest.

    :param others: keys that it may have, too.
    """
    required = [each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING]
    optional = [each.name for each in fields(cls) if each.name not in required]
    check_keys(data, what, required=required, optional=(*others, *optional))


def without_end(sql: str) -> str:
    """SQL without a semicolon at its end, as files have one."""
    return re.sub(r"\s*;\s*$", "", sql)


def check_null_keys(value: Any) -> None:
    if value not in ("allow", "fail"):
        raise MergeConfigError(f"null_keys must be allow or fail, got {value!r}.")
