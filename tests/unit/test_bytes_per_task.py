"""Which task size makes Spark read some files in few tasks."""

from __future__ import annotations

import pytest

from airflow_delta_merge.engine.delta_jvm.target_scan import bytes_per_task

MB = 1024 * 1024
OPEN_COST = 4 * MB


def as_spark_packs(sizes: list[int], max_split: int) -> list[int]:
    """How many of the files each task gets, by the rule of Spark's ``FilePartition`` for files that aren't split."""
    tasks, size = [0], 0
    for length in sorted(sizes, reverse=True):
        if tasks[-1] and size + length > max_split:
            tasks.append(0)
            size = 0
        tasks[-1] += 1
        size += length + OPEN_COST
    return tasks


def packed(sizes: list[int], most_tasks: int) -> list[int]:
    return as_spark_packs(sizes, bytes_per_task(sum(sizes), len(sizes), most_tasks=most_tasks, open_cost=OPEN_COST))


@pytest.mark.parametrize("size", [500, 40_000, MB])
@pytest.mark.parametrize("count", [17, 273, 339, 342, 10_000])
def test_no_more_tasks_than_wanted(size: int, count: int) -> None:
    assert 8 < len(packed([size] * count, most_tasks=16)) <= 16


def test_files_that_differ_somewhat() -> None:
    assert packed([5 * MB + number * 20_000 for number in range(-20, 20)], most_tasks=4) == [10, 10, 10, 10]
