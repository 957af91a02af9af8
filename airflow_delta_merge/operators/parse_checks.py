"""Checks a merge's arguments at parse time, when templates and outputs of upstream tasks have no values yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_delta_merge.config.checks import is_output, require_bool
from airflow_delta_merge.config.jdbc_source import JDBC
from airflow_delta_merge.contract.identity import check_commit_attempts
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.arguments import (
    GUARDS,
    PARTS_OF_A_MERGE,
    PARTS_OF_A_PATTERN,
    PARTS_OF_A_STATEMENT,
    build_merge,
    check_is_known,
    holds_output,
    is_unknown,
    names_file,
    wrong_types_refused,
)
from airflow_delta_merge.operators.templates import is_template

_NOT_TEMPLATED = (
    *("null_safe", "null_keys", "with_schema_evolution", "update_only_changed", "engine"),
    *("exactly_once", "max_commit_attempts", "deferrable"),
)
_NEEDED = ("target", "source", "on", "clauses")
# What is no text, so that a template of it can only be native.
_NO_TEXTS = ("pattern", "create_table")
# What a source says of bad rows; where the last one lies is a text in any case.
_OF_BAD_ROWS = ("bad_rows", "max_bad_rows", "bad_rows_path")
# What stands for parts of a JDBC source whose values only the run knows.
_STAND_INS_OF_JDBC = {"num_partitions": 2, "fetch_size": 1}
# Whole days in any zone, around each window.
_ALL_DAYS = {"start": "0001-01-03", "end": "9999-12-29"}

_PLACEHOLDER = re.compile(r"\{\{.*?\}\}", re.DOTALL)
# As _fill makes them.
_FILLED = re.compile(r"\(template_(\d+)\)")
_STATEMENT_OR_COMMENT = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)

# What stands for an argument whose value only the run knows, so that the others can be checked together.
_STAND_INS: dict[str, Any] = {
    **PARTS_OF_A_MERGE,
    "target": "stand_in",
    "source": "stand_in",
    "on": ("stand_in",),
    "clauses": ({"kind": "matched", "action": "delete"},),
}


@wrong_types_refused()
def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Check at parse time whether the arguments fit together, and each one as far as its value is known.

    :param arguments: as for :func:`build_merge`.
    :raises MergeConfigError: when they are invalid in every run.
    """
    if arguments["sql"] is not None:
        _refuse(arguments, PARTS_OF_A_STATEMENT, "sql is the whole statement", "sql")
        with _hidden_named() as hidden:
            build_merge({**arguments, "sql": _known_statement(arguments["sql"]), **_known_guards(arguments, hidden)})
        return
    needed: Sequence[str] = _NEEDED
    if arguments["pattern"] is not None:
        _refuse(arguments, PARTS_OF_A_PATTERN, "A pattern brings its own condition and clauses", "pattern")
        needed = _NEEDED[:2]
    if missing := [name for name in needed if arguments[name] is None]:
        raise MergeConfigError(
            f"A merge needs target, source, on and clauses; missing: {', '.join(missing)}. A pattern replaces on and "
            "clauses, sql replaces all four."
        )
    with _hidden_named() as hidden:
        _check_at_parse(arguments, hidden)


def check_options(given: Mapping[str, Any]) -> None:
    """Check the task's own options and what isn't templated, of those that are given.

    :raises MergeConfigError: when one is invalid.
    """
    for name in _NOT_TEMPLATED:
        check_is_known(name, given.get(name))
    for name in ("exactly_once", "deferrable"):
        require_bool(given.get(name, True), name)
    events = given.get("asset_events", "never")
    if events not in ("on_commit", "always", "never"):
        raise MergeConfigError(f"asset_events must be one of on_commit, always, never, got {events!r}.")
    check_commit_attempts(given.get("max_commit_attempts", 1))


