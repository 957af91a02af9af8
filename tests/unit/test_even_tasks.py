"""How many tasks read and write some files, and which settings make Spark use that many."""

from __future__ import annotations

import pytest

from airflow_delta_merge.engine.even_tasks import in_whole_rounds, split_bytes

MB = 1024 * 1024
BY_SPARK = {"most_bytes": 128 * MB, "open_cost": 4 * MB}


@pytest.mark.parametrize(
    ("tasks", "cores", "expected"),
    [(1, 2, 1), (2, 2, 2), (3, 2, 4), (4, 2, 4), (5, 4, 8), (3, 4, 3), (17, 2, 17), (0, 2, 0)],
)
def test_whole_rounds(tasks: int, cores: int, expected: int) -> None:
    assert in_whole_rounds(tasks, cores) == expected


def as_spark_packs(sizes: list[int], max_split: int) -> list[int]:
    """How many of the files each task gets, by the rule of Spark's ``FilePartition`` for files that aren't split."""
    tasks, size = [0], 0
    for length in sorted(sizes, reverse=True):
        if tasks[-1] and size + length > max_split:
            tasks.append(0)
            size = 0
        tasks[-1] += 1
        size += length + BY_SPARK["open_cost"]
    return tasks


def packed(sizes: list[int], cores: int, most_tasks: int | None = None) -> list[int]:
    """The same with what :func:`split_bytes` says, or with Spark's own size."""
    chosen = split_bytes(sum(sizes), len(sizes), cores=cores, most_tasks=most_tasks, **BY_SPARK)
    per_core = sum(size + BY_SPARK["open_cost"] for size in sizes) // cores
    return as_spark_packs(sizes, min(chosen or BY_SPARK["most_bytes"], max(BY_SPARK["open_cost"], per_core)))


def test_forty_files_in_three_tasks_become_four() -> None:
    sizes = [5 * MB] * 40
    assert as_spark_packs(sizes, 128 * MB) == [14, 14, 12], "Spark by itself"
    assert packed(sizes, 2) == [10, 10, 10, 10]


def test_files_that_differ_somewhat() -> None:
    assert packed([5 * MB + number * 20_000 for number in range(-20, 20)], 2) == [10, 10, 10, 10]


@pytest.mark.parametrize(
    ("size", "count", "cores"),
    [
        (1000, 3, 2),  # as many as a task or two take
        (5 * MB, 40, 8),  # each core has one task
        (9 * MB, 4000, 2),  # so many rounds that the last one does not matter
        (100 * MB, 3, 2),  # one file fills a task
        (300 * MB, 5, 2),  # Spark cuts them
        (0, 1, 2),
    ],
)
def test_spark_does_well_by_itself(size: int, count: int, cores: int) -> None:
    assert split_bytes(size * count, count, cores=cores, most_tasks=None, **BY_SPARK) is None


def test_no_files() -> None:
    assert split_bytes(0, 0, cores=2, most_tasks=16, **BY_SPARK) is None


@pytest.mark.parametrize("size", [500, 40_000, MB])
def test_no_more_tasks_than_wanted(size: int) -> None:
    sizes = [size] * 10_000
    assert len(as_spark_packs(sizes, 128 * MB)) > 16, "Spark by itself"
    assert len(packed(sizes, 2, most_tasks=16)) == 16


@pytest.mark.parametrize("count", [273, 339, 342, 1000])
def test_no_more_tasks_than_wanted_to_end_together(count: int) -> None:
    assert len(packed([1000] * count, 2, most_tasks=16)) <= 16


def test_few_tasks_are_left_as_they_are() -> None:
    assert split_bytes(1000 * 20, 20, cores=2, most_tasks=16, **BY_SPARK) is None
