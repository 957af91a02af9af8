"""Ids for parametrised tests whose values pytest would only number (``settings3``)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

#: Settings have long names, of which the last parts tell them apart.
_PREFIXES = ("spark.deltaMerge.", "spark.databricks.delta.", "spark.")
_LONGEST = 60
#: Texts beyond this are numbered, too.
_LONGEST_OF_PYTEST = 100
#: What pytest makes a readable id of by itself.
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)


def readable(value: Any) -> str | None:
    """What stands in the value, in short, for ``ids=`` of ``pytest.mark.parametrize``; None where pytest says it.

    Mappings become ``name=value``, other collections their items.

    :raises ValueError: for a value that has nothing but an address.
    """
    if isinstance(value, _PLAIN) and not (isinstance(value, str) and len(value) > _LONGEST_OF_PYTEST):
        return None
    text = _text(value)
    if " at 0x" in text:
        raise ValueError(f"{value!r} has no readable id: give one by pytest.param(…, id=…)")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        # What is there tells more than what is left out.
        named = sorted(value.items(), key=lambda pair: pair[1] is None)
        return ", ".join(f"{_short(str(key))}={_text(each)}" for key, each in named) or "nothing"
    if isinstance(value, Set):
        return ", ".join(sorted(map(_text, value))) or "nothing"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "nothing"
    if is_dataclass(value):
        return f"{type(value).__name__}({_text(_given(value))})"
    if isinstance(value, Enum):
        return str(value.value)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__.replace("<lambda>", "a function")
    return " ".join(str(value).split()) or "''"


def _given(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that have other values than their defaults."""
    given_fields = {}
    for each in fields(value):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if (given := getattr(value, each.name)) != default:
            given_fields[each.name] = given
    return given_fields


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name
