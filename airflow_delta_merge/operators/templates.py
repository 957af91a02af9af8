"""Templates in arguments: which values are some, and what they render in a run without a logical date."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import StrictUndefined

_BEGIN = re.compile(r"\{\{|\{%|\{#")
_EXPRESSION = re.compile(r"\s*\{\{.*\}\}\s*", re.DOTALL)

#: Variables that are missing in runs without a logical date: asset-triggered ones in Airflow 3, and some manual ones.
_OF_LOGICAL_DATE = (
    "ds",
    "ds_nodash",
    "ts",
    "ts_nodash",
    "ts_nodash_with_tz",
    "logical_date",
    "data_interval_start",
    "data_interval_end",
)


def is_template(value: Any) -> bool:
    """Whether a value is known only once it is rendered."""
    return isinstance(value, str) and _BEGIN.search(value) is not None


def is_expression(value: Any) -> bool:
    """Whether a value is a template of one or several expressions and nothing else."""
    return isinstance(value, str) and _EXPRESSION.fullmatch(value) is not None


def with_missing_dates(context: Any) -> Any:
    """The context in which rendering a missing date fails; Jinja would render it as an empty string."""
    missing = {
        name: StrictUndefined(
            f"This run has no logical date, e.g. because an asset triggered it, so {name} has no value. Use "
            "dag_run.run_after, e.g. {{ dag_run.run_after | ds }}, which every run has, or set a default: "
            f"{{{{ {name} | default(…) }}}}."
        )
        for name in _OF_LOGICAL_DATE
        if context.get(name) is None  # also a run whose dates Airflow knows, but not its data interval
    }
    return {**context, **missing} if missing and "dag_run" in context else context
