"""The operator's ``merges``: several merges in one task, each told by the arguments that a single merge has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.arguments import (
    PARTS_OF_A_MERGE,
    build_merge,
    check_arguments,
    is_unknown,
    plain_source,
    plain_target,
    to_plain,
    window_template,
    with_guards,
)


def plain_merges(merges: Any) -> Any:
    """The argument as a list of dicts, where Airflow finds templates; or as it is, if only the run knows it.

    :raises MergeConfigError: when it is no list of merges.
    """
    if merges is None or is_unknown(merges):
        return merges
    plain = [_plain_merge(each) for each in _list(merges)]
    for merge in plain:
        if isinstance(merge, dict) and merge.get("window") is not None:
            merge["window"] = window_template(merge["window"])
    return plain


def check_merges(merges: Any, other_arguments: Mapping[str, Any]) -> None:
    """Check each of them at parse, as far as it is known.

    :param merges: as :func:`plain_merges` made them.
    :param other_arguments: the operator's own :data:`PARTS_OF_A_MERGE`.
    :raises MergeConfigError: for what no run could make right.
    """
    if given := [name for name, nothing in PARTS_OF_A_MERGE.items() if other_arguments[name] != nothing]:
        raise MergeConfigError(f"merges says all of each merge: put {', '.join(given)} there, or write no merges.")
    for number, merge in enumerate(() if is_unknown(merges) else merges, 1):
        if not is_unknown(merge):
            with _numbered(number):
                check_arguments(*_arguments(merge))


def build_merges(merges: Any) -> list[MergeConfig | MergeStatement]:
    """The merges of a run.

    :param merges: as :func:`plain_merges` made them, rendered; or what other tasks have returned in their place.
    :raises MergeConfigError: when there is no such merge.
    """
    built = []
    for number, merge in enumerate(_list(merges), 1):
        with _numbered(number):
            built.append(build_merge(*_arguments(_plain_merge(merge))))
    return built


def _list(merges: Any) -> list[Any]:
    found = [] if isinstance(merges, (str, Mapping)) or not isinstance(merges, Iterable) else list(merges)
    if not found:
        raise MergeConfigError(
            "merges is a list of at least one merge, each a dict of the arguments that a single merge has."
        )
    return found


def _plain_merge(merge: Any) -> Any:
    """A merge as a dict of arguments."""
    if isinstance(merge, (MergeConfig, MergeStatement)):
        merge = merge.to_dict()
    if not isinstance(merge, Mapping):
        return to_plain(merge)
    places = {"target": plain_target, "source": plain_source}
    plain = {name: places.get(name, to_plain)(part) for name, part in merge.items()}
    # What a config's dict has beside the arguments.
    return {name: part for name, part in plain.items() if name not in ("version", "guards")} | plain.get("guards", {})


def _arguments(merge: Any) -> tuple[dict[str, Any], Any]:
    """What :func:`check_arguments` and :func:`build_merge` take."""
    if not isinstance(merge, Mapping):
        raise MergeConfigError(f"It is a dict of arguments or a MergeConfig, not {merge!r:.80}.")
    if unknown := [str(name) for name in merge if name not in PARTS_OF_A_MERGE]:
        raise MergeConfigError(f"It has no {', '.join(unknown)}; it can have {', '.join(PARTS_OF_A_MERGE)}.")
    parts = {**PARTS_OF_A_MERGE, **merge}
    sql = parts.pop("sql")
    return with_guards(parts), sql


@contextmanager
def _numbered(number: int) -> Iterator[None]:
    try:
        yield
    except MergeConfigError as error:
        raise MergeConfigError(f"Merge {number} of merges: {error}") from error
