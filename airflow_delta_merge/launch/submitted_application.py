"""A Spark application whose driver runs on YARN or Kubernetes, as the process that follows it sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow.providers.common.compat.sdk import redact

from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.launch.cluster_manager import ClusterApplication, ClusterManager
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.launch.spark_output import SparkOutput, is_progress
from airflow_delta_merge.launch.started_application import StartedApplication

#: How long to wait for a cluster manager that doesn't answer: longer than a restart takes.
SILENCE_SECONDS = 300.0
_SECONDS_BETWEEN_REPORTS = 60.0
_SECONDS_TO_KILL = 20.0  # Airflow gives a trigger 30
_SECONDS_BETWEEN_TRIES = 1.0


@dataclass
class _Patience:
    """Limits how long something may be missing, and how often that is reported."""

    seconds: float
    missing_since: float | None = None
    _reported_at: float | None = None

    def is_over(self) -> bool:
        """Record that it is missing now, and return whether it has been missing for too long."""
        now = time.monotonic()
        if self.missing_since is None:
            self.missing_since, self._reported_at = now, None
        return now - self.missing_since >= self.seconds

    def should_report(self) -> bool:
        """Whether the last report is long enough ago; records a new one if so."""
        now = time.monotonic()
        if self._reported_at is not None and now - self._reported_at < _SECONDS_BETWEEN_REPORTS:
            return False
        self._reported_at = now
        return True


@dataclass
class SubmittedApplication(StartedApplication):
    """A Spark application that a cluster runs, without a local process.

    :param cluster_mode: how it was submitted, and how to find it.
    :param application: the application, as far as known.
    :param shows_all: whether to log every useful line of the driver's output, not only the merge's progress. This is
        only safe in a process in which Airflow masks the merge's secrets.
    :ivar end: how it ended; None while it runs. The caller still has to fetch its result. ``error`` only counts if
        there is no result.
    """

    kind = "submitted"

    cluster_mode: ClusterMode
    application: SparkApplication | None = None
    shows_all: bool = False
    end: ApplicationEnd | None = None
    _state: tuple[str, str] = field(default=("", ""), repr=False)
    _output: SparkOutput = field(default_factory=SparkOutput, repr=False)
    _read_until: str = field(default="", repr=False)
    _answer: _Patience = field(default_factory=lambda: _Patience(SILENCE_SECONDS), repr=False)
    _knowledge: _Patience = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._knowledge = _Patience(self._manager.unknown_seconds)

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
        return f"Spark runs on {self._manager.name} as {name}; a triggerer follows it."

    def follow(self) -> list[str]:
        """Query the cluster once. Returns state changes as sentences, and the driver's new lines if available."""
        try:
            found = self._manager.find(self.cluster_mode.submission)
            lines = self._new_lines(found.log) if found is not None and found.log is not None else []
        except DeltaMergeError as error:  # even without access to the cluster: the connection may be on its way
            minutes = f"{SILENCE_SECONDS / 60:.0f} minutes"
            verdict = (
                f"The state of {self._name} was unknown for {minutes}: {error} It may still run; the next try of this "
                "task ends it first."
            )
            return self._record_missing(self._answer, f"{error} Retrying for up to {minutes}.", verdict)
        news = [] if self._answer.missing_since is None else [f"{self._manager.name} answers again."]
        self._answer.missing_since = None
        return news + (self._report_unknown() if found is None else self._updated(found, lines))

    def _new_lines(self, log: str) -> list[str]:
        lines, self._read_until = self._manager.read_log(log, self._read_until)
        masked = [str(redact(line)) for line in lines]
        return [line for line in masked if self._output.read(line) and (self.shows_all or is_progress(line))]

    def poll(self) -> tuple[list[str], ApplicationEnd | None]:
        return self.follow(), self.end

    def runs(self) -> bool:
        return self.end is None

    def mask_secrets(self) -> None:
        """Do nothing: the shown lines contain no secrets."""

    def kill(self) -> None:
        """Make the cluster end it, if it runs; its containers end within seconds.

        :raises DeltaMergeError: when the cluster can't be reached, despite retries for some seconds.
        """
        deadline = time.monotonic() + _SECONDS_TO_KILL
        while True:
            try:
                self._manager.kill(self.cluster_mode.submission)
                return
            except DeltaMergeError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_SECONDS_BETWEEN_TRIES)

    @property
    def _manager(self) -> ClusterManager:
        return self.cluster_mode.manager

    @property
    def _name(self) -> str:
        return f"Spark application {self.application.id if self.application else self.cluster_mode.submission}"

    def _updated(self, found: ClusterApplication, lines: list[str]) -> list[str]:
        self._knowledge.missing_since = None
        logged = self._output.application
        known = self.application.ui_url if self.application else None
        event_log = logged is not None and logged.event_log
        self.application = SparkApplication(found.id, found.address or known, event_log)
        if found.has_ended:
            exit_code = 0 if found.succeeded else 1
            error = _why_no_result(found, self._manager.name)
            self.end = ApplicationEnd(exit_code=exit_code, application=self.application, error=error)
        state = (found.state, "" if found.has_ended else found.diagnostics)
        why = f": {state[1]}" if state[1] else ""
        news = [] if state == self._state else [f"{self._name} is {found.state} on {self._manager.name}{why}."]
        self._state = state
        return [*lines, *news]

    def _report_unknown(self) -> list[str]:
        cluster = self._manager.name
        notice = f"{cluster} doesn't know {self._name}. Retrying for up to {self._knowledge.seconds:.0f} seconds."
        verdict = f"{cluster} no longer knows {self._name}, and it left no result. {self._manager.why_unknown}"
        return self._record_missing(self._knowledge, notice, verdict)

    def _record_missing(self, patience: _Patience, notice: str, verdict: str) -> list[str]:
        if patience.is_over():
            self.end = ApplicationEnd(application=self.application, error=verdict)
            return []
        return [notice] if patience.should_report() else []


def _why_no_result(ended: ClusterApplication, cluster: str) -> str:
    why = f" ({ended.diagnostics})" if ended.diagnostics else ""
    look = f"See its driver's log for the reason: {ended.log_command}."
    if ended.was_killed:
        return f"Spark application {ended.id} was killed on {cluster}, but not by this task{why}."
    if ended.succeeded:
        return f"Spark application {ended.id} succeeded on {cluster}, but left no result. {look}"
    return f"Spark application {ended.id} failed on {cluster}{why} and left no result. {look}"
