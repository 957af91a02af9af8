"""Where a cold task spends its time, by the lines that its log gets."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_LOGGER = "airflow.task.hooks.airflow_delta_merge"
#: The beginnings of the lines that end a part, and the part's name.
_ENDS = {
    "Spark-Submit cmd": "prepare: connection, files, jars",
    "Merge: Spark application": "start Spark and the session",
    "Merge: Ready to commit": "merge until the commit",
}
_LAST = "commit, end Spark, read the result"
_IN_ENGINE = "of all this in the engine's phases"


@dataclass
class PartsOfTask:
    """Seconds of each part, a list with one entry for each round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure one task, which runs inside this context."""
        logger, recorder = logging.getLogger(_LOGGER), _Recorder()
        before = logger.level, logger.propagate
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(recorder)
        start = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            logger.removeHandler(recorder)
            logger.setLevel(before[0])
            logger.propagate = before[1]
        for part in _ENDS.values():
            self._add(part, recorder.times[part] - start)
            start = recorder.times[part]
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


class _Recorder(logging.Handler):
    """Notes when each part ends."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for beginning, part in _ENDS.items():
            if text.startswith(beginning):
                self.times.setdefault(part, time.perf_counter())
