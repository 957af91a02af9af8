"""Deferred applications on YARN, followed by its REST API: what a cluster can't be made to do, by a server here.

With a real YARN they are in ``tests/cluster``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.log import mask_secret

from airflow_delta_merge.contract.outcome import JobOutcome, MergeOutcome
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import ClusterManagerError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch import submitted_application
from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.kubernetes import KubernetesNamespace
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.launch.submitted_application import SubmittedApplication
from airflow_delta_merge.launch.yarn import ResourceManager
from airflow_delta_merge.triggers import delta_merge as triggers_delta_merge
from airflow_delta_merge.triggers.delta_merge import DeltaMergeTrigger

ID = "application_1795322942133_0001"
TAG = "airflow_delta_merge_abc"


class FakeYarn:
    """Answers as a ResourceManager's REST API does, as far as it is asked; by an application or an HTTP status.

    :ivar active: where the active ResourceManager is, for a standby one.
    """

    def __init__(self) -> None:
        self.application: dict[str, Any] | None = {"id": ID, "state": "RUNNING", "finalStatus": "UNDEFINED"}
        self.answer: tuple[int, str] | None = None
        self.active: str | None = None
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        yarn = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(yarn.get)

            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(yarn.kill)

            def _answer(self, of: Any) -> None:
                address = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(address.query).items()}
                yarn.asked.append((self.command, address.path, query))
                if yarn.active is not None:
                    self.send_response(307)
                    self.send_header("Location", yarn.active + self.path)
                    self.end_headers()
                    return
                status, text = yarn.answer or (200, json.dumps(of(query)))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def get(self, query: dict[str, str]) -> Any:
        known = self.application if query["applicationTags"] == TAG else None
        found = known is not None and ("states" not in query or known["state"] in query["states"].split(","))
        return {"apps": {"app": [known]} if found else None}

    def kill(self, _: dict[str, str]) -> Any:
        self.ended("KILLED", "KILLED")
        return {"state": "KILLED"}

    def ended(self, state: str, final_status: str, diagnostics: str = "") -> None:
        report = {"state": state, "finalStatus": final_status, "diagnostics": diagnostics}
        self.application = {"id": ID, "trackingUrl": f"http://rm/proxy/{ID}/", **report}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def yarn() -> Iterator[FakeYarn]:
    yarn = FakeYarn()
    yield yarn
    yarn.stop()


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds in place of minutes."""
    monkeypatch.setattr(triggers_delta_merge, "_SECONDS_BEFORE_EVENT", 0.0)
    monkeypatch.setattr(triggers_delta_merge, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(submitted_application, "SILENCE_SECONDS", 1.5)
    monkeypatch.setattr(ResourceManager, "unknown_seconds", 1.0)
    monkeypatch.setattr(submitted_application, "_SECONDS_TO_KILL", 1.0)
    monkeypatch.setattr(submitted_application, "_SECONDS_BETWEEN_TRIES", 0.1)


def submitted(yarn: FakeYarn) -> SubmittedApplication:
    mode = ClusterMode(
        result_path="hdfs:///results",
        application="airflow_delta_merge_me",
        submission=TAG,
        manager=ResourceManager(yarn.address, user="submitter"),
        waits=False,
    )
    return SubmittedApplication(mode, SparkApplication(ID))


def trigger(yarn: FakeYarn, **arguments: Any) -> DeltaMergeTrigger:
    """A trigger as another process has it: made of what the database keeps, which is JSON."""
    name, kept = DeltaMergeTrigger(started=submitted(yarn).to_dict(), **arguments).serialize()
    assert name == "airflow_delta_merge.triggers.delta_merge.DeltaMergeTrigger"
    return DeltaMergeTrigger(**json.loads(json.dumps(kept)))


def followed(follower: DeltaMergeTrigger) -> ApplicationEnd:
    return ApplicationEnd.from_dict(asyncio.run(anext(follower.run())).payload)


@pytest.mark.parametrize(
    ("state", "final_status", "diagnostics", "exit_code", "sentence"),
    [
        ("FINISHED", "SUCCEEDED", "", 0, "succeeded on YARN, but left no result"),
        ("FINISHED", "FAILED", "User application exited with status 1", 1, "exited with status 1) and left no result"),
        (
            "FAILED",
            "FAILED",
            "AM exited with 13.\nFor more see s3cret",
            1,
            "failed on YARN (AM exited with 13) and left",
        ),
        (
            "KILLED",
            "KILLED",
            f"{ID} was killed by user eve",
            1,
            "but not by this task (" + ID + " was killed by user eve",
        ),
    ],
)
def test_its_end_is_reported_once_it_has_ended(
    yarn: FakeYarn, state: str, final_status: str, diagnostics: str, exit_code: int, sentence: str
) -> None:
    application = submitted(yarn)
    assert application.follow() == [f"Spark application {ID} is RUNNING on YARN."]
    assert (application.follow(), application.end) == ([], None)
    yarn.ended(state, final_status, diagnostics)
    end = followed(trigger(yarn))
    assert (end.exit_code, end.outcome, end.timed_out) == (exit_code, None, False)
    assert end.application == SparkApplication(ID, f"http://rm/proxy/{ID}/")
    assert end.error is not None
    assert f"Spark application {ID} " in end.error
    assert sentence in end.error
    assert "s3cret" not in end.error, "the end of the driver's output is no matter of Airflow's database"
    assert {query["user.name"] for _, _, query in yarn.asked} == {"submitter"}, (
        "the triggerer's own user is another one"
    )


def test_a_resource_manager_that_is_away_for_a_while_is_asked_again(yarn: FakeYarn) -> None:
    application = submitted(yarn)
    application.follow()
    yarn.answer = (503, "starting")
    (said,) = application.follow()
    assert said.startswith(f"YARN's ResourceManager at {yarn.address} refused GET apps for submitter (HTTP Error 503")
    assert "Retrying for up to" in said
    assert (application.follow(), application.end) == ([], None), "it is said once a minute"
    yarn.answer = None
    assert application.follow() == ["YARN answers again."]
    yarn.answer = (200, "<html>")
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        application.follow()
        assert application.end is None, "its patience began anew"
    yarn.answer = None
    yarn.ended("FINISHED", "SUCCEEDED")
    application.follow()
    assert application.end is not None
    assert application.end.exit_code == 0


def test_one_that_stays_away_ends_the_patience(yarn: FakeYarn) -> None:
    follower = trigger(yarn)
    yarn.stop()
    begun = time.monotonic()
    end = followed(follower)
    assert time.monotonic() - begun >= 1.5
    assert end.error is not None
    assert end.error.startswith(f"The state of Spark application {ID} was unknown for ")
    assert "YARN's ResourceManager doesn't answer" in end.error
    assert "the next try of this task ends it first" in end.error
    assert end.another_try_helps


def test_an_application_that_yarn_has_forgotten(yarn: FakeYarn) -> None:
    application = submitted(yarn)
    kept, yarn.application = yarn.application, None
    assert application.follow() == [f"YARN doesn't know Spark application {ID}. Retrying for up to 1 seconds."]
    yarn.application = kept
    application.follow()
    time.sleep(1.0)
    yarn.application = None
    application.follow()
    assert application.end is None, "one that has just started may remember yet, so patience begins anew"
    end = followed(trigger(yarn))
    assert end.error is not None
    assert f"YARN no longer knows Spark application {ID}, and it left no result" in end.error


def test_a_server_that_is_no_resource_manager_is_an_error(yarn: FakeYarn) -> None:
    for answer in ('{"apps": [1]}', '{"apps": {"app": [{"name": "no id"}]}}', '{"apps": {"app": 1}}'):
        yarn.answer = (200, answer)
        with pytest.raises(ClusterManagerError, match="is not a YARN ResourceManager"):
            ResourceManager(yarn.address).find(TAG)


def test_a_standby_resource_manager_leads_to_the_active_one(yarn: FakeYarn) -> None:
    standby = FakeYarn()
    standby.active = yarn.address
    manager = ResourceManager(standby.address, user="submitter")
    assert manager.kill(TAG) == [ID]
    assert yarn.asked[-1] == ("PUT", f"/ws/v1/cluster/apps/{ID}/state", {"user.name": "submitter"})
    found = manager.find(TAG)
    assert found is not None
    assert found.was_killed
    standby.stop()


def test_only_applications_with_the_tag_are_killed_whatever_the_server_lists(yarn: FakeYarn) -> None:
    other = {"id": "application_1795322942133_0009", "state": "RUNNING", "applicationTags": f"{TAG}d,etl"}
    ended = {"id": "application_1795322942133_0002", "state": "FINISHED", "applicationTags": TAG}
    ours = {"id": ID, "state": "RUNNING", "applicationTags": f"etl,{TAG}"}
    yarn.get = lambda _: {"apps": {"app": [other, ended, ours]}}  # type: ignore[method-assign]
    assert ResourceManager(yarn.address, user="submitter").kill(TAG) == [ID]


def test_the_latest_of_several_is_meant() -> None:
    yarn = FakeYarn()
    try:
        apps = [{"id": f"application_1_{number}", "state": "RUNNING", "startedTime": number} for number in (1, 3, 2)]
        yarn.answer = (200, json.dumps({"apps": {"app": apps}}))
        found = ResourceManager(yarn.address).find(TAG)
    finally:
        yarn.stop()
    assert found is not None
    assert (found.id, found.has_ended) == ("application_1_3", False)


def test_the_result_goes_before_what_yarn_says(yarn: FakeYarn, tmp_path: Path) -> None:
    """Whatever became of the application, and whether YARN still knows it."""
    yarn.application = None
    begun = submitted(yarn)
    begun.cluster_mode = replace(begun.cluster_mode, result_path=tmp_path.as_uri())
    result = tmp_path / "airflow_delta_merge_me" / f"{TAG}.json"
    result.parent.mkdir()
    did = MergeResult(table="/t", version_read=0, version=1, executor="E", executor_reason="why")
    outcome = JobOutcome(merges=(MergeOutcome(target="t", result=did),))
    result.write_text(json.dumps(outcome.to_dict()))
    mask_secret("s3cret-of-yarn")
    lost = ApplicationEnd(error="YARN no longer knows it, says s3cret-of-yarn.", exit_code=1)
    finished = DeltaMergeHook().finish(begun, lost)
    assert (finished.outcome, finished.error, result.parent.exists()) == (outcome, None, False)
    finished = DeltaMergeHook().finish(begun, lost)
    assert (finished.outcome, finished.error) == (None, "YARN no longer knows it, says ***.")


class Ti:
    """What a trigger knows of its task."""

    dag_id, task_id, run_id, map_index = "d", "t", "r", -1


@pytest.mark.parametrize(("state", "kills"), [("deferred", False), ("failed", True), (None, True)])
def test_only_a_user_kills_it_not_a_change_of_triggerers(
    yarn: FakeYarn, state: str | None, kills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"r": {"t": state}} if state else {}
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(lambda **_: states))
    follower = trigger(yarn)
    follower._task_instance = Ti()  # type: ignore[assignment]
    asyncio.run(follower.on_kill())
    assert yarn.application is not None
    assert (yarn.application["state"] == "KILLED") is kills


