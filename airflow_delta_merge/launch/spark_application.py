"""The Spark application behind a merge, as found in logs, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_delta_merge.contract.outcome import JobOutcome

# The line that the job's describe_application writes.
_REPORTED = re.compile(
    r"Merge: Spark application (?P<id>[^\s,]+)(?:, UI at (?P<ui_url>https?://[^\s,]+))?"
    r"(?P<event_log>, event log on)?\s*$"
)
# The line that YARN's client writes for an application whose driver runs on the cluster.
_TRACKED = re.compile(r"tracking URL: (?P<ui_url>https?://\S+/(?P<id>application_\d+_\d+)/?)\s*$")


@dataclass(frozen=True)
class SparkApplication:
    """A Spark application that has started.

    :param id: its id, e.g. ``app-20260131060000-0001``.
    :param ui_url: the URL of its own web UI while it runs; None if the UI is off.
    :param event_log: whether it writes an event log, which a history server can show.
    """

    id: str
    ui_url: str | None = None
    event_log: bool = False

    @classmethod
    def from_log_line(cls, line: str) -> SparkApplication | None:
        """The application that a line of the job's output reports; None for all other lines."""
        if tracked := _TRACKED.search(line):
            return cls(tracked["id"], tracked["ui_url"])
        found = _REPORTED.search(line)
        return cls(found["id"], found["ui_url"], bool(found["event_log"])) if found else None


@dataclass(frozen=True, kw_only=True)
class ApplicationEnd:
    """How a merge's Spark application ended; JSON types by :meth:`to_dict`, for a trigger's event.

    :param outcome: the content of the job's result file; None if there is none.
    :param exit_code: spark-submit's exit code, negative for a signal; None if unknown.
    :param reason: why it failed, if it did, from its output; masked.
    :param application: the application, if its output reported it.
    :param error: why its outcome is unknown, as a sentence.
    :param another_try_helps: whether a retry may succeed after such an error.
    :param timed_out: whether it was ended because the task's ``execution_timeout`` had passed.
    """

    outcome: JobOutcome | None = None
    exit_code: int | None = None
    reason: str = ""
    application: SparkApplication | None = None
    error: str | None = None
    another_try_helps: bool = True
    timed_out: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(replace(self, outcome=None)), "outcome": self.outcome and self.outcome.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ApplicationEnd:
        """Restore it from :meth:`to_dict`.

        :raises MergeResultError: when the outcome is not from this release.
        """
        application, outcome = data.get("application"), data.get("outcome")
        return cls(
            **{
                **data,
                "application": SparkApplication(**application) if application else None,
                "outcome": None if outcome is None else JobOutcome.from_dict(outcome),
            }
        )
