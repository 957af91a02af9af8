"""The Spark application of a deferred task whose driver runs on YARN, as whoever follows it sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_delta_merge.exceptions import ResourceManagerError
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.launch.started_application import StartedApplication
from airflow_delta_merge.launch.yarn import ResourceManager, YarnApplication

#: How long a ResourceManager may be silent: longer than one takes to restart.
SILENCE_SECONDS = 300.0
#: How long it may not know the application: one that has just started answers before it has read what it knew.
UNKNOWN_SECONDS = 60.0
_SECONDS_BETWEEN_COMPLAINTS = 60.0
_SECONDS_TO_KILL = 20.0  # Airflow gives a trigger 30
_SECONDS_BETWEEN_TRIES = 1.0


@dataclass
class _Patience:
    """For how many seconds something may be missing, and how often that is said meanwhile."""

    seconds: float
    missing_since: float | None = None
    _said: float | None = None

    def is_over(self) -> bool:
        """Note that it is missing now, and tell whether it has been for too long."""
        now = time.monotonic()
        if self.missing_since is None:
            self.missing_since, self._said = now, None
        return now - self.missing_since >= self.seconds

    def shall_be_said(self) -> bool:
        now = time.monotonic()
        if self._said is not None and now - self._said < _SECONDS_BETWEEN_COMPLAINTS:
            return False
        self._said = now
        return True


@dataclass
class SubmittedApplication(StartedApplication):
    """A Spark application that YARN runs, without a process of ours.

    :param cluster_mode: how it was submitted, so by what it is found.
    :param application: the application, as far as it is known.
    :ivar end: how it ended; None as long as it hasn't. Its result is yet to be fetched, and goes before ``error``,
        which says why there may be none.
    """

    kind = "submitted"

    cluster_mode: ClusterMode
    application: SparkApplication | None = None
    end: ApplicationEnd | None = None
    _state: str = field(default="", repr=False)
    _answer: _Patience = field(default_factory=lambda: _Patience(SILENCE_SECONDS), repr=False)
    _knowledge: _Patience = field(default_factory=lambda: _Patience(UNKNOWN_SECONDS), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """How it is found again, in JSON types and without secrets."""
        return {
            "kind": self.kind,
            "cluster_mode": self.cluster_mode.to_dict(),
            "application": asdict(self.application) if self.application else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SubmittedApplication:
        """Read what :meth:`to_dict` gave."""
        application = data["application"]
        return cls(ClusterMode.from_dict(data["cluster_mode"]), application and SparkApplication(**application))

    def __str__(self) -> str:
        name = self.application.id if self.application else self.cluster_mode.submission
        return f"Spark runs on YARN, as {name}; a triggerer follows it there."

    def follow(self) -> list[str]:
        """Ask YARN for it once, and return in sentences what is new."""
        try:
            found = self._resource_manager.find(self.cluster_mode.submission)
        except ResourceManagerError as error:
            minutes = f"{SILENCE_SECONDS / 60:.0f} minutes"
            verdict = (
                f"For {minutes} nobody could be asked what became of {self._name}: {error} It may still run; the next "
                "try of this task ends it first."
            )
            return self._miss(self._answer, f"{error} It is asked again, for {minutes} at most.", verdict)
        news = [] if self._answer.missing_since is None else ["YARN's ResourceManager answers again."]
        self._answer.missing_since = None
        return news + (self._not_known() if found is None else self._heard_of(found))

    def look(self) -> tuple[list[str], ApplicationEnd | None]:
        return self.follow(), self.end

    def runs(self) -> bool:
        return self.end is None

    def mask_secrets(self) -> None:
        """Nothing to do: YARN knows none."""

    def kill(self) -> None:
        """Have YARN kill it, if it runs; its containers end within seconds.

        :raises ResourceManagerError: when YARN can't be asked, even if it is tried again for some seconds.
        """
        deadline = time.monotonic() + _SECONDS_TO_KILL
        while True:
            try:
                self._resource_manager.kill(self.cluster_mode.submission)
                return
            except ResourceManagerError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_SECONDS_BETWEEN_TRIES)

    @property
    def _resource_manager(self) -> ResourceManager:
        assert self.cluster_mode.resource_manager is not None
        return self.cluster_mode.resource_manager

    @property
    def _name(self) -> str:
        return f"Spark application {self.application.id if self.application else self.cluster_mode.submission}"

    def _heard_of(self, found: YarnApplication) -> list[str]:
        self._knowledge.missing_since = None
        known = self.application.ui_url if self.application else None
        self.application = SparkApplication(found.id, found.address or known)
        if found.has_ended:
            exit_code = 0 if found.succeeded else 1
            error = _why_no_result(found)
            self.end = ApplicationEnd(exit_code=exit_code, application=self.application, error=error)
        news = [] if found.state == self._state else [f"{self._name} is {found.state} on YARN."]
        self._state = found.state
        return news

    def _not_known(self) -> list[str]:
        said = f"YARN doesn't know {self._name}. It is asked again, for {UNKNOWN_SECONDS:.0f} seconds at most."
        verdict = (
            f"YARN no longer knows {self._name}, and no result of it was found: its ResourceManager was restarted "
            "without recovery, or remembers too few applications that have ended "
            "(yarn.resourcemanager.max-completed-applications)."
        )
        return self._miss(self._knowledge, said, verdict)

    def _miss(self, patience: _Patience, said: str, verdict: str) -> list[str]:
        if patience.is_over():
            self.end = ApplicationEnd(application=self.application, error=verdict)
            return []
        return [said] if patience.shall_be_said() else []


def _why_no_result(ended: YarnApplication) -> str:
    why = f" ({ended.diagnostics})" if ended.diagnostics else ""
    look = f"the reason stands in the log of its driver: yarn logs -applicationId {ended.id}."
    if ended.state == "KILLED":
        return f"Spark application {ended.id} was killed on YARN, and not by this task{why}."
    if ended.succeeded:
        return f"Spark application {ended.id} has succeeded on YARN, but left no result; {look}"
    return f"Spark application {ended.id} failed on YARN{why} and left no result; {look}"
