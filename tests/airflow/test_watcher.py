"""The trigger that watches a table, by itself; how DAGs run by it, also after a restart, is in test_scheduler.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import Asset, AssetWatcher
from deltalake import DeltaTable, write_deltalake

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.history.awaited import StoredTable, commits_after
from airflow_delta_merge.triggers.delta_commit import DeltaCommitTrigger
from tests.readable_ids import readable

PATIENCE_SECONDS = 60


class Store:
    """What an asset's state store keeps, without Airflow's API behind it.

    :param broken: how many calls fail first.
    """

    def __init__(self, broken: int = 0) -> None:
        self.kept: dict[str, Any] = {}
        self.broken = broken

    def _check(self) -> None:
        self.broken -= 1
        if self.broken >= 0:
            raise ConnectionError("no API")

    async def aget(self, key: str, default: Any = None) -> Any:
        self._check()
        return self.kept.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self._check()
        self.kept[key] = value


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a b;ü")


def commit(path: str) -> None:
    write_deltalake(path, pa.table({"id": [1]}), mode="append")


class Watch:
    """A trigger that runs, as a triggerer would run it, until the block's end.

    :param store: what is kept; None in an Airflow without such a store.
    """

    def __init__(self, path: str, store: Store | None, **arguments: Any) -> None:
        made = DeltaCommitTrigger(path=path, poke_interval=0.05, **arguments)
        _, plain = json.loads(json.dumps(made.serialize()))
        self.trigger = DeltaCommitTrigger(**plain)
        self.trigger.asset_state_store = store  # type: ignore[assignment]
        self.looks = 0

    async def __aenter__(self) -> Watch:
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        look = self.trigger._commits_after

        async def counted(known: int | None) -> Any:
            found = await look(known)
            self.looks += 1
            return found

        self.trigger._commits_after = counted  # type: ignore[method-assign]
        self.task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        async for event in self.trigger.run():
            self.events.put_nowait(event.payload)

    async def __aexit__(self, *args: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def looked(self, times: int = 2) -> None:
        """Wait until it has looked so many times more, and is through with the last but one."""
        until = self.looks + times
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.looks < until:
                await asyncio.sleep(0.01)

    async def event(self) -> tuple[int, int, list[str]]:
        payload = await asyncio.wait_for(self.events.get(), PATIENCE_SECONDS)
        return payload["previous_version"], payload["version"], payload["operations"]


def test_new_commits_make_events_and_what_is_there_does_not(path: str) -> None:
    async def check() -> None:
        commit(path)
        async with Watch(path, Store()) as watch:
            await watch.looked()
            commit(path)
            assert await watch.event() == (0, 1, ["WRITE"])
            await watch.looked(3)
            assert watch.events.empty()

    asyncio.run(check())


def test_a_table_that_is_made_makes_an_event(path: str) -> None:
    async def check() -> None:
        async with Watch(path, Store()) as watch:
            await watch.looked()
            commit(path)
            assert await watch.event() == (-1, 0, ["WRITE"])

    asyncio.run(check())


def test_maintenance_makes_no_event_unless_asked_for(path: str) -> None:
    async def check() -> None:
        commit(path)
        commit(path)
        async with Watch(path, Store()) as watch, Watch(path, Store(), ignore_operations=[]) as watch_all:
            await asyncio.gather(watch.looked(), watch_all.looked())
            DeltaTable(path).optimize.compact()
            assert await watch_all.event() == (1, 2, ["OPTIMIZE"])
            await watch.looked(3)
            assert watch.events.empty()
            commit(path)
            assert await watch.event() == (2, 3, ["WRITE"])

    asyncio.run(check())


def test_after_a_restart_it_goes_on_where_it_was(path: str) -> None:
    async def check() -> None:
        commit(path)
        store = Store()
        async with Watch(path, store) as watch:
            await watch.looked()
        commit(path)
        commit(path)
        async with Watch(path, store) as watch:
            assert await watch.event() == (0, 2, ["WRITE"])
            await watch.looked(3)
        async with Watch(path, store) as watch:
            await watch.looked(3)
            assert watch.events.empty(), "reported twice"

    asyncio.run(check())


def test_a_trigger_that_dies_with_its_event_tells_it_again(path: str) -> None:
    async def check() -> None:
        commit(path)
        store = Store()
        async with Watch(path, store) as watch:
            await watch.looked()
        commit(path)
        before = dict(store.kept)
        for _ in range(2):
            async with asyncio.timeout(PATIENCE_SECONDS):
                restarted = Watch(path, store).trigger
                event = await anext(restarted.run())
            assert event.payload["version"] == 1
            assert store.kept == before, "kept before the event can be stored"

    asyncio.run(check())


def test_without_a_store_it_takes_the_table_as_it_is_after_a_restart(path: str) -> None:
    async def check() -> None:
        commit(path)
        async with Watch(path, None) as watch:
            await watch.looked()
            commit(path)
            assert await watch.event() == (0, 1, ["WRITE"])
        commit(path)
        async with Watch(path, None) as watch:
            await watch.looked(3)
            assert watch.events.empty()

    asyncio.run(check())


def test_a_store_that_does_not_answer_is_asked_again(path: str) -> None:
    async def check() -> None:
        commit(path)
        store = Store()
        async with Watch(path, store) as watch:
            await watch.looked()
        commit(path)
        store.broken = 2
        async with Watch(path, store) as watch:
            assert await watch.event() == (0, 1, ["WRITE"])
            store.broken = 1
            await watch.looked(4)
        assert list(store.kept.values()) == [1]

    asyncio.run(check())


def test_assets_that_share_a_trigger_have_no_memory_to_share(path: str) -> None:
    class Ambiguous(Store):
        async def aget(self, key: str, default: Any = None) -> Any:
            raise ValueError("Task has 2 concrete inlets and outlets")  # as Airflow's says so

    async def check() -> None:
        commit(path)
        async with Watch(path, Ambiguous()) as watch:
            await watch.looked()
            commit(path)
            assert await watch.event() == (0, 1, ["WRITE"])

    asyncio.run(check())


def test_a_log_that_cannot_be_read_is_looked_at_again(path: str) -> None:
    async def check() -> None:
        commit(path)
        async with Watch(path, Store()) as watch:
            await watch.looked()
            commit(path)
            log = Path(path) / "_delta_log" / f"{1:020}.json"
            assert await watch.event() == (0, 1, ["WRITE"])
            text = log.read_text()
            log.write_text("{")
            await watch.looked(2)
            log.write_text(text)
            commit(path)
            assert await watch.event() == (1, 2, ["WRITE"])

    asyncio.run(check())


def test_a_recreated_table_is_reported_from_its_first_version(path: str) -> None:
    commit(path)
    assert commits_after(StoredTable(path=path), 7) == (0, ["WRITE"])
    assert commits_after(StoredTable(path=path), None) == (0, [])
    assert commits_after(StoredTable(path=path), 0) == (0, [])


def test_commits_that_the_log_no_longer_has_are_unknown(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        commit(path)
    monkeypatch.setattr("airflow_delta_merge.history.awaited.MOST_COMMITS", 1)
    assert commits_after(StoredTable(path=path), 0) == (2, ["WRITE", "unknown"])


def test_no_secret_gets_into_a_dag() -> None:
    with pytest.raises(ValueError, match="contain AWS_SECRET_ACCESS_KEY, which Airflow would store in plain text"):
        DeltaCommitTrigger(path="/t", storage_options={"AWS_REGION": "eu", "AWS_SECRET_ACCESS_KEY": "x"})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"path": None}, "path of a watcher must be a table's folder or URI, without templates, got None"),
        ({"path": "{{ var.value.lake }}/t"}, "without templates"),
        ({"storage_options": ["x"]}, "must be a dict"),
        ({"aws_conn_id": "{{ var.value.lake }}"}, "aws_conn_id of a watcher must name a connection, without templates"),
        ({"gcp_conn_id": 7}, "gcp_conn_id of a watcher must name a connection, .* got 7"),
        ({"poke_interval": "60"}, "poke_interval of a watcher must be a number of seconds above 0, got '60'"),
        ({"poke_interval": 0}, "above 0"),
        ({"poke_interval": True}, "above 0, got True"),
        ({"poke_interval": float("inf")}, "above 0, got inf"),
        ({"poke_interval": 10**400}, "above 0, got 1000"),
        ({"ignore_operations": None}, "ignore_operations of a watcher must be a list of operations, got None"),
        ({"ignore_operations": ["OPTIMIZE", 1]}, "must be a list of operations"),
    ],
    ids=readable,
)
def test_refused_at_parse(arguments: dict[str, Any], sentence: str) -> None:
    """Airflow itself shows what is wrong with a trigger only in the triggerer's log."""
    with pytest.raises(ValueError, match=sentence):
        DeltaCommitTrigger(**{"path": "/t", **arguments})


def test_a_path_and_a_single_operation_are_stored_as_texts() -> None:
    _, stored = DeltaCommitTrigger(path=Path("/t"), ignore_operations="OPTIMIZE").serialize()  # type: ignore[arg-type]
    assert (stored["path"], stored["ignore_operations"]) == ("/t", ["OPTIMIZE"])


def test_a_watched_asset_is_the_same_asset() -> None:
    watcher = AssetWatcher(name="commits", trigger=DeltaCommitTrigger(path="/t", storage_options={"AWS_REGION": "eu"}))
    watched = delta_asset("/t", watchers=[watcher])
    assert isinstance(watched, Asset)
    assert (watched.uri, watched.watchers) == (delta_asset("/t").uri, [watcher])
