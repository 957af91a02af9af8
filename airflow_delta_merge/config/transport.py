"""Converts merges to JSON and back, for the way from the operator to the Spark job, and to SQL, for display."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_delta_merge.config.merge_config import MergeConfig
from airflow_delta_merge.config.merge_statement import MergeStatement
from airflow_delta_merge.exceptions import MergeConfigError


def to_data(merges: MergeConfig | MergeStatement | Sequence[MergeConfig | MergeStatement]) -> Any:
    """A merge as a dict of JSON types, several as a list of dicts."""
    return (
        merges.to_dict() if isinstance(merges, (MergeConfig, MergeStatement)) else [each.to_dict() for each in merges]
    )


def from_data(data: Any) -> MergeConfig | MergeStatement | list[MergeConfig | MergeStatement]:
    """Restore it from :func:`to_data`.

    :raises MergeConfigError: when the data is not a dict or a list, from another release, or not a merge.
    """
    if data == []:
        raise MergeConfigError("The merge config is an empty JSON array. It needs at least one merge.")
    return [_merge(each) for each in data] if isinstance(data, list) else _merge(data)


def to_json(merges: MergeConfig | MergeStatement | Sequence[MergeConfig | MergeStatement]) -> str:
    """A merge as a JSON object, several as an array of objects."""
    return json.dumps(to_data(merges), ensure_ascii=False, sort_keys=True)


def from_json(text: str) -> MergeConfig | MergeStatement | list[MergeConfig | MergeStatement]:
    """Restore it from :func:`to_json`.

    :raises MergeConfigError: when the text is not a JSON object or array, from another release, or not a merge.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MergeConfigError(f"The merge config is not JSON: {error}.") from error
    return from_data(data)


def statements_to_sql(merges: Sequence[MergeConfig | MergeStatement]) -> str:
    """The statements of one or several merges, as in one SQL file."""
    return ";\n\n".join(merge.to_sql() for merge in merges)


def _merge(data: Any) -> MergeConfig | MergeStatement:
    if not isinstance(data, dict):
        raise MergeConfigError(f"The merge config must be a JSON object, got {type(data).__name__}.")
    return MergeStatement.from_dict(data) if "sql" in data else MergeConfig.from_dict(data)
