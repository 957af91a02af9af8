"""How many tasks a merge's stages took."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def tasks_of_stages(spark: SparkSession) -> Iterator[list[int]]:
    """A list that has, afterwards, the number of tasks of each stage that ran inside."""
    tracker, group = spark.sparkContext.statusTracker(), uuid.uuid4().hex
    tasks: list[int] = []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", group)
    try:
        yield tasks
    finally:
        spark.sparkContext._jsc.setLocalProperty("spark.jobGroup.id", None)
    jobs = [job for each in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(each)) is not None]
    stages = {stage for job in jobs for stage in job.stageIds}
    tasks += [info.numTasks for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
