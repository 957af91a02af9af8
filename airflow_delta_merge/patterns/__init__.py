"""Common kinds of merges, each with a short description that builds the whole ``MergeConfig``.

``pattern=Upsert(keys=["id"])`` in the operator replaces the condition and the clauses. In your own Spark session, use
``engine.merge(spark, Upsert(keys=["id"]).to_config(target="customers", source="updates"))``. ``to_config(…).to_sql()``
shows the statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta_merge.config.checks import check_fields
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.patterns.apply_changes import ApplyChanges
from airflow_delta_merge.patterns.pattern import Pattern
from airflow_delta_merge.patterns.scd2 import Scd2
from airflow_delta_merge.patterns.snapshots import InsertNew, SoftDelete, Sync, Upsert

#: The patterns by the names they have in dicts.
PATTERNS = {each.NAME: each for each in (Upsert, InsertNew, Sync, SoftDelete, ApplyChanges, Scd2)}


def pattern_from_dict(value: Mapping[str, Any]) -> Pattern:
    """Read a pattern from a dict of its name, as ``pattern``, and its parameters.

    :raises MergeConfigError: when there is no such pattern, or its parameters are invalid.
    """
    if not isinstance(value, Mapping):
        raise MergeConfigError(
            f"A pattern must be e.g. Upsert(keys=['id']) or a dict of its parameters, got {value!r}."
        )
    name = value.get("pattern")
    if not isinstance(name, str) or name not in PATTERNS:
        raise MergeConfigError(f"There is no pattern {name!r}. Known are: {', '.join(PATTERNS)}.")
    kind = PATTERNS[name]
    check_fields(kind, value, f"pattern {name}", others=("pattern",))
    return kind(**{key: value[key] for key in value if key != "pattern"})


__all__ = [
    "PATTERNS",
    "ApplyChanges",
    "InsertNew",
    "Pattern",
    "Scd2",
    "SoftDelete",
    "Sync",
    "Upsert",
    "pattern_from_dict",
]
