"""Commits to a table in S3 that does not answer, answers late or can't tell writers apart: none lost, none twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.conftest import SPARK
from tests.object_storage.conftest import promise_one_writer, seen_stores
from tests.object_storage.orders import config, rows, table
from tests.object_storage.s3_server import S3Server

pytestmark = pytest.mark.slow
COMMIT = f"/orders/_delta_log/{2:020}.json"


@pytest.fixture
def orders(bucket: str) -> str:
    """A bucket with a table of one row, at version 1."""
    DeltaMergeHook(conf=SPARK).merge(config(bucket, "SELECT 0 AS id, 'nobody' AS name"))
    return bucket


@pytest.mark.parametrize(
    ("kind", "times"), [("500", 2), ("503", 3), ("lost", 1), ("lost", 4)], ids=["500", "slow down", "lost", "all lost"]
)
def test_a_commit_without_an_answer_is_made_once(server: S3Server, orders: str, kind: str, times: int) -> None:
    with server.failing(kind, COMMIT, times) as failed:
        result = DeltaMergeHook(conf=SPARK).merge(config(orders, "SELECT 1 AS id, 'Ada' AS name"))
        assert failed() == times
    assert (result.version, result.num_inserted_rows, result.already_committed) == (2, 1, False)
    assert table(orders).version() == 2
    assert rows(orders) == [(0, "nobody"), (1, "Ada")]


def test_lists_may_be_slow(server: S3Server, orders: str) -> None:
    with server.failing("slow") as failed:
        result = DeltaMergeHook(conf=SPARK).merge(config(orders, "SELECT 1 AS id, 'Ada' AS name"))
        assert failed() > 1
    assert (result.version, rows(orders)) == (2, [(0, "nobody"), (1, "Ada")])


def test_a_store_is_asked_once_a_day_whether_it_refuses(server: S3Server, bucket: str, tmp_path: Path) -> None:
    def merge(number: int) -> int:
        """Merge with a driver of its own. Returns how many objects have been written to ask the store so far."""
        DeltaMergeHook(conf=SPARK).merge(config(bucket, f"SELECT {number} AS id, 'Ada' AS name"))
        requests = server.log.read_text().splitlines()
        return sum("PUT" in line and f"/{bucket}/" in line and "conditional_write_" in line for line in requests)

    assert merge(1) == 2, "the second one is refused"
    (seen,) = seen_stores(tmp_path).iterdir()
    assert merge(2) == 2
    yesterday = seen.stat().st_mtime - 24 * 3600
    os.utime(seen, (yesterday, yesterday))
    assert merge(3) == 4
    assert merge(4) == 4


def test_a_store_that_cannot_refuse_is_refused(
    server: S3Server, orders: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    merge = config(orders, "SELECT 1 AS id, 'Ada' AS name")
    before = server.objects(orders).keys()
    shutil.rmtree(seen_stores(tmp_path))  # the table's first merge saw this store refuse
    with server.failing("deaf"):
        with pytest.raises(DeltaMergeException, match=r"ignores the header If-None-Match\..*s3_single_writer"):
            DeltaMergeHook(conf=SPARK).merge(merge)
        assert server.objects(orders).keys() == before, "nothing is left of having tried it"
        promise_one_writer(monkeypatch)
        assert DeltaMergeHook(conf=SPARK).merge(merge).version == 2
