"""The trigger behind a deferred :class:`~airflow_delta_merge.sensors.delta_table.DeltaTableSensor`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_delta_merge.hooks.delta_log import TableCondition


class DeltaTableTrigger(BaseTrigger):
    """Fires when a Delta table's log tells what is waited for, with the table's version.

    :param condition: the parameters of :class:`~airflow_delta_merge.hooks.delta_log.TableCondition`.
    :param poke_interval: seconds between two looks.
    """

    def __init__(self, *, condition: dict[str, Any], poke_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.condition = condition
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"condition": self.condition, "poke_interval": self.poke_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        condition = TableCondition(**self.condition)
        while True:
            # First a pause: the sensor has just looked, and Airflow fails a task whose trigger fires before its
            # scheduler has taken note that the task was deferred.
            await asyncio.sleep(self.poke_interval)
            try:
                version = await asyncio.to_thread(condition.met_by)
            except Exception as error:  # told by the task, which knows whether to try again
                yield _event(error=str(error), type=type(error).__name__)
                return
            if version is not None:
                yield _event(version=version)
                return


def _event(**payload: Any) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
