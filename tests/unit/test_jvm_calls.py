"""What makes calls to the JVM cheaper, as far as it needs no JVM."""

from __future__ import annotations

import threading

import pyspark.errors.utils as pyspark_errors
import pytest

from airflow_delta_merge.engine.delta_jvm.calls import without_call_sites


def test_call_sites_come_back_when_the_last_of_several_merges_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark_errors, "_enable_debugging_cache", True)
    entered, leave = threading.Event(), threading.Event()

    def other_merge() -> None:
        with without_call_sites():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other_merge)
    with without_call_sites():
        assert pyspark_errors._enable_debugging_cache is False
        thread.start()
        assert entered.wait(10)
    assert pyspark_errors._enable_debugging_cache is False, "the other merge goes on"
    leave.set()
    thread.join()
    assert pyspark_errors._enable_debugging_cache is True
