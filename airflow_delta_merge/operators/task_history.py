"""What earlier runs of a task show about the next one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)


def seconds_of_last_run(ti: Any) -> float | None:
    """The duration of the task's merges in the previous run, without Spark's start; the sum of several merges.

    :param ti: the running task instance, if there is one.
    :return: None if unknown: the task never ran, or Airflow doesn't return its result.
    """
    try:
        # Without map_indexes Airflow 3 returns the results of all earlier runs and of all mapped instances.
        result = ti.xcom_pull(task_ids=ti.task_id, include_prior_dates=True, map_indexes=ti.map_index)
        results = [result] if isinstance(result, Mapping) else [each for each in result or () if each is not None]
        return sum(each["durations_ms"]["total"] for each in results) / 1000 if results else None
    except Exception as error:  # only a hint: it must not fail the merge
        log.debug("The result of the last run is not available: %s", error)
        return None
