"""The triggers behind deferred sensors that read a Delta table's log."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_delta_merge.history.awaited import RecordedMerge, TableCondition


class _TableLogTrigger(BaseTrigger, ABC):
    """Fires when what is waited for stands in a table's log.

    :param condition: the parameters of what is waited for.
    :param poke_interval: seconds between two looks.
    """

    def __init__(self, *, condition: dict[str, Any], poke_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.condition = condition
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"condition": self.condition, "poke_interval": self.poke_interval}

    @abstractmethod
    def look(self) -> Any:
        """What is found now; None as long as it isn't there."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        found = None
        while found is None:
            # First a pause: the sensor has just looked, and Airflow fails a task whose trigger fires before its
            # scheduler has taken note that the task was deferred.
            await asyncio.sleep(self.poke_interval)
            try:
                # Not asyncio.to_thread: what a look asks of Airflow, a connection, must find the triggerer's loop.
                found = await sync_to_async(self.look, thread_sensitive=False)()
            except Exception as error:  # told by the task, which knows whether to try again
                yield _event(error=str(error), type=type(error).__name__)
                return
        yield _event(found=found)


class DeltaTableTrigger(_TableLogTrigger):
    """Fires when a Delta table's log tells what is waited for, with the table's version.

    :param condition: the parameters of :class:`~airflow_delta_merge.history.awaited.TableCondition`.
    :param poke_interval: seconds between two looks.
    """

    def look(self) -> int | None:
        return TableCondition(**self.condition).met_by()


class RecordedMergeTrigger(_TableLogTrigger):
    """Fires when a merge stands in a Delta table's log, with what it recorded there.

    :param condition: the parameters of :class:`~airflow_delta_merge.history.awaited.RecordedMerge`.
    :param poke_interval: seconds between two looks.
    """

    def look(self) -> dict[str, Any] | None:
        return RecordedMerge(**self.condition).found()


def found_by(event: Mapping[str, Any], path: str) -> Any:
    """What a trigger of this module found, from its event.

    :param path: the table that it looked at.
    :raises AirflowException: of the kind by which the trigger failed.
    """
    if "found" in event:
        return event["found"]
    error = AirflowFailException if event.get("type") == "AirflowFailException" else AirflowException
    raise error(f"Waiting for {path} failed: {event.get('error')}")


def _event(**payload: Any) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
