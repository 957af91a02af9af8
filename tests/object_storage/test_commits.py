"""Commits to a table in S3 that does not answer, answers late or can't tell writers apart: none lost, none twice."""

from __future__ import annotations

import pytest

from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.errors import DeltaMergeException
from tests.airflow.conftest import SPARK
from tests.object_storage.conftest import promise_one_writer
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


def test_a_store_that_cannot_refuse_is_refused(server: S3Server, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = config(orders, "SELECT 1 AS id, 'Ada' AS name")
    before = server.objects(orders).keys()
    with server.failing("deaf"):
        with pytest.raises(DeltaMergeException, match=r"ignores the header If-None-Match\..*s3_single_writer"):
            DeltaMergeHook(conf=SPARK).merge(merge)
        assert server.objects(orders).keys() == before, "nothing is left of having tried it"
        promise_one_writer(monkeypatch)
        assert DeltaMergeHook(conf=SPARK).merge(merge).version == 2
