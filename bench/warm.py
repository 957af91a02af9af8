"""Warm: tasks whose Spark is kept, after tasks that start one each; and what many merges leave in a kept Spark."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench import session
from bench.case import Case
from bench.cold import context_of_task, operator_for, set_up_airflow, template_and_source
from bench.data import copy_table

_COLD_ROUNDS = 3
_NUM_TABLES = 20
_KEEP_WARM = 120.0
_SECONDS_TO_REST = 16.0  # an idle Spark collects its garbage after 5, and Java returns memory every 5


@dataclass
class WarmResult:
    """Seconds of tasks, and what the kept Spark held after some number of merges."""

    cold: list[float] = field(default_factory=list)
    one_by_one: list[float] = field(default_factory=list)
    at_once: int = 0
    num_merges: int = 0
    seconds_of_all: float = 0.0
    held: dict[int, dict[str, int]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The result for people."""
        rounds = {"cold": self.cold, "kept, the first starts it": self.one_by_one[:1], "kept": self.one_by_one[1:]}
        listed = {name: ", ".join(f"{each:.2f}" for each in seconds) for name, seconds in rounds.items()}
        return [
            *(
                f"{name:28} {statistics.median(seconds):7.2f} s   rounds: {listed[name]}"
                for name, seconds in rounds.items()
            ),
            f"{self.num_merges} merges into {_NUM_TABLES} tables, {self.at_once} at once: {self.seconds_of_all:.1f} s",
            *(f"after {number} merges: {held}" for number, held in self.held.items()),
        ]


def run_warm(case: Case, *, home: Path, work: Path, scale: float, rounds: int, num_merges: int) -> WarmResult:
    """Run a case as tasks that start Spark, then as tasks whose Spark is kept, then many of those at once.

    :param home: the benchmark's folder, with the templates.
    :param work: a folder for this run.
    :param rounds: tasks of a kept Spark that count, after the one that starts it.
    :param num_merges: how many merges follow them.
    """
    template, source = template_and_source(case, home=home, work=work, scale=scale)
    set_up_airflow(work)
    tempfile.tempdir = tempfile.mkdtemp(prefix="warm-")
    os.environ["TMPDIR"] = tempfile.tempdir

    def target() -> Path:
        path = work / uuid.uuid4().hex / "target"
        copy_table(template, path)
        return path

    def task(path: Path, keep_warm: float) -> float:
        operator = operator_for(case, [path], source, keep_warm=keep_warm)  # the first time it imports Airflow
        start = time.perf_counter()
        operator.execute(context_of_task([]))
        return time.perf_counter() - start

    result = WarmResult(at_once=session.CORES, num_merges=num_merges)
    try:
        result.cold = [task(target(), 0) for _ in range(_COLD_ROUNDS)]
        result.one_by_one = [task(target(), _KEEP_WARM) for _ in range(rounds + 1)]
        result.held[rounds + 1] = _held()
        result.seconds_of_all = _run_all(result, [target() for _ in range(_NUM_TABLES)], task)
    finally:
        _end_kept()
    return result


def _run_all(result: WarmResult, targets: list[Path], task: Callable[[Path, float], float]) -> float:
    """Merge into each table in turn, some at once, in four parts between which the Spark rests and is looked at."""
    seconds = 0.0
    for part in range(4):
        first, last = (result.num_merges * each // 4 for each in (part, part + 1))
        start = time.perf_counter()
        with ThreadPoolExecutor(result.at_once) as pool:
            list(pool.map(lambda number: task(targets[number % _NUM_TABLES], _KEEP_WARM), range(first, last)))
        seconds += time.perf_counter() - start
        result.held[len(result.one_by_one) + last] = _held()
    return seconds


def _held() -> dict[str, int]:
    """What the kept Spark holds once it has rested."""
    time.sleep(_SECONDS_TO_REST)
    processes = [psutil.Process(pid) for pid in _pids()]
    (folder,) = Path(tempfile.gettempdir()).glob("airflow_delta_merge_*")
    return {
        "MB": sum(process.memory_info().rss for process in processes) >> 20,
        "threads": sum(process.num_threads() for process in processes),
        "open files": sum(process.num_fds() for process in processes),
        "files": sum(1 for _ in folder.rglob("*")),
    }


def _pids() -> list[int]:
    from airflow_delta_merge.contract.frames import SERVER_LOCK

    (lock,) = Path(tempfile.gettempdir()).glob(f"airflow_delta_merge_*/{SERVER_LOCK}")
    python = psutil.Process(int(lock.read_text()))
    return [python.pid, python.ppid()]


def _end_kept() -> None:
    from airflow_delta_merge.launch.kept_spark import KeptSpark

    for kept in KeptSpark.all():
        kept.end_if_idle()
