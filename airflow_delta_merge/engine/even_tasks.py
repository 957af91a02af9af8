"""Work for all cores until the end: tasks of such a size that none of them is waited for alone.

Three equal tasks on two cores take as long as four: in the second round one core waits. Spark puts files into tasks of
up to 128 MB, of whatever number, and a merge that reads and writes a few hundred megabytes can take a third longer for
it.
"""

from __future__ import annotations

import math

#: In more rounds the last one weighs little.
_MOST_ROUNDS = 8
#: What is to be gained must be more than tasks cost and sizes differ.
_WORTHWHILE = 0.95


def in_whole_rounds(tasks: int, cores: int) -> int:
    """So many tasks, or as many more as keep all cores busy to the end.

    :param tasks: as many as the work asks for.
    :param cores: as many as run at a time.
    """
    if cores < tasks < cores * _MOST_ROUNDS:
        return math.ceil(tasks / cores) * cores
    return tasks


def split_bytes(
    num_bytes: int, num_files: int, *, cores: int, most_tasks: int | None, most_bytes: int, open_cost: int
) -> int | None:
    """The size of tasks by which Spark should read some files, if that is not its own.

    Spark (``FilePartition``) adds files to a task, each with the cost of opening it, until the next one's bytes would
    be too many for the size. Files are taken for equally large here, and those that fill a task alone left to it.

    :param num_bytes: size of the files.
    :param num_files: how many they are.
    :param cores: as many tasks as run at a time.
    :param most_tasks: how many tasks, at most, it should take; None for as many as Spark makes.
    :param most_bytes: Spark's ``spark.sql.files.maxPartitionBytes``.
    :param open_cost: Spark's ``spark.sql.files.openCostInBytes``.
    :return: what ``spark.sql.files.maxPartitionBytes`` should be; None when it may stay.
    """
    if not num_files:
        return None
    length = num_bytes / num_files
    cost = max(1.0, length + open_cost)
    by_spark = min(most_bytes, max(open_cost, num_files * cost / cores))
    files_by_spark = max(1, math.floor((by_spark - length) / cost) + 1)
    fewest = 1 if most_tasks is None else math.ceil(num_files / most_tasks)
    files = max(files_by_spark, fewest)
    # The largest of those that are done first, and none that leaves tasks of less than half the size.
    sizes = range(files, max(files // 2, fewest - 1), -1)
    best = min(sizes, key=lambda each: _until_done(num_files, each, cores))
    if _until_done(num_files, best, cores) <= _until_done(num_files, files, cores) * _WORTHWHILE:
        files = best
    if files == files_by_spark:
        return None
    return round((files - 0.5) * cost + length)  # half a file more or less makes no difference


def _until_done(num_files: int, files_per_task: int, cores: int) -> int:
    """How many files a core reads, one after the other, until all are read."""
    full, rest = divmod(num_files, files_per_task)
    rounds, more = divmod(full, cores)
    return (rounds + 1) * files_per_task if more else rounds * files_per_task + rest
