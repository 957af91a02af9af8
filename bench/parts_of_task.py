"""Where a cold task spends its time, by the lines that the job prints."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

#: The beginnings of the job's lines that end a part, and the part's name.
_ENDS = {
    "Merge: Spark application": "start Spark and the session",
    "Merge: Ready to commit": "merge until the commit",
}
_FIRST = "prepare: connection, files, jars"
_LAST = "commit, end Spark, read the result"
_IN_ENGINE = "of all this in the engine's phases"


@dataclass
class PartsOfTask:
    """Seconds of each part, a list with one entry for each round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure one task, which runs inside this context."""
        from airflow_delta_merge.launch.spark_submit import SparkSubmit

        submit, process_lines = SparkSubmit.submit, SparkSubmit._process_lines
        times: dict[str, float] = {}

        def noting_submit(*arguments: Any, **options: Any) -> None:
            times[_FIRST] = time.perf_counter()
            submit(*arguments, **options)

        def noting_lines(hook: SparkSubmit, lines: Iterator[str]) -> Iterator[str]:
            for line in process_lines(hook, lines):
                ended = next((part for beginning, part in _ENDS.items() if line.startswith(beginning)), None)
                if ended is not None:
                    times.setdefault(ended, time.perf_counter())
                yield line

        start = time.perf_counter()
        with (
            mock.patch.object(SparkSubmit, "submit", noting_submit),
            mock.patch.object(SparkSubmit, "_process_lines", noting_lines),
        ):
            yield
        end = time.perf_counter()
        for part in (_FIRST, *_ENDS.values()):
            self._add(part, times[part] - start)
            start = times[part]
        self._add(_LAST, end - start)

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Add what the engine itself has measured.

        :param result: what the task returned.
        """
        self._add(_IN_ENGINE, result["durations_ms"]["total"] / 1000)

    def lines(self) -> list[str]:
        """The parts for people, without the first round, which warms up the machine's file cache."""
        rounds = {part: seconds[1:] for part, seconds in self.seconds.items()}
        return [
            f"  {part:42} {statistics.median(seconds):7.2f} s   rounds: {', '.join(f'{each:.2f}' for each in seconds)}"
            for part, seconds in rounds.items()
        ]

    def _add(self, part: str, seconds: float) -> None:
        self.seconds.setdefault(part, []).append(seconds)
