"""Merges as JSON and back, for the road from the operator to the Spark job."""

from __future__ import annotations

import json

from airflow_delta_merge.config.merge_config import MergeConfig
from airflow_delta_merge.config.merge_statement import MergeStatement
from airflow_delta_merge.exceptions import MergeConfigError


def to_json(merge: MergeConfig | MergeStatement) -> str:
    return json.dumps(merge.to_dict(), ensure_ascii=False, sort_keys=True)


def from_json(text: str) -> MergeConfig | MergeStatement:
    """Read what :func:`to_json` wrote.

    :raises MergeConfigError: when the text is no JSON object, of another release, or no merge.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise MergeConfigError(f"The merge config is not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise MergeConfigError(f"The merge config is a JSON {type(data).__name__}, an object is needed.")
    return MergeStatement.from_dict(data) if "sql" in data else MergeConfig.from_dict(data)
