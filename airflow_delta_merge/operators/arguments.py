"""From the operator's arguments to a config, also while the DAG is parsed, when templates and outputs of upstream tasks
have no values yet."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from itertools import count
from typing import Any, Protocol, cast

from airflow.providers.common.compat.sdk import ObjectStoragePath

from airflow_delta_merge.config import (
    CreateTable,
    MergeClause,
    MergeConfig,
    MergeSource,
    MergeStatement,
    MergeTarget,
    MergeWindow,
    SourceDedupe,
    SourceExpectations,
)
from airflow_delta_merge.config.jdbc_source import JDBC
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.locations import as_source, as_target, spark_path
from airflow_delta_merge.operators.templates import is_template
from airflow_delta_merge.patterns import Pattern, pattern_from_dict

_SQL_FILE = ".sql"
_STATEMENT = re.compile(r"\s*(\(\s*)*(select|with|from|values|table|merge)\s", re.IGNORECASE)

_NEEDED = ("target", "source", "on", "clauses")
# What a pattern brings itself, with what each argument is when it isn't given.
_PARTS_OF_A_PATTERN: dict[str, Any] = {
    "on": None,
    "clauses": None,
    "null_safe": False,
    "target_alias": "target",
    "source_alias": "source",
    "source_dedupe": None,
    "null_keys": "allow",
}
#: What a statement brings itself, likewise.
PARTS_OF_A_STATEMENT: dict[str, Any] = {
    "target": None,
    "source": None,
    **_PARTS_OF_A_PATTERN,
    "pattern": None,
    "window": None,
    "with_schema_evolution": False,
    "create_table": False,
}
_GUARDS: dict[str, Any] = {"fail_if": [], "on_empty_source": "merge", "expect_source": None}
_OPTIONS: dict[str, Any] = {"update_only_changed": False, "engine": "delta_merge", **_GUARDS}
#: All that can be said of one merge, likewise.
PARTS_OF_A_MERGE: dict[str, Any] = {
    **PARTS_OF_A_STATEMENT,
    "sql": None,
    **_OPTIONS,
}

#: The window of a run, where the author gave none.
INTERVAL = {
    "start": "{{ data_interval_start | default('', true) }}",  # asset-triggered and some manual runs have none
    "end": "{{ data_interval_end | default('', true) }}",
    "timezone": "{{ dag.timezone.name }}",
}
# What a source says of bad rows; where the last one lies is a text in any case.
_OF_BAD_ROWS = ("bad_rows", "max_bad_rows", "bad_rows_path")
# What stands for parts of a JDBC source whose values only the run knows.
_STAND_INS_OF_JDBC = {"num_partitions": 2, "fetch_size": 1}
# Whole days in any zone.
_SOME_DAY = {"start": "2000-01-01", "end": "2000-01-02"}

_PLACEHOLDER = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_STATEMENT_OR_COMMENT = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)

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
    "pattern": None,
    "null_safe": False,
    "null_keys": "allow",
    "with_schema_evolution": False,
    "update_only_changed": False,
    "engine": "delta_merge",
}


_WITH_DICT = (
    MergeTarget,
    MergeSource,
    MergeClause,
    SourceDedupe,
    CreateTable,
    MergeWindow,
    SourceExpectations,
    Pattern,
)


class _HasDict(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


def to_plain(value: Any) -> Any:
    """Turn targets, sources, clauses and their like into dicts and lists of texts, where Airflow finds templates.

    What is plain already stays the same object: by that Airflow knows a mapped task's values, which come from other
    tasks, and doesn't take them for templates. A copy would be rendered, whatever stands in it.
    """
    if isinstance(value, _WITH_DICT):
        return to_plain(cast("_HasDict", value).to_dict())
    if isinstance(value, str) or is_output(value):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, ObjectStoragePath):
        return spark_path(value)
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


def plain_target(target: Any) -> Any:
    """A target as :func:`to_plain` makes it, also from a Delta table's asset."""
    return to_plain(as_target(target))


def plain_source(source: Any) -> Any:
    """A source as :func:`to_plain` makes it, also from an asset."""
    return to_plain(as_source(source))


