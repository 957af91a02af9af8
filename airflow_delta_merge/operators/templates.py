"""Checking a merge while its DAG is parsed, when templates and outputs of upstream tasks have no values yet."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from itertools import count
from typing import Any, Protocol, cast

from airflow_delta_merge.config import (
    CreateTable,
    MergeClause,
    MergeConfig,
    MergeGuards,
    MergeSource,
    MergeStatement,
    MergeTarget,
    SourceDedupe,
)
from airflow_delta_merge.exceptions import MergeConfigError

#: How the name of a file ends whose content Airflow takes for an argument.
SQL_FILE = ".sql"

_PLACEHOLDER = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_STATEMENT_OR_COMMENT = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")

# What stands for an argument whose value only the run knows, so that the others can be checked together.
_STAND_INS: dict[str, Any] = {
    "target": "stand_in",
    "source": "stand_in",
    "on": ("stand_in",),
    "clauses": ({"kind": "matched", "action": "delete"},),
    "target_alias": "target",
    "source_alias": "source",
    "source_dedupe": None,
    "create_table": None,
}


class _HasDict(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


def to_plain(value: Any) -> Any:
    """Turn targets, sources and clauses into dicts and lists of strings, where Airflow finds and renders templates.

    What is plain already stays the same object: by that Airflow knows a mapped task's values, which come from other
    tasks, and doesn't take them for templates. A copy would be rendered, whatever stands in it.
    """
    if isinstance(value, (MergeTarget, MergeSource, MergeClause, SourceDedupe, CreateTable)):
        return to_plain(cast("_HasDict", value).to_dict())
    if isinstance(value, str) or _is_output(value):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, Mapping):
        items = {name: to_plain(item) for name, item in value.items()}
        return value if type(value) is dict and _are_same(items.values(), value.values()) else items
    if isinstance(value, Iterable) and not is_dataclass(value):
        plain = list(value)
        made = [to_plain(item) for item in plain]
        return value if type(value) is list and _are_same(made, plain) else made
    return value


def _are_same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))


def check_rendered_conf(templates: Mapping[str, Any], rendered: Mapping[str, Any]) -> None:
    """Check that no value of a run refers to something, as Spark would put it in place: ``${env:PASSWORD}``.

    :param templates: the properties as the DAG has them, which may refer to what they like.
    :raises MergeConfigError: when one does.
    """
    for name, value in rendered.items():
        if "${" in str(value) and "${" not in str(templates[name]):
            raise MergeConfigError(
                f"The value of {name} that this run gives holds ${{…}}, which Spark would replace by a variable of the "
                "worker's environment or another property: leave it out."
            )


def check_at_parse(arguments: Mapping[str, Any]) -> None:
    """Build the config with stand-ins for all that is not known yet, only to see whether it can be built.

    :param arguments: those of :class:`MergeConfig`, made plain by :func:`to_plain`.
    :raises MergeConfigError: for what no run could make right.
    """
    numbers = count(1)
    known = {
        name: _STAND_INS[name] if name in _STAND_INS and _holds_output(value) else _fill(value, numbers)
        for name, value in arguments.items()
    }
    known["guards"] = _known_guards(arguments["guards"])
    if _is_template(arguments["on"]):
        needs_keys = arguments["null_safe"] or arguments["source_dedupe"] is not None
        known["on"] = _STAND_INS["on"] if needs_keys else "template = template"
    MergeConfig(**known)


def check_statement_at_parse(sql: Any, guards: Mapping[str, Any]) -> None:
    """Check a statement as far as it is known: templates in it stand for names.

    :raises MergeConfigError: for what no run could make right.
    """
    if isinstance(sql, str) and sql.endswith(SQL_FILE):
        sql = "MERGE INTO file"  # Airflow reads it, and renders it, when the DAG is parsed whole
    elif _is_output(sql):
        sql = "MERGE INTO output"
    elif isinstance(sql, str) and _TEMPLATE.search(sql):
        sql = _PLACEHOLDER.sub("template", _STATEMENT_OR_COMMENT.sub(" ", sql))
        sql = "MERGE INTO template" if sql.strip() == "template" else sql
    MergeStatement(sql=sql, guards=MergeGuards(**_known_guards(guards)))


def _known_guards(guards: Mapping[str, Any]) -> dict[str, Any]:
    """The guards without those that hold templates or outputs."""
    fail_if = guards["fail_if"]
    if isinstance(fail_if, Mapping):
        fail_if = {name: 0 if _is_unknown(value) else value for name, value in fail_if.items()}
    elif isinstance(fail_if, list):
        fail_if = [condition for condition in fail_if if not _is_unknown(condition)]
    known = {**guards, "fail_if": fail_if}
    return {name: value for name, value in known.items() if not _is_unknown(value)}


def _is_unknown(value: Any) -> bool:
    return _is_template(value) or _is_output(value)


def _fill(value: Any, numbers: count[int]) -> Any:
    """Replace each templated string by a text of its own, which does as name, path and expression."""
    if _is_template(value):
        return f"(template_{next(numbers)})"
    if isinstance(value, Mapping):
        return {_fill(name, numbers): _fill(item, numbers) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, numbers) for item in value]
    return value


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and _TEMPLATE.search(value) is not None


def _is_output(value: Any) -> bool:
    """Whether Airflow will resolve this at run time: an XComArg or one of its kind."""
    return not isinstance(value, os.PathLike) and callable(getattr(value, "resolve", None))


def _holds_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_output(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_output(item) for item in value)
    return _is_output(value)
