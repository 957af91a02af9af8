"""Counts the differential cases of a run, and says at its end how many ran, by which ways of the engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

#: What ``.ci/run`` prints at its end.
SUMMARY = Path(__file__).parents[1] / ".cache" / "cases_run.txt"


class CasesRun:
    """A plugin of the controller and of each worker, whose numbers the controller adds up.

    :ivar ways: how many merges of ours ran by each way.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._there = 0
        self._run = 0
        self.ways: Counter[str] = Counter()

    def note_all(self, items: list[pytest.Item]) -> None:
        """Note which cases there are, before any is left out."""
        self._there = sum(_is_case(item.nodeid) for item in items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and _is_case(report.nodeid) and not report.skipped:
            self._run += 1

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput |= {"ways": dict(self.ways), "there": self._there}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a worker that crashed has none
        self.ways.update(output.get("ways", {}))
        self._there = max(self._there, output.get("there", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._run:
            return
        ways = ", ".join(f"{way} {count}" for way, count in sorted(self.ways.items()))
        line = f"{self._run} of {self._there} differential cases, merges by way: {ways or 'none'}"
        terminalreporter.write_line(line)
        SUMMARY.parent.mkdir(exist_ok=True)
        SUMMARY.write_text(f"{line}\n", "utf-8")


def _is_case(nodeid: str) -> bool:
    return nodeid.startswith("tests/differential/") and "[" in nodeid
