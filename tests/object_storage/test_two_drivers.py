"""Two drivers that commit to one table in S3 at the same moment: as merges go, and with Delta's own log store.

The server holds what the two write until both are there; then it takes one after the other, as S3 does.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.conftest import SPARK
from tests.object_storage.conftest import promise_one_writer
from tests.object_storage.orders import config, rows, table
from tests.object_storage.s3_server import S3Server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SECONDS_TO_COMMIT = 240


class Merging:
    """A merge in a thread, which inserts a row of its own."""

    def __init__(self, bucket: str, id: int, name: str, **spark: Any) -> None:
        self.result: MergeResult | None = None
        self._error: DeltaMergeException | None = None
        self._who = MergeIdentity(application_id=name, generation=1)
        self._config = config(bucket, f"SELECT {id} AS id, '{name}' AS name")
        self.hook = DeltaMergeHook(**spark)
        self._thread = threading.Thread(target=self._merge)
        self._thread.start()

    def _merge(self) -> None:
        try:
            self.result = self.hook.merge(self._config, identity=self._who)
        except DeltaMergeException as error:
            self._error = error

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def ended(self) -> MergeResult:
        self._thread.join(300)
        assert self.result is not None, self._error
        return self.result


def merge_at_once(server: S3Server, bucket: str, **spark: Any) -> list[MergeResult]:
    """What two merges tell that both have found version 2 missing when they write it, one after the other has ended."""
    DeltaMergeHook(conf=SPARK).merge(config(bucket, "SELECT 0 AS id, 'nobody' AS name"))
    with server.holding(f"/orders/_delta_log/{2:020}.json") as held:
        merging = [Merging(bucket, 1, "Ada", **spark), Merging(bucket, 2, "Grace", **spark)]
        try:
            wait_until(lambda: len(held()) == 2, SECONDS_TO_COMMIT)
            held()[0].unlink()
            wait_until(lambda: any(merge.has_ended for merge in merging), SECONDS_TO_COMMIT)
        except AssertionError:
            for merge in merging:
                merge.hook.on_kill()
            raise
    return [merge.ended() for merge in merging]


def test_both_are_there(server: S3Server, bucket: str) -> None:
    """By what goes with each merge, and nothing set."""
    results = merge_at_once(server, bucket, conf=SPARK)
    # Whoever came second was refused, and made the next version.
    assert sorted((result.version, result.num_inserted_rows) for result in results) == [(2, 1), (3, 1)]
    assert rows(bucket) == [(0, "nobody"), (1, "Ada"), (2, "Grace")]


def test_with_deltas_own_log_store_a_commit_is_lost(
    server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As documented of a connection that promises one writer. When this fails, Delta has learnt it."""
    promise_one_writer(monkeypatch)
    results = merge_at_once(server, bucket, conf=SPARK)
    assert [(result.version, result.num_inserted_rows) for result in results] == [(2, 1), (2, 1)], "both have results"
    assert table(bucket).version() == 2
    assert len(rows(bucket)) == 2, "and one is there, beside the first row"
