"""The triggers of deferred sensors that read a Delta table's log."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_delta_merge.history.awaited import RecordedMerge, TableCondition


class _TableLogTrigger(BaseTrigger, ABC):
    """Fires when a table's log meets a condition.

    :param condition: the parameters of the condition.
    :param poke_interval: seconds between two checks.
    :param silent_fail: whether to go on after an error that another check may not meet.
    """

    def __init__(self, *, condition: dict[str, Any], poke_interval: float, silent_fail: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.condition = condition
        self.poke_interval = poke_interval
        self.silent_fail = silent_fail

    def serialize(self) -> tuple[str, dict[str, Any]]:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        arguments = ("condition", "poke_interval", "silent_fail")
        return name, {argument: getattr(self, argument) for argument in arguments}

    @abstractmethod
    def check(self) -> Any:
        """What the log shows now; None while the condition isn't met."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        found = None
        while found is None:
            # Sleep first: the sensor has just checked, and Airflow fails a task whose trigger fires before the
            # scheduler has recorded that the task was deferred.
            await asyncio.sleep(self.poke_interval)
            try:
                # Not asyncio.to_thread: connections must be read in the triggerer's event loop.
                found = await sync_to_async(self.check, thread_sensitive=False)()
            except Exception as error:  # the task raises it, and decides whether to retry
                if self.silent_fail and not isinstance(error, AirflowFailException):
                    self.log.exception("The check failed, trying again in %s s.", self.poke_interval)
                    continue
                yield _event(error=str(error), type=type(error).__name__)
                return
        yield _event(found=found)


class DeltaTableTrigger(_TableLogTrigger):
    """Fires when a Delta table's log meets a condition, with the table's version.

    :param condition: the parameters of :class:`~airflow_delta_merge.history.awaited.TableCondition`.
    :param poke_interval: seconds between two checks.
    :param silent_fail: whether to go on after an error that another check may not meet.
    """

    def check(self) -> int | None:
        return TableCondition(**self.condition).met_by()


class RecordedMergeTrigger(_TableLogTrigger):
    """Fires when a Delta table's log has a merge, with the merge's record.

    :param condition: the parameters of :class:`~airflow_delta_merge.history.awaited.RecordedMerge`.
    :param poke_interval: seconds between two checks.
    :param silent_fail: whether to go on after an error that another check may not meet.
    """

    def check(self) -> dict[str, Any] | None:
        return RecordedMerge(**self.condition).found()


def _event(**payload: Any) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
