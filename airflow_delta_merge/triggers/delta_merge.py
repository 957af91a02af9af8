"""The trigger of a deferred :class:`~airflow_delta_merge.operators.delta_merge.DeltaMergeOperator`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow.providers.common.compat.sdk import TaskInstanceState, XCom
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.launch.applications import application_of
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.links.delta_merge import SparkApplicationLink, address_while_running

_POLL_SECONDS = 2.0
# Airflow fails a task whose trigger fires before the scheduler has recorded that the task was deferred.
_SECONDS_BEFORE_EVENT = 5.0
_SECONDS_FOR_AIRFLOW_TO_STORE = 600.0


class DeltaMergeTrigger(BaseTrigger):
    """Follows a merge's Spark application, and fires when it has ended. The event says how it ended.

    Another triggerer can take over at any time. For a driver on a cluster this can be any triggerer, for a local driver
    it must be on the same machine. When a user clears or marks the task, or deletes its run, the application is ended.

    :param started: the application's ``to_dict``, with which it is found again; Airflow stores it in its database.
    :param deadline: the time (seconds since 1970) at which the task's ``execution_timeout`` ends the application; None
        without a timeout.
    :param history_server_url: for the link to the application.
    """

    def __init__(
        self, *, started: Mapping[str, Any], deadline: float | None = None, history_server_url: str | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.started = dict(started)
        self.deadline = deadline
        self.history_server_url = history_server_url
        self._application = application_of(started)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {name: getattr(self, name) for name in ("started", "deadline", "history_server_url")}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.to_thread(self._application.mask_secrets)
        not_before = time.monotonic() + _SECONDS_BEFORE_EVENT
        # A triggerer's first query needs seconds to set up. Do that now, not while a user waits for Spark's end.
        with suppress(Exception):
            await self._is_deferred()
        while (end := await self._poll_until_deadline()) is None:
            await asyncio.sleep(_POLL_SECONDS)
        await asyncio.sleep(max(0.0, not_before - time.monotonic()))
        yield TriggerEvent(end.to_dict())  # type: ignore[no-untyped-call]
        # The event may not be stored yet: if this triggerer died now, another one would need the application's result.
        # Once it is stored, Airflow cancels this trigger, and on_kill cleans up.
        await asyncio.sleep(_SECONDS_FOR_AIRFLOW_TO_STORE)

    async def on_kill(self) -> None:
        """End the application and clean up, unless another triggerer has taken over."""
        try:
            if await self._is_deferred():
                self.log.info("Another triggerer now follows the Spark application.")
                return
        except Exception:
            self.log.warning("Ending the Spark application, because the task's state is unknown.", exc_info=True)
        await self._kill("the task was cleared or marked, or its run was deleted")

    async def _poll_until_deadline(self) -> ApplicationEnd | None:
        end = await self._poll()
        if end is None and self.deadline is not None and time.time() > self.deadline:
            ended = await self._kill("the task's execution_timeout has passed")
            return ended and replace(ended, timed_out=True)
        return end

    async def _poll(self) -> ApplicationEnd | None:
        """Log new lines. Returns how the application ended, once there are no more lines."""
        known = self._application.application
        while True:
            lines, end = await asyncio.to_thread(self._application.poll)
            for line in lines:
                self.log.info("%s", line)
            if end is not None or not lines:
                break
        if self._application.application is not None and self._application.application != known:
            await self._link(self._application.application)
        return end

    async def _kill(self, why: str) -> ApplicationEnd | None:
        """End the application and clean up. Returns what is known about it, or None if it could not be ended.

        If the application is running, this logs the reason first, because Airflow may not wait for the end.
        """
        if await asyncio.to_thread(self._application.runs):
            self.log.info("Ending Spark, because %s. Only what it has committed is in the table.", why)
        try:
            await asyncio.to_thread(self._application.kill)
        except DeltaMergeError as error:
            self.log.warning("The Spark application could not be ended: %s", error)
            return None
        return ApplicationEnd(application=self._application.application)

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
        except Exception:  # a link must not fail the merge
            self.log.warning("The link to Spark application %s could not be stored.", application.id, exc_info=True)

    async def _is_deferred(self) -> bool:
        """Whether the task is still deferred in Airflow: then no user wants it to end."""
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