def window_template(window: MergeWindow | str | Mapping[str, Any] | None) -> Any:
    """A window as a dict of texts, of the run's data interval where it says no other."""
    if isinstance(window, str):
        window = {"column": window}
    plain = to_plain(window)
    return {**INTERVAL, **plain} if isinstance(plain, Mapping) and not INTERVAL.keys() <= plain.keys() else plain


@contextmanager
def _wrong_types_refused() -> Iterator[None]:
    """Make a config error of each error by a value of a wrong type, also where no check names it."""
    try:
        yield
    except MergeConfigError:
        raise
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise MergeConfigError(f"An argument of the merge has a wrong type: {error}. Correct it.") from error


@_wrong_types_refused()
def build_merge(arguments: Mapping[str, Any]) -> MergeConfig | MergeStatement:
    """Build the config, or the statement, of these arguments.

    :param arguments: all of :data:`PARTS_OF_A_MERGE`, made plain by :func:`to_plain`.
    :raises MergeConfigError: when the arguments are invalid.
    """
    options = {name: arguments[name] for name in _OPTIONS if name not in _GUARDS}
    options["guards"] = {name: arguments[name] for name in _GUARDS}
    if arguments["sql"] is not None:
        return MergeStatement(sql=arguments["sql"], **options)
    given = {name: arguments[name] for name in PARTS_OF_A_STATEMENT if name != "pattern"} | options
    # Other tasks may have returned them.
    given |= {"target": plain_target(given["target"]), "source": plain_source(given["source"])}
    if arguments["pattern"] is None:
        return MergeConfig(**given)
    given = {name: value for name, value in given.items() if name not in _PARTS_OF_A_PATTERN}
    return pattern_from_dict(arguments["pattern"]).to_config(**given)


@_wrong_types_refused()
def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Check at parse time whether the arguments fit together, and each one as far as its value is known.

    :param arguments: as for :func:`build_merge`.
    :raises MergeConfigError: when they are invalid in every run.
    """
    if arguments["sql"] is not None:
        _refuse(arguments, PARTS_OF_A_STATEMENT, "sql is the whole statement", "sql")
        build_merge({**arguments, "sql": _known_statement(arguments["sql"]), **_known_guards(arguments)})
        return
    needed: Sequence[str] = _NEEDED
    if arguments["pattern"] is not None:
        _refuse(arguments, _PARTS_OF_A_PATTERN, "A pattern brings its own condition and clauses", "pattern")
        needed = _NEEDED[:2]
    if missing := [name for name in needed if arguments[name] is None]:
        raise MergeConfigError(
            f"A merge needs target, source, on and clauses; missing: {', '.join(missing)}. A pattern replaces on and "
            "clauses, sql replaces all four."
        )
    check_at_parse(arguments)


def _refuse(arguments: Mapping[str, Any], parts: Mapping[str, Any], why: str, cause: str) -> None:
    given = [name for name, nothing in parts.items() if arguments[name] != nothing]
    if given:
        raise MergeConfigError(f"{why}. Remove {', '.join(given)}, or remove {cause}.")


def check_rendered_conf(templates: Mapping[str, Any], rendered: Mapping[str, Any]) -> None:
    """Check that no value of a run refers to something, as Spark would put it in place: ``${env:PASSWORD}``.

    :param templates: the properties as the DAG has them, which may refer to what they like.
    :raises MergeConfigError: when one does.
    """
    for name, value in rendered.items():
        if "${" in str(value) and "${" not in str(templates[name]):
            raise MergeConfigError(
                f"The value of {name} in this run contains ${{…}}, which Spark would replace by an environment "
                "variable or another property. Remove it."
            )


def check_at_parse(arguments: Mapping[str, Any]) -> None:
    """Build the config with stand-ins for all that is not known yet, only to see whether it can be built.

    :param arguments: as for :func:`build_merge`.
    :raises MergeConfigError: for what no run could make right.
    """
    numbers = count(1)
    known = {
        name: _STAND_INS[name] if name in _STAND_INS and _holds_output(value) else _fill(value, numbers)
        for name, value in arguments.items()
    }
    known["source"] = _known_source(arguments["source"], known["source"])
    known |= _known_guards(arguments)
    known["window"] = _known_window(arguments["window"])
    if arguments["pattern"] is not None and known["pattern"] is None:
        known |= {"on": _STAND_INS["on"], "clauses": _STAND_INS["clauses"]}
    if is_template(arguments["on"]):
        needs_keys = arguments["null_safe"] or arguments["source_dedupe"] is not None
        known["on"] = _STAND_INS["on"] if needs_keys else "template = template"
    build_merge(known)


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
    """The window without what only the run knows; then it is some day."""
    if not isinstance(window, Mapping):
        return None if is_output(window) else window
    known = {name: value for name, value in window.items() if not is_unknown(value)}
    if not {"start", "end"} <= known.keys():
        known |= _SOME_DAY
    return {"column": "template", **known}


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


def _known_guards(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The guards, with defaults for those that hold templates or outputs."""
    fail_if = arguments["fail_if"]
    if isinstance(fail_if, Mapping):
        fail_if = {name: 0 if is_unknown(value) else value for name, value in fail_if.items()}
    elif isinstance(fail_if, list):
        fail_if = [condition for condition in fail_if if not is_unknown(condition)]
    known = {
        "fail_if": fail_if,
        "on_empty_source": arguments["on_empty_source"],
        "expect_source": _known_expectations(arguments["expect_source"]),
    }
    return {name: _GUARDS[name] if is_unknown(value) else value for name, value in known.items()}


