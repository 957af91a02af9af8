"""Merges in a Spark that is kept for them, wherever its executors run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.kept_spark import KeptSpark
from airflow_delta_merge.launch.spark_application import SparkApplication
from tests.airflow import tables
from tests.cluster import deferred
from tests.cluster.processes import config, rows
from tests.waiting import wait_until


def check_that_merges_share_an_application(
    hook: Callable[[], DeltaMergeHook], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merge twice, the second time deferred, and wait until the kept Spark has ended.

    :param hook: makes a hook that keeps Spark for some seconds.
    """
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="w-", dir="/tmp") as temporary, monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", temporary)
        applications: list[SparkApplication] = []
        inserted = hook().merge(config(table, rows(0, 1000, "old")), on_application=applications.append)
        end = deferred.followed(begun := hook().start(JobRequest(merges=config(table, rows(0, 500, "new")))))
        begun.kill()
        assert end.outcome is not None
        assert end.application is not None
        (updated,) = [merge.result for merge in end.outcome.merges]
        assert updated is not None
        assert (inserted.num_inserted_rows, updated.num_updated_rows, updated.version) == (1000, 500, 2)
        assert [end.application.id] == [each.id for each in applications]
        assert tables.count_rows(table) == 1000
        wait_until(lambda: KeptSpark.all() == [], 60)
        wait_until(lambda: not list(Path(temporary).glob("airflow_delta_merge_*")), 30)
