"""Merges as JSON and back, for the road from the operator to the Spark job; and as SQL, for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_delta_merge.config.merge_config import MergeConfig
from airflow_delta_merge.config.merge_statement import MergeStatement
from airflow_delta_merge.exceptions import MergeConfigError


def to_json(merges: MergeConfig | MergeStatement | Sequence[MergeConfig | MergeStatement]) -> str:
    """A merge as a JSON object, several as an array of objects."""
    data = (
        merges.to_dict() if isinstance(merges, (MergeConfig, MergeStatement)) else [each.to_dict() for each in merges]
    )
    return json.dumps(data, ensure_ascii=False, sort_keys=True)


def from_json(text: str) -> MergeConfig | MergeStatement | list[MergeConfig | MergeStatement]:
    """Read what :func:`to_json` wrote.

    :raises MergeConfigError: when the text is no JSON object or array, of another release, or no merge.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise MergeConfigError(f"The merge config is not JSON: {error}.") from error
    if data == []:
        raise MergeConfigError("The merge config is an empty JSON array, one merge is needed at least.")
    return [_merge(each) for each in data] if isinstance(data, list) else _merge(data)


def statements_to_sql(merges: Sequence[MergeConfig | MergeStatement]) -> str:
    """The statements of one merge or several, as a person would write them into one file."""
    return ";\n\n".join(merge.to_sql() for merge in merges)


def _merge(data: Any) -> MergeConfig | MergeStatement:
    if not isinstance(data, dict):
        raise MergeConfigError(f"The merge config is a JSON {type(data).__name__}, an object is needed.")
    return MergeStatement.from_dict(data) if "sql" in data else MergeConfig.from_dict(data)
