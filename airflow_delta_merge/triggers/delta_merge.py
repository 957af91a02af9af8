"""The trigger behind a deferred :class:`~airflow_delta_merge.operators.delta_merge.DeltaMergeOperator`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import TaskInstanceState, XCom
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_delta_merge.hooks.kept_application import ApplicationEnd, KeptApplication
from airflow_delta_merge.hooks.spark_application import SparkApplication
from airflow_delta_merge.links.delta_merge import SparkApplicationLink, address_while_running

_SECONDS_BETWEEN_LOOKS = 2.0
# Airflow fails a task whose trigger fires before its scheduler has taken note that the task was deferred.
_SECONDS_BEFORE_EVENT = 5.0
_SECONDS_FOR_AIRFLOW_TO_STORE = 600.0


class DeltaMergeTrigger(BaseTrigger):
    """Follows a merge's Spark application on this machine, and fires when it has ended; the event says how.

    What Spark prints goes into the task's log. Another triggerer on this machine can go on at any time, where this one
    was. When a user clears or marks the task, or deletes its run, the application is ended.

    :param folder: the merge's staging folder.
    :param host: the machine on which Spark was started.
    :param deadline: the moment (seconds since 1970) at which the application is ended, because the task's
        ``execution_timeout`` is over; None when it has none.
    :param history_server_url: for the link to the application.
    """

    def __init__(
        self, *, folder: str, host: str, deadline: float | None = None, history_server_url: str | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.folder = folder
        self.host = host
        self.deadline = deadline
        self.history_server_url = history_server_url
        self._kept = KeptApplication(Path(folder))

    def serialize(self) -> tuple[str, dict[str, Any]]:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {
            "folder": self.folder,
            "host": self.host,
            "deadline": self.deadline,
            "history_server_url": self.history_server_url,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        not_before = time.monotonic() + _SECONDS_BEFORE_EVENT
        await asyncio.to_thread(self._kept.mask_secrets)
        # At its first question a triggerer builds what answers it, for seconds: not when a user waits for Spark's end.
        with suppress(Exception):
            await self._is_deferred()
        while (end := await self._look()) is None:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        await asyncio.sleep(max(0.0, not_before - time.monotonic()))
        yield TriggerEvent(end.to_dict())  # type: ignore[no-untyped-call]
        # The event is on its way, no more: would this triggerer die now, another one must find the application's
        # result. When it is stored, Airflow cancels this trigger, and on_kill removes the folder.
        await asyncio.sleep(_SECONDS_FOR_AIRFLOW_TO_STORE)

    async def on_kill(self) -> None:
        """End the application and remove its folder, unless the task is only followed by another triggerer now."""
        try:
            if await self._is_deferred():
                self.log.info("Another triggerer follows the Spark application from now on.")
                return
        except Exception:
            self.log.warning("The task's state isn't known, so its Spark application is ended.", exc_info=True)
        await asyncio.to_thread(self._kept.end)

    async def _look(self) -> ApplicationEnd | None:
        """Pass on what is new; how the application has ended when there is nothing more to pass on."""
        known = self._kept.application
        end = await asyncio.to_thread(self._kept.end_of, self.host)
        while lines := await asyncio.to_thread(self._kept.follow):
            for line in lines:
                self.log.info("%s", line)
        if self._kept.application is not None and self._kept.application != known:
            await self._link(self._kept.application)
        if end is not None:
            return await asyncio.to_thread(self._kept.end_of, self.host)  # now with its last line
        if self.deadline is not None and time.time() > self.deadline:
            await asyncio.to_thread(self._kept.end)
            return ApplicationEnd(timed_out=True, application=self._kept.application)
        return None

    async def _link(self, application: SparkApplication) -> None:
        ti: Any = self.task_instance
        address = address_while_running(self.history_server_url, application)
        if ti is None or not address:
            return
        try:
            await asyncio.to_thread(
                XCom.set,
                key=SparkApplicationLink().xcom_key,
                value=address,
                dag_id=ti.dag_id,
                task_id=ti.task_id,
                run_id=ti.run_id,
                map_index=ti.map_index,
            )
        except Exception:  # a link is no part of the merge
            self.log.warning("The link to Spark application %s could not be stored.", application.id, exc_info=True)

    async def _is_deferred(self) -> bool:
        """Whether Airflow still has the task as deferred: then nobody wanted its end."""
        ti: Any = self.task_instance
        return ti is not None and TaskInstanceState.DEFERRED in await asyncio.to_thread(_states, ti)


def _states(ti: Any) -> list[str]:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=ti.map_index,
    )
    return [state for tasks in states.values() for state in tasks.values()]