def stand_ins_beside(given: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for the arguments that a merge needs beside these."""
    needed = () if "sql" in given else _NEEDED[:2] if "pattern" in given else _NEEDED
    return {name: _STAND_INS[name] for name in needed}


def _refuse(arguments: Mapping[str, Any], parts: Mapping[str, Any], why: str, cause: str) -> None:
    given = [name for name, nothing in parts.items() if arguments[name] != nothing]
    if given:
        raise MergeConfigError(f"{why}. Remove {', '.join(given)}, or remove {cause}.")


@contextmanager
def _hidden_named() -> Iterator[list[str]]:
    """Name the templates and outputs that an error is about, in place of what stands for them.

    :return: a list for what :func:`_fill` replaces.
    """
    hidden: list[str] = []
    try:
        yield hidden
    except MergeConfigError as error:
        text = _FILLED.sub(lambda found: hidden[int(found[1]) - 1], str(error))
        if text == str(error):
            raise
        raise MergeConfigError(
            f"{text} This is needed when the DAG is parsed, so it can't be a template or another task's output."
        ) from None


def _check_at_parse(arguments: Mapping[str, Any], hidden: list[str]) -> None:
    """Build the config with stand-ins for all that is not known yet, only to see whether it can be built.

    :param arguments: as for :func:`build_merge`.
    :param hidden: as for :func:`_fill`.
    :raises MergeConfigError: for what no run could make right.
    """
    known = {
        name: _STAND_INS[name]
        if holds_output(value) or (name in _NO_TEXTS and is_template(value))
        else _fill(value, hidden)
        for name, value in arguments.items()
    }
    known["clauses"] = _known_clauses(arguments["clauses"], hidden)
    known["source"] = _known_source(arguments["source"], known["source"])
    known |= _known_guards(arguments, hidden)
    known["window"] = _known_window(arguments["window"])
    if arguments["pattern"] is not None and known["pattern"] is None:
        known |= {"on": _STAND_INS["on"], "clauses": _STAND_INS["clauses"]}
    if is_template(arguments["on"]):
        needs_keys = arguments["null_safe"] or arguments["source_dedupe"] is not None
        known["on"] = _STAND_INS["on"] if needs_keys else "template = template"
    build_merge(known)


def _known_clauses(clauses: Any, hidden: list[str]) -> Any:
    """The clauses, in which texts stand for conditions and values that only the run knows."""
    parts = clauses if isinstance(clauses, list) else [clauses]
    no_texts = [part.get("values") if isinstance(part, Mapping) else part for part in parts]
    return _STAND_INS["clauses"] if any(map(is_unknown, no_texts)) else _fill(clauses, hidden)


def _known_source(given: Any, filled: Any) -> Any:
    """The source, of which what it says of bad rows can be checked as far as it is known."""
    if isinstance(given, Mapping) and isinstance(filled, Mapping) and str(given.get("format")).lower() == JDBC:
        return _known_jdbc(given)
    if not isinstance(given, Mapping) or not isinstance(filled, Mapping) or not given.keys() & set(_OF_BAD_ROWS):
        return filled
    if any(is_unknown(given.get(name)) for name in _OF_BAD_ROWS[:2]):
        return {name: part for name, part in filled.items() if name not in _OF_BAD_ROWS}
    paths = given.get("paths") or given.get("path")
    paths = [paths] if isinstance(paths, str) else paths or []
    format_ = given.get("format")
    is_named = not is_unknown(format_) if format_ is not None else not any(is_unknown(path) for path in paths)
    # The name of a file that only the run knows doesn't tell its format yet.
    return filled if is_named else {**filled, "format": "json"}


def _known_jdbc(source: Mapping[str, Any]) -> dict[str, Any]:
    """A JDBC source, in which names and numbers stand for what only the run knows."""
    known = {
        name: _STAND_INS_OF_JDBC.get(name, "template") if is_unknown(part) else part for name, part in source.items()
    }
    for name, other in (("lower_bound", "upper_bound"), ("upper_bound", "lower_bound")):
        if is_unknown(source.get(name)):
            known[name] = 0 if is_unknown(source.get(other)) else source.get(other)
    return known


def _known_window(window: Any) -> Any:
    """The window, in which days that are always earlier or later stand for what only the run knows."""
    if not isinstance(window, Mapping):
        return None if is_output(window) else window
    known = {name: value for name, value in window.items() if not is_unknown(value)}
    return {"column": "template", **_ALL_DAYS, **known}


def _known_statement(sql: Any) -> Any:
    """The statement as far as it is known: templates in it stand for names."""
    if names_file(sql):
        return "MERGE INTO file"  # Airflow reads it, and renders it, when the DAG is parsed whole
    if is_output(sql):
        return "MERGE INTO output"
    if is_template(sql):
        sql = _PLACEHOLDER.sub("template", _STATEMENT_OR_COMMENT.sub(" ", sql))
        return "MERGE INTO template" if sql.strip() == "template" else sql
    return sql


def _known_guards(arguments: Mapping[str, Any], hidden: list[str]) -> dict[str, Any]:
    """The guards, with defaults for those that hold templates or outputs."""
    fail_if = arguments["fail_if"]
    if isinstance(fail_if, Mapping):
        fail_if = {name: 0 if is_unknown(value) else value for name, value in fail_if.items()}
    elif isinstance(fail_if, list):
        fail_if = [condition for condition in fail_if if not is_unknown(condition)]
    known = {
        "fail_if": fail_if,
        "on_empty_source": arguments["on_empty_source"],
        "expect_source": _known_expectations(arguments["expect_source"], hidden),
    }
    return {name: GUARDS[name] if is_unknown(value) else value for name, value in known.items()}


def _known_expectations(expected: Any, hidden: list[str]) -> Any:
    """What is expected of the source, without the parts that hold outputs or are templates as a whole."""
    if not isinstance(expected, Mapping):
        return None if is_unknown(expected) else expected
    parts = {name: part for name, part in expected.items() if name != "failed_rows_path"}
    known = {name: part for name, part in parts.items() if not is_unknown(part) and not holds_output(part)}
    given = {name: _known_severity(part, expected) for name, part in known.items()}
    is_whole = len(known) == len(parts)
    # What isn't known may set rows aside.
    if "failed_rows_path" in expected and (is_whole or "set_aside" in str(given)):
        path = expected["failed_rows_path"]
        given["failed_rows_path"] = "template" if is_unknown(path) else path
    # With nothing known left there is nothing to check; nor with what of it is expected unknown.
    return _fill(given, hidden) if is_whole or known.keys() - {"sample"} else None


def _known_severity(part: Any, expected: Mapping[str, Any]) -> Any:
    """An expectation, of which what only the run knows goes with the rest."""
    if not isinstance(part, Mapping) or not is_unknown(part.get("on_failure")):
        return part
    return {**part, "on_failure": "set_aside" if "failed_rows_path" in expected else "fail"}


def _fill(value: Any, hidden: list[str]) -> Any:
    """Replace what only the run knows by a text of its own, which does as name, path and expression.

    :param hidden: what has been replaced so far; it is added.
    """
    if is_unknown(value):
        hidden.append(str(value))
        return f"(template_{len(hidden)})"
    if isinstance(value, Mapping):
        return {_fill(name, hidden): _fill(item, hidden) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, hidden) for item in value]
    return value