def _known_expectations(expected: Any) -> Any:
    """What is expected of the source, without the parts that hold outputs or are templates as a whole."""
    if not isinstance(expected, Mapping):
        return None if is_unknown(expected) else expected
    parts = {name: part for name, part in expected.items() if name != "failed_rows_path"}
    known = {name: part for name, part in parts.items() if not is_unknown(part) and not _holds_output(part)}
    given = {name: _known_severity(part, expected) for name, part in known.items()}
    is_whole = len(known) == len(parts)
    # What isn't known may set rows aside.
    if "failed_rows_path" in expected and (is_whole or "set_aside" in str(given)):
        path = expected["failed_rows_path"]
        given["failed_rows_path"] = "template" if is_unknown(path) else path
    # With nothing known left there is nothing to check; nor with what of it is expected unknown.
    return _fill(given, count(1)) if is_whole or known.keys() - {"sample"} else None


def _known_severity(part: Any, expected: Mapping[str, Any]) -> Any:
    """An expectation, of which what only the run knows goes with the rest."""
    if not isinstance(part, Mapping) or not is_unknown(part.get("on_failure")):
        return part
    return {**part, "on_failure": "set_aside" if "failed_rows_path" in expected else "fail"}


def is_unknown(value: Any) -> bool:
    """Whether only the run knows what it is: a template, or what another task returns."""
    return is_template(value) or is_output(value)


def _fill(value: Any, numbers: count[int]) -> Any:
    """Replace each templated string by a text of its own, which does as name, path and expression."""
    if is_template(value):
        return f"(template_{next(numbers)})"
    if isinstance(value, Mapping):
        return {_fill(name, numbers): _fill(item, numbers) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, numbers) for item in value]
    return value


def names_file(value: Any) -> bool:
    """Whether ``sql`` or ``source`` is a file's name, and not a statement that ends in a column ``sql``."""
    is_file = isinstance(value, str) and value.endswith(_SQL_FILE) and "\n" not in value
    return is_file and _STATEMENT.match(value) is None


def is_output(value: Any) -> bool:
    """Whether Airflow will resolve this at run time: an XComArg or one of its kind."""
    return not isinstance(value, (os.PathLike, ObjectStoragePath)) and callable(getattr(value, "resolve", None))


def check_is_known(name: str, value: Any) -> None:
    """Check an argument that isn't templated, in which Airflow would leave a template or an output as it is.

    :raises MergeConfigError: when only the run knows the value.
    """
    if is_unknown(value):
        raise MergeConfigError(
            f"{name} is not templated, so it can't be a template or another task's output. Set it in the DAG, or map "
            "the task over it with expand."
        )


def outputs_in(value: Any) -> list[str]:
    """The ids of the tasks whose outputs this value holds."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return list(dict.fromkeys(task_id for item in value for task_id in outputs_in(item)))
    return [operator.task_id for operator, _ in value.iter_references()] if is_output(value) else []


def _holds_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_output(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_output(item) for item in value)
    return is_output(value)
