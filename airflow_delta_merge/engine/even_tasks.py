"""Sizes tasks so that all cores are busy until the end.

Three equal tasks on two cores take as long as four: in the second round one core is idle. Spark fills tasks with files
up to 128 MB regardless of the number of tasks, which can make a merge of a few hundred megabytes a third slower.
"""

from __future__ import annotations

import math

#: With more rounds, an uneven last round matters little.
_MOST_ROUNDS = 8
#: The gain must exceed the cost of tasks and the variation of sizes.
_WORTHWHILE = 0.95


def in_whole_rounds(tasks: int, cores: int) -> int:
    """The number of tasks, rounded up so that all cores are busy to the end.

    :param tasks: number of tasks that the work needs.
    :param cores: number of tasks that run at a time.
    """
    if cores < tasks < cores * _MOST_ROUNDS:
        return math.ceil(tasks / cores) * cores
    return tasks


def split_bytes(
    num_bytes: int, num_files: int, *, cores: int, most_tasks: int | None, most_bytes: int, open_cost: int
) -> int | None:
    """The task size that Spark should use to read these files, if it differs from Spark's own.

    Spark (``FilePartition``) adds files to a task, each with the cost of opening it, until the next file would exceed
    the size. This function assumes files of equal size, and ignores files that fill a task alone.

    :param num_bytes: size of the files.
    :param num_files: number of files.
    :param cores: number of tasks that run at a time.
    :param most_tasks: maximum number of tasks; None for Spark's own number.
    :param most_bytes: Spark's ``spark.sql.files.maxPartitionBytes``.
    :param open_cost: Spark's ``spark.sql.files.openCostInBytes``.
    :return: the value for ``spark.sql.files.maxPartitionBytes``; None to leave it unchanged.
    """
    if not num_files:
        return None
    length = num_bytes / num_files
    cost = max(1.0, length + open_cost)
    by_spark = min(most_bytes, max(open_cost, num_files * cost / cores))
    files_by_spark = max(1, math.floor((by_spark - length) / cost) + 1)
    fewest = 1 if most_tasks is None else math.ceil(num_files / most_tasks)
    files = max(files_by_spark, fewest)
    # The largest size among those that finish first, but none below half of Spark's own.
    sizes = range(files, max(files // 2, fewest - 1), -1)
    best = min(sizes, key=lambda each: _until_done(num_files, each, cores))
    if _until_done(num_files, best, cores) <= _until_done(num_files, files, cores) * _WORTHWHILE:
        files = best
    if files == files_by_spark:
        return None
    return round((files - 0.5) * cost + length)  # half a file of slack on both sides


def _until_done(num_files: int, files_per_task: int, cores: int) -> int:
    """Number of files that a core reads, one after the other, until all are read."""
    full, rest = divmod(num_files, files_per_task)
    rounds, more = divmod(full, cores)
    return (rounds + 1) * files_per_task if more else rounds * files_per_task + rest
