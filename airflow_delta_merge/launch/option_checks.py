"""Checks of the options for Spark, which the operator and the hook share."""

from __future__ import annotations

import re
from typing import Any

from airflow_delta_merge.config.checks import is_seconds, require_bool
from airflow_delta_merge.exceptions import MergeConfigError

# The options by their types.
_LISTS = ("jars", "packages", "exclude_packages")
_TEXTS = (
    *_LISTS,
    *("conn_id", "driver_memory", "executor_memory", "yarn_queue"),
    *("keytab", "principal", "proxy_user", "name", "spark_binary"),
)
# With dynamic allocation Spark may begin without an executor, so only their number may be 0.
_LEAST_NUMBERS = {"executor_cores": 1, "num_executors": 0, "total_executor_cores": 1}
_MEMORY = re.compile(r"0*[1-9]\d*([kmgtp]b?)?", re.IGNORECASE | re.ASCII)
ALL_BUT_CONF = (*_TEXTS, *_LEAST_NUMBERS, "keep_warm", "verbose")


def check_option(name: str, value: Any) -> None:
    """Check one of :data:`ALL_BUT_CONF`; only ``conn_id`` must have a value.

    :raises MergeConfigError: when it has a wrong type, or a value with which Spark never starts.
    """
    if value is None and name != "conn_id":
        return
    if name == "verbose":
        require_bool(value, name)
    elif name == "keep_warm":
        if not is_seconds(value):
            raise MergeConfigError(f"keep_warm must be a number of seconds ≥ 0, got {value!r}.")
    elif name in _LEAST_NUMBERS:
        least = _LEAST_NUMBERS[name]
        if isinstance(value, bool) or not str(value).isdecimal() or int(value) < least:
            raise MergeConfigError(f"{name} must be a whole number ≥ {least}, got {value!r:.80}.")
    elif not isinstance(value, str):
        how = ' with commas, like "a,b"' if name in _LISTS else ""
        raise MergeConfigError(f"{name} must be a string{how}, got {value!r:.80}.")
    elif name.endswith("_memory") and not _MEMORY.fullmatch(value):
        raise MergeConfigError(f"{name} must be a size such as 2g or 512m, got {value!r:.80}.")
