"""The triggers behind a deferred :class:`~airflow_delta_merge.operators.delta_merge.DeltaMergeOperator`."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import TaskInstanceState, XCom
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_delta_merge.launch.kept_application import KeptApplication
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.launch.submitted_application import SubmittedApplication
from airflow_delta_merge.launch.yarn import ResourceManagerError
from airflow_delta_merge.links.delta_merge import SparkApplicationLink, address_while_running

_SECONDS_BETWEEN_LOOKS = 2.0
# Airflow fails a task whose trigger fires before its scheduler has taken note that the task was deferred.
_SECONDS_BEFORE_EVENT = 5.0
_SECONDS_FOR_AIRFLOW_TO_STORE = 600.0


class _ApplicationTrigger(BaseTrigger, ABC):
    """Follows a merge's Spark application, and fires when it has ended; the event says how.

    Another triggerer can go on at any time, where this one was. When a user clears or marks the task, or deletes its
    run, the application is ended.

    :param deadline: the moment (seconds since 1970) at which the application is ended, because the task's
        ``execution_timeout`` is over; None when it has none.
    """

    def __init__(self, *, deadline: float | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.deadline = deadline

    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """What it is made with; no secret, as it is kept in Airflow's database."""

    @abstractmethod
    async def _look(self) -> ApplicationEnd | None:
        """Pass on what is new; how the application has ended when there is nothing more to pass on."""

    @abstractmethod
    def _runs(self) -> bool:
        """Whether the application is there to be ended, as far as that is known."""

    @abstractmethod
    async def _end(self) -> ApplicationEnd | None:
        """End the application and return what is known of it; None when that wasn't possible."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {**self._arguments(), "deadline": self.deadline}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        not_before = time.monotonic() + _SECONDS_BEFORE_EVENT
        # At its first question a triggerer builds what answers it, for seconds: not when a user waits for Spark's end.
        with suppress(Exception):
            await self._is_deferred()
        while (end := await self._look_in_time()) is None:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        await asyncio.sleep(max(0.0, not_before - time.monotonic()))
        yield TriggerEvent(end.to_dict())  # type: ignore[no-untyped-call]
        # The event is on its way, no more: would this triggerer die now, another one must find the application's
        # result. When it is stored, Airflow cancels this trigger, and on_kill clears up.
        await asyncio.sleep(_SECONDS_FOR_AIRFLOW_TO_STORE)

    async def on_kill(self) -> None:
        """End the application and clear up, unless the task is only followed by another triggerer now."""
        try:
            if await self._is_deferred():
                self.log.info("Another triggerer follows the Spark application from now on.")
                return
        except Exception:
            self.log.warning("The task's state isn't known, so its Spark application is ended.", exc_info=True)
        await self._end_and_say("the task was cleared or marked, or its run deleted, while Spark ran")

    async def _look_in_time(self) -> ApplicationEnd | None:
        end = await self._look()
        if end is None and self.deadline is not None and time.time() > self.deadline:
            ended = await self._end_and_say("the task's execution_timeout is over")
            return ended and replace(ended, timed_out=True)
        return end

    async def _end_and_say(self, why: str) -> ApplicationEnd | None:
        """End the application and clear up; say so before, if it is there to be ended: Airflow may not wait for it."""
        if await asyncio.to_thread(self._runs):
            self.log.info("Spark is ended, as %s. What it has not committed is not in the table.", why)
        return await self._end()

    async def _is_deferred(self) -> bool:
        """Whether Airflow still has the task as deferred: then nobody wanted its end."""
        ti: Any = self.task_instance
        return ti is not None and TaskInstanceState.DEFERRED in await asyncio.to_thread(_states, ti)


class DeltaMergeTrigger(_ApplicationTrigger):
    """Follows a merge's Spark application whose driver runs on this machine, and fires when it has ended.

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
        super().__init__(deadline=deadline)
        self.folder = folder
        self.host = host
        self.history_server_url = history_server_url
        self._kept = KeptApplication(Path(folder))

    def _arguments(self) -> dict[str, Any]:
        return {"folder": self.folder, "host": self.host, "history_server_url": self.history_server_url}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.to_thread(self._kept.mask_secrets)
        async for event in super().run():
            yield event

    async def _look(self) -> ApplicationEnd | None:
        known = self._kept.application
        end = await asyncio.to_thread(self._kept.end_of, self.host)
        while lines := await asyncio.to_thread(self._kept.follow):
            for line in lines:
                self.log.info("%s", line)
        if self._kept.application is not None and self._kept.application != known:
            await self._link(self._kept.application)
        # Now with its last line.
        return None if end is None else await asyncio.to_thread(self._kept.end_of, self.host)

    def _runs(self) -> bool:
        return self._kept.is_running()

    async def _end(self) -> ApplicationEnd | None:
        await asyncio.to_thread(self._kept.end)
        return ApplicationEnd(application=self._kept.application)

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


class YarnMergeTrigger(_ApplicationTrigger):
    """Follows a merge's Spark application whose driver runs on YARN, by YARN's REST API, and fires when it has ended.

    It runs on any machine that reaches the ResourceManager. What the driver prints stands in its log on the cluster;
    the task's log has the states by which YARN calls the application. When a user clears or marks the task, or deletes
    its run, the application is killed through YARN.

    :param cluster_mode: the parameters of :class:`~airflow_delta_merge.launch.cluster_mode.ClusterMode`.
    :param application: the known parameters of
        :class:`~airflow_delta_merge.launch.spark_application.SparkApplication`.
    :param deadline: the moment (seconds since 1970) at which the application is ended, because the task's
        ``execution_timeout`` is over; None when it has none.
    """

    def __init__(
        self,
        *,
        cluster_mode: Mapping[str, Any],
        application: Mapping[str, Any] | None = None,
        deadline: float | None = None,
    ) -> None:
        super().__init__(deadline=deadline)
        self.cluster_mode = dict(cluster_mode)
        self.application = dict(application) if application else None
        self._submitted = SubmittedApplication.from_dict(self._arguments())

    def _arguments(self) -> dict[str, Any]:
        return {"cluster_mode": self.cluster_mode, "application": self.application}

    async def _look(self) -> ApplicationEnd | None:
        for line in await asyncio.to_thread(self._submitted.follow):
            self.log.info("%s", line)
        return self._submitted.end

    def _runs(self) -> bool:
        return self._submitted.end is None

    async def _end(self) -> ApplicationEnd | None:
        try:
            await asyncio.to_thread(self._submitted.kill)
        except ResourceManagerError as error:
            self.log.warning("The Spark application could not be ended: %s", error)
            return None
        return ApplicationEnd(application=self._submitted.application)


def _states(ti: Any) -> list[str]:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=ti.map_index,
    )
    return [state for tasks in states.values() for state in tasks.values()]
