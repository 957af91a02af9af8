"""Merge metrics under Delta's names, from aggregates over the data instead of accumulators.

Accumulators count a task's rows again when the task is retried or speculated. The counts here come from query
results and from the statistics of the committed files, so they are exact. One exception uses an accumulator, as Delta
does: the rows of a source that is written while it is read
(:mod:`~airflow_delta_merge.engine.strategies.stream_inserts`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_delta_merge.engine.delta_jvm.versions import NOT_EVERYWHERE


class MergeMetrics:
    """The SQL metrics of one merge, by Delta's names, and the duration of each phase (milliseconds)."""

    def __init__(self) -> None:
        self._sql_metrics: Mapping[str, Any] = {}
        self.values: dict[str, int] = {}
        self.durations_ms: dict[str, int] = {}
        self._start = time.monotonic_ns()

    def bind(self, sql_metrics: Mapping[str, Any]) -> None:
        """Use the JVM metrics of the resolved command, by name; values set from now on go into the history."""
        self._sql_metrics = sql_metrics
        for name, value in self.values.items():  # set by an earlier attempt
            if value:
                sql_metrics[name].set(0)
        self.values = dict.fromkeys(sql_metrics, 0)

    def elapsed_ms(self) -> int:
        """Milliseconds since the merge began."""
        return (time.monotonic_ns() - self._start) // 1_000_000

    def set(self, **values: int) -> None:
        for name, value in values.items():
            if name in self._sql_metrics or name not in NOT_EVERYWHERE:
                self._sql_metrics[name].set(value)
                self.values[name] = value

    def read_back(self) -> None:
        """Read the values that Delta's own steps have set."""
        self.values = {name: int(metric.value()) for name, metric in self._sql_metrics.items()}

    @contextmanager
    def phase(self, name: str, sql_metric: str | None = None) -> Iterator[None]:
        """Add the time spent inside to a phase, in milliseconds; its SQL metric is at least 1, as Delta's is."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            elapsed = (time.monotonic_ns() - start) // 1_000_000
            self.durations_ms[name] = self.durations_ms.get(name, 0) + elapsed
            if sql_metric is not None:
                self.set(**{sql_metric: max(1, self.durations_ms[name])})
