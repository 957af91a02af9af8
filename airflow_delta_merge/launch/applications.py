"""Restores an application that another process started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta_merge.launch.local_application import LocalApplication
from airflow_delta_merge.launch.started_application import StartedApplication
from airflow_delta_merge.launch.submitted_application import SubmittedApplication

_KINDS: dict[str, type[LocalApplication | SubmittedApplication]] = {
    each.kind: each for each in (LocalApplication, SubmittedApplication)
}


def application_of(data: Mapping[str, Any]) -> StartedApplication:
    """Restore it from :meth:`~airflow_delta_merge.launch.started_application.StartedApplication.to_dict`."""
    return _KINDS[data["kind"]].from_dict(data)
