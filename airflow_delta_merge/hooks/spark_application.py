"""The Spark application behind a merge, as the job tells of it in its log."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What the job's describe_application writes.
_TOLD = re.compile(
    r"Merge: Spark application (?P<id>[^\s,]+)(?:, UI at (?P<ui_url>https?://[^\s,]+))?"
    r"(?P<event_log>, event log on)?\s*$"
)
# What YARN's client writes of an application whose driver runs on the cluster.
_TRACKED = re.compile(r"tracking URL: (?P<ui_url>https?://\S+/(?P<id>application_\d+_\d+)/?)\s*$")


@dataclass(frozen=True)
class SparkApplication:
    """A Spark application that has started.

    :param id: its id, e.g. ``app-20260131060000-0001``.
    :param ui_url: where its own web UI is as long as it runs; None when that is off.
    :param event_log: whether it keeps an event log, from which a history server shows it.
    """

    id: str
    ui_url: str | None = None
    event_log: bool = False

    @classmethod
    def told_by(cls, line: str) -> SparkApplication | None:
        """The application that a line of the job's output tells of; None for all other lines."""
        if tracked := _TRACKED.search(line):
            return cls(tracked["id"], tracked["ui_url"])
        found = _TOLD.search(line)
        return cls(found["id"], found["ui_url"], bool(found["event_log"])) if found else None