def test_one_that_has_ended_is_left_alone(yarn: FakeYarn) -> None:
    yarn.ended("FINISHED", "SUCCEEDED")
    submitted(yarn).kill()
    assert {method for method, _, _ in yarn.asked} == {"GET"}


def test_a_kill_is_tried_again_and_does_not_hold_up_the_triggerer(yarn: FakeYarn) -> None:
    follower = trigger(yarn)
    yarn.answer = (503, "starting")
    threading.Timer(0.5, setattr, (yarn, "answer", None)).start()
    assert ticks_while(follower.on_kill()) >= 5
    assert yarn.application is not None
    assert yarn.application["state"] == "KILLED"


def test_a_resource_manager_that_does_not_answer_does_not_hold_up_the_triggerer(yarn: FakeYarn) -> None:
    """Each question waits for seconds here."""
    slow = yarn.get
    yarn.get = lambda query: (time.sleep(1), slow(query))[1]  # type: ignore[func-returns-value,method-assign]
    yarn.ended("FINISHED", "SUCCEEDED")
    assert ticks_while(anext(trigger(yarn).run())) >= 10


def ticks_while(work: Any) -> int:
    """How often something else has its turn meanwhile, every 50 ms at best."""

    async def both() -> int:
        ticks, task = 0, asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0.05)
            ticks += 1
        await task
        return ticks

    return asyncio.run(both())


