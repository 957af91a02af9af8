"""YARN's ResourceManager, by its REST API: which applications of a merge run, and their end."""

from __future__ import annotations

import getpass
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from airflow_delta_merge.exceptions import DeltaMergeError

_STATES_BEFORE_THE_END = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_TIMEOUT_SECONDS = 3.0  # Airflow's supervisor gives a killed task five
_SECONDS_TO_END = 60.0
_SECONDS_BETWEEN_LOOKS = 0.5


class ResourceManagerError(DeltaMergeError):
    """The ResourceManager doesn't answer, or refuses."""


@dataclass(frozen=True)
class ResourceManager:
    """A YARN cluster's ResourceManager.

    It is asked as the user who submits, by ``user.name``; one that wants Kerberos for its REST API refuses that.

    :param address: of its web application, e.g. ``http://rm.internal:8088``.
    """

    address: str

    def running(self, tag: str) -> list[str]:
        """The ids of the applications with this tag that haven't ended.

        :raises ResourceManagerError: when it can't be asked.
        """
        told = self._ask("GET", "apps", {"applicationTags": tag, "states": ",".join(_STATES_BEFORE_THE_END)})
        return [str(application["id"]) for application in (told.get("apps") or {}).get("app", ())]

    def kill(self, tag: str) -> list[str]:
        """Have all applications with this tag killed, and return their ids; they end within seconds.

        :raises ResourceManagerError: when it can't be asked, or refuses.
        """
        killed = self.running(tag)
        for application in killed:
            self._ask("PUT", f"apps/{application}/state", {}, {"state": "KILLED"})
        return killed

    def end(self, tag: str) -> list[str]:
        """Kill all applications with this tag, wait until they have ended, and return their ids.

        :raises ResourceManagerError: when they don't end within a minute, too.
        """
        killed = self.kill(tag)
        deadline = time.monotonic() + _SECONDS_TO_END
        while killed and self.running(tag):
            if time.monotonic() > deadline:
                raise ResourceManagerError(
                    f"Spark application {', '.join(killed)} of an earlier try doesn't end, though YARN was told to "
                    "kill it: look at it in the ResourceManager's UI."
                )
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return killed

    def _ask(self, method: str, what: str, query: dict[str, str], body: dict[str, str] | None = None) -> dict[str, Any]:
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        address = f"{self.address}/ws/v1/cluster/{what}?{urlencode({**query, 'user.name': user})}"
        request = urllib.request.Request(  # noqa: S310 (the connection's address, checked to be a web address)
            address,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                told: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            hint = " Kerberos for its REST API isn't supported." if error.code == 401 else ""
            raise ResourceManagerError(
                f"YARN's ResourceManager at {self.address} refuses {method} {what} to {user} ({error}).{hint}"
            ) from error
        except (OSError, ValueError) as error:
            raise ResourceManagerError(
                f"YARN's ResourceManager doesn't answer at {self.address} ({error}): check "
                "yarn_resourcemanager_webapp_address in the extra of the Spark connection."
            ) from error
        return told if isinstance(told, dict) else {}
