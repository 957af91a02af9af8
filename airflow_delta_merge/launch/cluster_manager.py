"""What YARN and Kubernetes do for a merge whose driver runs on the cluster."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_delta_merge.exceptions import ClusterManagerError

_SECONDS_TO_END = 60.0
_POLL_SECONDS = 0.5
_MAX_DIAGNOSTICS = 300


@dataclass(frozen=True, kw_only=True)
class ClusterApplication:
    """A merge's Spark application as its cluster reports it.

    :param id: Spark's id, e.g. ``application_1795322942133_0001`` or ``spark-1f0c…``.
    :param state: in the cluster's words, e.g. ``ACCEPTED`` or ``Pending``.
    :param has_ended: whether it has ended, or can never start.
    :param succeeded: whether the driver reported success.
    :param was_killed: whether it was killed through the cluster.
    :param address: the URL of its page; None if it has none that a browser outside the cluster reaches.
    :param diagnostics: why it is in this state, in one line; may be empty.
    :param log_command: the command that prints the driver's log.
    :param log: the name of the driver's output for :meth:`ClusterManager.read_log`; None while there is none.
    """

    id: str
    state: str
    has_ended: bool
    succeeded: bool
    was_killed: bool
    address: str | None
    diagnostics: str
    log_command: str
    log: str | None = None


def shortened(diagnostics: str) -> str:
    """A cluster's diagnostics for use in a sentence, at most 300 characters."""
    return diagnostics[:_MAX_DIAGNOSTICS].rstrip(". ")


class ClusterManager(ABC):
    """Finds, follows and ends the applications of a merge. Subclasses are dataclasses of JSON types, without secrets.

    An application has two names: ``submission`` is its own, and all tries of a task instance share ``application``.

    :cvar kind: the subclass in ``ClusterMode.to_dict``.
    :cvar name: the cluster in sentences.
    :cvar unknown_seconds: how long the cluster may not know an application that it has accepted.
    :cvar why_unknown: the likely reason if it doesn't know the application after that time, as a sentence.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    unknown_seconds: ClassVar[float]
    why_unknown: ClassVar[str]

    @abstractmethod
    def properties(
        self, conf: Mapping[str, Any], *, application: str, submission: str, result_folder: str, waits: bool
    ) -> dict[str, Any]:
        """``conf`` with the Spark properties that :meth:`find` and the other methods search by.

        The arguments are those of :class:`~airflow_delta_merge.launch.cluster_mode.ClusterMode`.
        """

    @abstractmethod
    def find(self, submission: str) -> ClusterApplication | None:
        """The application of this submission; None if the cluster knows none.

        :raises ClusterManagerError: when the request fails.
        """

    @abstractmethod
    def kill(self, submission: str) -> list[str]:
        """Kill the application of this submission and return what was killed; it ends within seconds.

        :raises ClusterManagerError: when a request fails or is refused.
        """

    @abstractmethod
    def kill_all(self, application: str) -> list[str]:
        """Kill the applications of all tries and return what was killed; they end within seconds.

        :raises ClusterManagerError: when a request fails or is refused.
        """

    @abstractmethod
    def running(self, application: str) -> list[str]:
        """The applications of all tries that haven't ended.

        :raises ClusterManagerError: when the request fails.
        """

    def end(self, application: str) -> list[str]:
        """Kill the applications of all tries, wait until they have ended, and return what was killed.

        :raises ClusterManagerError: when a request fails, or they don't end within a minute.
        """
        killed = self.kill_all(application)
        deadline = time.monotonic() + _SECONDS_TO_END
        while killed and self.running(application):
            if time.monotonic() > deadline:
                raise ClusterManagerError(
                    f"Spark application {', '.join(killed)} of an earlier try is still running a minute after it was "
                    f"killed. Check it on {self.name}."
                )
            time.sleep(_POLL_SECONDS)
        return killed

    def read_log(self, log: str, after: str) -> tuple[list[str], str]:
        """New lines of a driver's output, and the position after them; no lines if the cluster doesn't offer them.

        :param log: from :class:`ClusterApplication`.
        :param after: the position to read from; empty for the beginning.
        :raises ClusterManagerError: when the request fails.
        """
        return [], after

    @abstractmethod
    def clean_up(self, submission: str) -> None:
        """Remove what remains on the cluster of a finished submission, unless the cluster cleans up by itself.

        :raises ClusterManagerError: when a request fails or is refused.
        """
