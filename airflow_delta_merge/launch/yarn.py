"""YARN's ResourceManager through its REST API: finds, follows and kills the applications of a merge."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from airflow_delta_merge.exceptions import ClusterManagerError
from airflow_delta_merge.launch.cluster_manager import ClusterApplication, ClusterManager, shortened
from airflow_delta_merge.runtime.user import user_name

_STATES_BEFORE_THE_END = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_TIMEOUT_SECONDS = 3.0  # Airflow's supervisor gives a killed task five
_TAGS = "spark.yarn.tags"


def _application(reported: Mapping[str, Any]) -> ClusterApplication:
    """Build it from an entry of YARN's list."""
    # Later lines may be the end of the driver's output, which may contain secrets.
    first, *_ = str(reported.get("diagnostics") or "").strip().splitlines() or [""]
    number, state = str(reported["id"]), str(reported["state"])
    return ClusterApplication(
        id=number,
        state=state,
        has_ended=state not in _STATES_BEFORE_THE_END,
        succeeded=reported.get("finalStatus") == "SUCCEEDED",
        was_killed=state == "KILLED",
        address=reported.get("trackingUrl") or None,
        diagnostics=shortened(first.strip()),
        log_command=f"yarn logs -applicationId {number}",
    )


def _submitting_user() -> str:
    return os.environ.get("HADOOP_USER_NAME") or user_name()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a standby ResourceManager to the active one with a PUT, too."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if code != http.HTTPStatus.TEMPORARY_REDIRECT or req.get_method() != "PUT":
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        return urllib.request.Request(  # noqa: S310 (as below)
            newurl, method="PUT", data=req.data, headers=req.headers, unverifiable=True
        )


@dataclass(frozen=True)
class ResourceManager(ClusterManager):
    """A YARN cluster's ResourceManager.

    Requests identify the submitting user by ``user.name``. A ResourceManager that requires Kerberos for its REST API
    refuses them.

    :param address: the URL of its web application, e.g. ``http://rm.internal:8088``.
    :param user: the user for requests; by default the user that submits.
    """

    address: str
    user: str = field(default_factory=_submitting_user)

    kind = "yarn"
    name = "YARN"
    unknown_seconds = 60.0  # after a restart it answers before it has recovered its state
    why_unknown = (
        "Its ResourceManager was restarted without recovery, or remembers too few completed applications "
        "(yarn.resourcemanager.max-completed-applications)."
    )

    def properties(
        self, conf: Mapping[str, Any], *, application: str, submission: str, result_folder: str, waits: bool
    ) -> dict[str, Any]:
        once = {"spark.yarn.maxAppAttempts": "1"}  # Airflow, not YARN, retries a failed driver
        tags = [conf.get(_TAGS), *dict.fromkeys([application, submission])]
        waiting = {"spark.yarn.submit.waitAppCompletion": str(waits).lower()}
        return {**once, **conf, **waiting, _TAGS: ",".join(filter(None, tags))}

    def find(self, submission: str) -> ClusterApplication | None:
        found = self._applications(submission)
        return _application(max(found, key=lambda each: int(each.get("startedTime") or 0))) if found else None

    def running(self, application: str) -> list[str]:
        found = self._applications(application, states=",".join(_STATES_BEFORE_THE_END))
        return [str(each["id"]) for each in found if each["state"] in _STATES_BEFORE_THE_END]

    def kill(self, submission: str) -> list[str]:
        killed = self.running(submission)
        for application in killed:
            self._ask("PUT", f"apps/{application}/state", {}, {"state": "KILLED"})
        return killed

    def kill_all(self, application: str) -> list[str]:
        return self.kill(application)  # each is a tag

    def clean_up(self, submission: str) -> None:
        """Do nothing: YARN cleans up by itself."""

    def _applications(self, tag: str, **query: str) -> list[dict[str, Any]]:
        answer = self._ask("GET", "apps", {"applicationTags": tag, **query})
        try:
            listed = (answer.get("apps") or {}).get("app", ())
            found = [dict(each, id=each["id"], state=each["state"]) for each in listed]
            # A proxy, or an old standby ResourceManager that redirects, may lose the query. Then all are listed.
            return [each for each in found if tag in str(each.get("applicationTags", tag)).split(",")]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ClusterManagerError(
                f"The server at {self.address} is not a YARN ResourceManager. Check "
                "yarn_resourcemanager_webapp_address in the extra of the Spark connection."
            ) from error

    def _ask(self, method: str, what: str, query: dict[str, str], body: dict[str, str] | None = None) -> dict[str, Any]:
        address = f"{self.address}/ws/v1/cluster/{what}?{urlencode({**query, 'user.name': self.user})}"
        try:
            request = urllib.request.Request(  # noqa: S310 (the connection's address, checked to be a web address)
                address,
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
            )
            with urllib.request.build_opener(_Redirects).open(request, timeout=_TIMEOUT_SECONDS) as answer:
                parsed: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            hint = " Kerberos is not supported for its REST API." if error.code == 401 else ""
            raise ClusterManagerError(
                f"YARN's ResourceManager at {self.address} refused {method} {what} for {self.user} ({error}).{hint}"
            ) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ClusterManagerError(
                f"YARN's ResourceManager doesn't answer at {self.address} ({error}). Check "
                "yarn_resourcemanager_webapp_address in the extra of the Spark connection."
            ) from error
        return parsed if isinstance(parsed, dict) else {}
