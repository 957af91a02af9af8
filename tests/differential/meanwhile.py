"""Statements of another session, run while a merge is under way: after it began, before it commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential.delta_log import DeltaTableLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60  # for a statement that takes a second


class Meanwhile(AbstractContextManager["Meanwhile"]):
    """Within it, a merge whose source is :meth:`pausing` stops at its source until another session ran its statements.

    :param spark: the merge's session.
    :param table: the folder of the table.
    :param statements: what the other session runs.
    """

    def __init__(self, spark: SparkSession, table: Path, statements: Sequence[str]) -> None:
        self._other = spark.newSession()
        self._table = table
        self._statements = statements
        self._signals = table.with_name(f"{table.name}-signals")
        self._signals.mkdir()
        self._merge_is_over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        spark.udf.register("pause", _pause_function(), "boolean")
        #: The table as the other session left it.
        self.log = DeltaTableLog.read(table)

    def pausing(self, source: str) -> str:
        """The source as a relation with the same rows, whose first row waits for the other session."""
        return f"(SELECT * FROM {source} WHERE pause('{self._signals}'))"

    def __enter__(self) -> Meanwhile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._merge_is_over.set()
        self._thread.join()
        if self._error is not None:
            raise AssertionError(f"the other session failed: {self._error}") from self._error

    def _run(self) -> None:
        while not (self._signals / "paused").exists():
            if self._merge_is_over.wait(0.02):
                return
        try:
            for statement in self._statements:
                self._other.sql(statement).collect()
            self.log = DeltaTableLog.read(self._table)
        except Exception as error:  # raised by the main thread
            self._error = error
        finally:
            (self._signals / "go on").touch()


def _pause_function() -> Callable[[str], bool]:
    """For Python's workers, which can't import this module: a function that brings along all it needs."""
    patience_s = PATIENCE_S

    def pause(signals: str) -> bool:
        try:
            (Path(signals) / "paused").open("x").close()
        except FileExistsError:  # one row's task waits, the others leave it a processor
            return True
        until = time.monotonic() + patience_s
        while not (Path(signals) / "go on").exists() and time.monotonic() < until:
            time.sleep(0.02)
        return True

    return pause