def test_its_time_is_over(yarn: FakeYarn) -> None:
    follower = trigger(yarn, deadline=time.time() - 1)
    yarn.answer = (503, "starting")
    threading.Timer(0.4, setattr, (yarn, "answer", None)).start()
    end = followed(follower)
    assert (end.timed_out, end.application) == (True, SparkApplication(ID))
    assert yarn.application is not None
    assert yarn.application["state"] == "KILLED"


@pytest.mark.parametrize("provider", [True, False])
def test_without_access_to_kubernetes_the_trigger_reports_and_warns(
    provider: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not provider:
        monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes.hooks.kubernetes", None)
    sentence = (
        "The connection 'gone' gives no access" if provider else "A merge on Kubernetes needs Airflow's Kubernetes"
    )
    mode = ClusterMode(
        result_path="file:///results",
        application="airflow_delta_merge_me",
        submission=TAG,
        manager=KubernetesNamespace(namespace="spark", conn_id="gone"),
        waits=False,
    )
    follower = DeltaMergeTrigger(started=SubmittedApplication(mode).to_dict())
    end = followed(follower)
    assert end.error is not None
    assert sentence in end.error
    assert "the next try of this task ends it first" in end.error
    asyncio.run(follower.on_kill())
    assert f"The Spark application could not be ended: {sentence}" in capsys.readouterr().out
