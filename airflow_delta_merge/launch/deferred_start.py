"""Starts a merge that goes on without this process, with its driver on this machine."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import KeptSparkError
from airflow_delta_merge.launch.errors import target_or_number
from airflow_delta_merge.launch.keeper import KEEPER_PID, remove_folder
from airflow_delta_merge.launch.local_application import LocalApplication, fingerprint
from airflow_delta_merge.launch.results import outcome_of
from airflow_delta_merge.launch.spark_application import ApplicationEnd
from airflow_delta_merge.launch.staging import stage
from airflow_delta_merge.launch.warm import WarmMerge, waiting_command

if TYPE_CHECKING:
    from airflow_delta_merge.launch.preparation import Preparation

log = logging.getLogger(__name__)


class DeferredStart:
    """Starts one request under a keeper: in a Spark of its own, or in a kept one.

    :param preparation: makes the spark-submits.
    :param request: what to merge, and how.
    :param keep_warm: how many seconds a kept Spark stays after the merge; 0 gives the merge its own.
    """

    def __init__(self, preparation: Preparation, request: JobRequest, keep_warm: float) -> None:
        self._preparation = preparation
        self._request = request
        self._warm = WarmMerge(preparation, request, keep_warm) if keep_warm else None
        self._started: LocalApplication | None = None
        self._killed = False

    def start(self) -> LocalApplication:
        """Start it, or find what an earlier try of the same execution has started for the same merge.

        :raises DeltaMergeError: when something that the merge needs is missing.
        :raises DeltaMergeException: when a kept Spark can't be started.
        """
        staging = stage()
        try:
            submit = self._preparation.for_merge(staging, self._request, parent=KEEPER_PID)
            started_as = fingerprint(staging, submit.arguments)
            self._started = self._find(started_as)
            self._raise_if_killed()
            if self._started is not None:
                remove_folder(staging.folder)
                return self._started
            secrets_in = [
                self._request.to_dict(),
                *self._preparation.user_properties(),
                *map(asdict, self._preparation.databases.values()),
            ]
            with self._accepted() as accepted:
                command = submit.command(str(staging.application)) if accepted is None else waiting_command(staging)
                submit.open_log()
                self._started = LocalApplication.start(
                    *(staging, command, submit.environment(), secrets_in, submit.spark_log),
                    verbose=submit.verbose,
                    started_as=started_as,
                    stdin=accepted,
                )
                self._raise_if_killed()
                return self._started
        except BaseException:
            LocalApplication(staging.folder).kill()
            raise

    def on_kill(self) -> None:
        """End the merge, or keep it from starting."""
        self._killed = True
        if self._warm is not None:
            self._warm.on_kill()
        if self._started is not None:
            self._started.kill()

    def _raise_if_killed(self) -> None:
        if self._killed:
            if self._started is not None:
                self._started.kill()  # on_kill came before it was known
            self._raise(ApplicationEnd(exit_code=1))

    @contextmanager
    def _accepted(self) -> Iterator[socket.socket | None]:
        """The connection on which a kept Spark has accepted the merge; None if the merge gets its own Spark."""
        accepted = None if self._warm is None else self._warm.start()
        if accepted is None:
            yield None
        elif isinstance(accepted, ApplicationEnd):
            self._raise(accepted)
        else:
            with accepted:
                yield accepted

    def _raise(self, end: ApplicationEnd) -> NoReturn:
        """Raise the reason why a kept Spark could not be started."""
        outcome_of(
            end,
            target_or_number([merge.target for merge in self._request.each_merge]),
            killed=self._killed,
            exactly_once=self._request.identity is not None,
            conn_id=self._preparation.conn_id,
        )
        raise KeptSparkError("The kept Spark ended before it took the merge.")

    def _find(self, started_as: str) -> LocalApplication | None:
        """What an earlier try has started, if it can still succeed. Others of the same application id are ended."""
        found, identity = None, self._request.identity
        for earlier, theirs in LocalApplication.find(identity) if identity is not None else ():
            same = identity is not None and identity.is_same_execution(theirs.generation)
            if found is None and same and earlier.is_started_as(started_as) and earlier.can_still_succeed():
                log.info("Following the Spark application that an earlier try started (%s)", earlier.folder)
                found = earlier
            else:
                log.info("Ending the Spark application of an earlier try or execution (%s)", earlier.folder)
                earlier.kill()
        return found
