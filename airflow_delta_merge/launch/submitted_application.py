"""The Spark application of a deferred task whose driver runs on YARN, from its follower's side."""

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

#: How long a ResourceManager may not answer: longer than a restart takes.
SILENCE_SECONDS = 300.0
#: How long it may not know the application: after a restart it answers before it has recovered its state.
UNKNOWN_SECONDS = 60.0
_SECONDS_BETWEEN_COMPLAINTS = 60.0
_SECONDS_TO_KILL = 20.0  # Airflow gives a trigger 30
_SECONDS_BETWEEN_TRIES = 1.0


@dataclass
class _Patience:
    """How many seconds something may be missing, and how often to report it meanwhile."""

    seconds: float
    missing_since: float | None = None
    _said: float | None = None

    def is_over(self) -> bool:
        """Record that it is missing now, and return whether it has been missing for too long."""
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
    """A Spark application that YARN runs, without a local process.

    :param cluster_mode: how it was submitted, and how to find it.
    :param application: the application, as far as known.
    :ivar end: how it ended; None while it runs. Its result must still be fetched, and takes precedence over ``error``,
        which says why there may be no result.
    """

    kind = "submitted"

    cluster_mode: ClusterMode
    application: SparkApplication | None = None
    end: ApplicationEnd | None = None
    _state: str = field(default="", repr=False)
    _answer: _Patience = field(default_factory=lambda: _Patience(SILENCE_SECONDS), repr=False)
    _knowledge: _Patience = field(default_factory=lambda: _Patience(UNKNOWN_SECONDS), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The data to find it again, in JSON types and without secrets."""
        return {
            "kind": self.kind,
            "cluster_mode": self.cluster_mode.to_dict(),
            "application": asdict(self.application) if self.application else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SubmittedApplication:
        """Restore it from :meth:`to_dict`."""
        application = data["application"]
        return cls(ClusterMode.from_dict(data["cluster_mode"]), application and SparkApplication(**application))

    def __str__(self) -> str:
        name = self.application.id if self.application else self.cluster_mode.submission
        return f"Spark runs on YARN as {name}; a triggerer follows it."

    def follow(self) -> list[str]:
        """Query YARN once, and return the news as sentences."""
        try:
            found = self._resource_manager.find(self.cluster_mode.submission)
        except ResourceManagerError as error:
            minutes = f"{SILENCE_SECONDS / 60:.0f} minutes"
            verdict = (
                f"The state of {self._name} was unknown for {minutes}: {error} It may still run; the next try of this "
                "task ends it first."
            )
            return self._miss(self._answer, f"{error} Retrying for up to {minutes}.", verdict)
        news = [] if self._answer.missing_since is None else ["YARN's ResourceManager answers again."]
        self._answer.missing_since = None
        return news + (self._not_known() if found is None else self._heard_of(found))

    def look(self) -> tuple[list[str], ApplicationEnd | None]:
        return self.follow(), self.end

    def runs(self) -> bool:
        return self.end is None

    def mask_secrets(self) -> None:
        """Do nothing: YARN has no secrets."""

    def kill(self) -> None:
        """Make YARN kill it, if it runs; its containers end within seconds.

        :raises ResourceManagerError: when YARN can't be reached, despite retries for some seconds.
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
        said = f"YARN doesn't know {self._name}. Retrying for up to {UNKNOWN_SECONDS:.0f} seconds."
        verdict = (
            f"YARN no longer knows {self._name}, and it left no result. Its ResourceManager was restarted without "
            "recovery, or remembers too few completed applications "
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
    look = f"See its driver's log for the reason: yarn logs -applicationId {ended.id}."
    if ended.state == "KILLED":
        return f"Spark application {ended.id} was killed on YARN, but not by this task{why}."
    if ended.succeeded:
        return f"Spark application {ended.id} succeeded on YARN, but left no result. {look}"
    return f"Spark application {ended.id} failed on YARN{why} and left no result. {look}"
