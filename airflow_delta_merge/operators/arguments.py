"""The operator's arguments: as plain values, as a config, and whether their values are known before the run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
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
from airflow_delta_merge.config.checks import in_order, is_data_frame, is_output, refuse_set
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.locations import as_source, as_target, spark_path
from airflow_delta_merge.operators.templates import is_template
from airflow_delta_merge.patterns import Pattern, pattern_from_dict

_SQL_FILE = ".sql"
# As Python writes objects that have no text of their own.
_TEXT_OF_OBJECT = re.compile(r"<[\w.<>]+ object at 0x[0-9a-f]+>")
_STATEMENT = re.compile(r"\s*(\(\s*)*(select|with|from|values|table|merge)\s", re.IGNORECASE)

#: The arguments that a pattern replaces, with their defaults.
PARTS_OF_A_PATTERN: dict[str, Any] = {
    "on": None,
    "clauses": None,
    "null_safe": False,
    "target_alias": "target",
    "source_alias": "source",
    "source_dedupe": None,
    "null_keys": "allow",
}
#: The arguments that a statement (``sql``) replaces, with their defaults.
PARTS_OF_A_STATEMENT: dict[str, Any] = {
    "target": None,
    "source": None,
    **PARTS_OF_A_PATTERN,
    "pattern": None,
    "window": None,
    "with_schema_evolution": False,
    "create_table": False,
}
#: The arguments that may stop a merge, with their defaults.
GUARDS: dict[str, Any] = {"fail_if": [], "on_empty_source": "merge", "expect_source": None}
_OPTIONS: dict[str, Any] = {"update_only_changed": False, "engine": "delta_merge", **GUARDS}
#: All arguments of one merge, with their defaults.
PARTS_OF_A_MERGE: dict[str, Any] = {
    **PARTS_OF_A_STATEMENT,
    "sql": None,
    **_OPTIONS,
}

#: A window's parts that the author left out: the run's data interval, in the DAG's timezone.
INTERVAL = {
    "start": "{{ data_interval_start | default('', true) }}",  # asset-triggered and some manual runs have none
    "end": "{{ data_interval_end | default('', true) }}",
    "timezone": "{{ dag.timezone.name }}",
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
    if isinstance(value, str) and _TEXT_OF_OBJECT.search(value):
        raise MergeConfigError(
            f"{value!r:.200} holds the text of an object. A DAG's parameter has no value in an f-string: write "
            "a text without f, with {{ params.… }}."
        )
    if isinstance(value, str) or is_output(value):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, ObjectStoragePath):
        return spark_path(value)
    if isinstance(value, Mapping):
        items = {name: to_plain(item) for name, item in value.items()}
        return value if type(value) is dict and _are_same(items.values(), value.values()) else items
    if isinstance(value, Iterable) and not is_dataclass(value) and not is_data_frame(value):
        plain = list(in_order(value))
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


def plain_clauses(clauses: Any) -> Any:
    """Clauses as :func:`to_plain` makes them, also a single one."""
    is_one = isinstance(clauses, (MergeClause, Mapping, str)) and not is_template(clauses)
    return to_plain([clauses] if is_one else clauses)


def plain_dedupe(dedupe: Any) -> Any:
    """What ``source_dedupe`` says as :func:`to_plain` makes it, which would give the columns of a set some order."""
    latest_by = dedupe.get("latest_by") if isinstance(dedupe, Mapping) else dedupe
    refuse_set(latest_by, "source_dedupe")
    return to_plain(dedupe)


def window_template(window: MergeWindow | str | Mapping[str, Any] | None) -> Any:
    """A window as a dict of texts, of the run's data interval where it says no other."""
    if isinstance(window, str):
        window = {"column": window}
    plain = to_plain(window)
    return {**INTERVAL, **plain} if isinstance(plain, Mapping) and not INTERVAL.keys() <= plain.keys() else plain


def plain_part(name: str, value: Any) -> Any:
    """A part of a merge as :func:`to_plain` makes it, also where people may write it in more ways than others."""
    return _CONVERTERS.get(name, to_plain)(value)


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "target": plain_target,
    "source": plain_source,
    "clauses": plain_clauses,
    "source_dedupe": plain_dedupe,
    "window": window_template,
}


@contextmanager
def wrong_types_refused() -> Iterator[None]:
    """Make a config error of each error by a value of a wrong type, also where no check names it."""
    try:
        yield
    except MergeConfigError:
        raise
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise MergeConfigError(f"An argument of the merge has a wrong type: {error}. Correct it.") from error


@wrong_types_refused()
def build_merge(arguments: Mapping[str, Any]) -> MergeConfig | MergeStatement:
    """Build the config, or the statement, of these arguments.

    :param arguments: all of :data:`PARTS_OF_A_MERGE`, made plain by :func:`to_plain`.
    :raises MergeConfigError: when the arguments are invalid.
    """
    options = {name: arguments[name] for name in _OPTIONS if name not in GUARDS}
    options["guards"] = {name: arguments[name] for name in GUARDS}
    if arguments["sql"] is not None:
        return MergeStatement(sql=arguments["sql"], **options)
    given = {name: arguments[name] for name in PARTS_OF_A_STATEMENT if name != "pattern"} | options
    # Other tasks may have returned them.
    given |= {"target": plain_target(given["target"]), "source": plain_source(given["source"])}
    if arguments["pattern"] is None:
        return MergeConfig(**given)
    given = {name: value for name, value in given.items() if name not in PARTS_OF_A_PATTERN}
    return pattern_from_dict(arguments["pattern"]).to_config(**given)


def is_unknown(value: Any) -> bool:
    """Whether only the run knows what it is: a template, or what another task returns."""
    return is_template(value) or is_output(value)


def names_file(value: Any) -> bool:
    """Whether ``sql`` or ``source`` is a file's name, and not a statement that ends in a column ``sql``."""
    is_file = isinstance(value, str) and value.endswith(_SQL_FILE) and "\n" not in value
    return is_file and _STATEMENT.match(value) is None


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


def holds_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(holds_output(item) for item in value.values())
    if isinstance(value, list):
        return any(holds_output(item) for item in value)
    return is_output(value)
