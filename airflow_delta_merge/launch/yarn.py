"""YARN's ResourceManager through its REST API: finds, follows and kills the applications of a merge."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from airflow_delta_merge.exceptions import ResourceManagerError

_STATES_BEFORE_THE_END = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_TIMEOUT_SECONDS = 3.0  # Airflow's supervisor gives a killed task five
_SECONDS_TO_END = 60.0
_SECONDS_BETWEEN_LOOKS = 0.5
_LONGEST_DIAGNOSTICS = 300


@dataclass(frozen=True, kw_only=True)
class YarnApplication:
    """An application as YARN reports it.

    :param id: its id, e.g. ``application_1795322942133_0001``.
    :param state: YARN's state, e.g. ``ACCEPTED``; ``FINISHED``, ``FAILED`` or ``KILLED`` once it has ended.
    :param succeeded: whether the application reported success.
    :param address: the URL of its page, once it has one.
    :param diagnostics: the first line of YARN's diagnostics, at most 300 characters.
    """

    id: str
    state: str
    succeeded: bool
    address: str | None
    diagnostics: str

    @property
    def has_ended(self) -> bool:
        return self.state not in _STATES_BEFORE_THE_END

    @classmethod
    def of(cls, reported: Mapping[str, Any]) -> YarnApplication:
        """Build it from an entry of YARN's list."""
        # Later lines may be the end of the driver's output, which may contain secrets.
        first, *_ = str(reported.get("diagnostics") or "").strip().splitlines() or [""]
        return cls(
            id=str(reported["id"]),
            state=str(reported["state"]),
            succeeded=reported.get("finalStatus") == "SUCCEEDED",
            address=reported.get("trackingUrl") or None,
            diagnostics=first.strip()[:_LONGEST_DIAGNOSTICS].rstrip(". "),
        )


def _submitting_user() -> str:
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


@dataclass(frozen=True)
class ResourceManager:
    """A YARN cluster's ResourceManager.

    Requests identify the submitting user by ``user.name``. A ResourceManager that requires Kerberos for its REST API
    refuses them.

    :param address: the URL of its web application, e.g. ``http://rm.internal:8088``.
    :param user: the user for requests; by default the user that submits.
    """

    address: str
    user: str = field(default_factory=_submitting_user)

    def find(self, tag: str) -> YarnApplication | None:
        """The latest application with this tag; None if YARN knows none.

        :raises ResourceManagerError: when the request fails.
        """
        found = self._applications({"applicationTags": tag})
        return YarnApplication.of(max(found, key=lambda each: int(each.get("startedTime") or 0))) if found else None

    def running(self, tag: str) -> list[str]:
        """The ids of the applications with this tag that haven't ended.

        :raises ResourceManagerError: when the request fails.
        """
        states = ",".join(_STATES_BEFORE_THE_END)
        return [
            str(application["id"]) for application in self._applications({"applicationTags": tag, "states": states})
        ]

    def kill(self, tag: str) -> list[str]:
        """Kill all applications with this tag and return their ids; they end within seconds.

        :raises ResourceManagerError: when a request fails or is refused.
        """
        killed = self.running(tag)
        for application in killed:
            self._ask("PUT", f"apps/{application}/state", {}, {"state": "KILLED"})
        return killed

    def end(self, tag: str) -> list[str]:
        """Kill all applications with this tag, wait until they have ended, and return their ids.

        :raises ResourceManagerError: when a request fails, or they don't end within a minute.
        """
        killed = self.kill(tag)
        deadline = time.monotonic() + _SECONDS_TO_END
        while killed and self.running(tag):
            if time.monotonic() > deadline:
                raise ResourceManagerError(
                    f"Spark application {', '.join(killed)} of an earlier try is still running, although YARN was "
                    "asked to kill it. Check it in the ResourceManager's UI."
                )
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return killed

    def _applications(self, query: dict[str, str]) -> list[dict[str, Any]]:
        answer = self._ask("GET", "apps", query)
        try:
            listed = (answer.get("apps") or {}).get("app", ())
            return [dict(each, id=each["id"], state=each["state"]) for each in listed]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ResourceManagerError(
                f"The server at {self.address} is not a YARN ResourceManager. Check "
                "yarn_resourcemanager_webapp_address in the extra of the Spark connection."
            ) from error

    def _ask(self, method: str, what: str, query: dict[str, str], body: dict[str, str] | None = None) -> dict[str, Any]:
        address = f"{self.address}/ws/v1/cluster/{what}?{urlencode({**query, 'user.name': self.user})}"
        request = urllib.request.Request(  # noqa: S310 (the connection's address, checked to be a web address)
            address,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                parsed: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            hint = " Kerberos is not supported for its REST API." if error.code == 401 else ""
            raise ResourceManagerError(
                f"YARN's ResourceManager at {self.address} refused {method} {what} for {self.user} ({error}).{hint}"
            ) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ResourceManagerError(
                f"YARN's ResourceManager doesn't answer at {self.address} ({error}). Check "
                "yarn_resourcemanager_webapp_address in the extra of the Spark connection."
            ) from error
        return parsed if isinstance(parsed, dict) else {}
