"""The operator's ``merges``: several merges in one task, each with the arguments of a single merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.arguments import (
    PARTS_OF_A_MERGE,
    build_merge,
    is_unknown,
    plain_part,
    to_plain,
)
from airflow_delta_merge.operators.parse_checks import check_arguments


def plain_merges(merges: Any) -> Any:
    """The argument as a list of dicts, in which Airflow finds templates; unchanged if it is known only at run time.

    :raises MergeConfigError: when it is not a list of merges.
    """
    if merges is None or is_unknown(merges):
        return merges
    return [_plain_merge(each) for each in _list(merges)]


def check_merges(merges: Any, other_arguments: Mapping[str, Any]) -> None:
    """Check each merge at parse time, as far as it is known.

    :param merges: the result of :func:`plain_merges`.
    :param other_arguments: the operator's own :data:`PARTS_OF_A_MERGE`.
    :raises MergeConfigError: when a merge is invalid in every run.
    """
    if given := [name for name, nothing in PARTS_OF_A_MERGE.items() if other_arguments[name] != nothing]:
        raise MergeConfigError(f"merges can't be combined with {', '.join(given)}. Move them into each merge.")
    for number, merge in enumerate(() if is_unknown(merges) else merges, 1):
        if not is_unknown(merge):
            with _numbered(number):
                check_arguments(_arguments(merge))


def build_merges(merges: Any) -> list[MergeConfig | MergeStatement]:
    """The merges of a run.

    :param merges: the rendered result of :func:`plain_merges`, or the value that another task returned for it.
    :raises MergeConfigError: when a merge is invalid.
    """
    built = []
    for number, merge in enumerate(_list(merges), 1):
        with _numbered(number):
            built.append(build_merge(_arguments(_plain_merge(merge))))
    return built


def _list(merges: Any) -> list[Any]:
    found = [] if isinstance(merges, (str, Mapping)) or not isinstance(merges, Iterable) else list(merges)
    if not found:
        raise MergeConfigError(
            "merges must be a list of at least one merge, each a dict of the arguments of a single merge."
        )
    return found


def _plain_merge(merge: Any) -> Any:
    """A merge as a dict of arguments."""
    if isinstance(merge, (MergeConfig, MergeStatement)):
        merge = merge.to_dict()
    if not isinstance(merge, Mapping):
        return to_plain(merge)
    plain = {name: plain_part(name, part) for name, part in merge.items()}
    # A config's dict also has a version, and its guards are nested.
    return {name: part for name, part in plain.items() if name not in ("version", "guards")} | plain.get("guards", {})


def _arguments(merge: Any) -> dict[str, Any]:
    """The arguments for :func:`check_arguments` and :func:`build_merge`."""
    if not isinstance(merge, Mapping):
        raise MergeConfigError(f"It must be a dict of arguments or a MergeConfig, got {merge!r:.80}.")
    if unknown := [str(name) for name in merge if name not in PARTS_OF_A_MERGE]:
        raise MergeConfigError(
            f"It has unknown arguments: {', '.join(unknown)}. Known are: {', '.join(PARTS_OF_A_MERGE)}."
        )
    return {**PARTS_OF_A_MERGE, **merge}


@contextmanager
def _numbered(number: int) -> Iterator[None]:
    try:
        yield
    except MergeConfigError as error:
        raise MergeConfigError(f"Merge {number} of merges: {error}") from error
