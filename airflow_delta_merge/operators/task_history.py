"""What earlier runs of a task tell of the next one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)


def seconds_of_last_run(ti: Any) -> float | None:
    """How long the task's merge took in the run before this one, without Spark's start; of several, all together.

    :param ti: the running task instance, if there is one.
    :return: None when it isn't known, be it that the task never ran or that Airflow doesn't tell.
    """
    try:
        result = ti.xcom_pull(task_ids=ti.task_id, include_prior_dates=True)
        results = [result] if isinstance(result, Mapping) else [each for each in result or () if each is not None]
        return sum(each["durations_ms"]["total"] for each in results) / 1000 if results else None
    except Exception as error:  # a hint that no merge may fail for
        log.debug("Airflow doesn't tell of the last run: %s", error)
        return None
