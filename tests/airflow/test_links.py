"""Links from a merge's task: where they lead, when there are none, and what Airflow keeps of them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_delta_merge.config import when_matched_update_all
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.job.session import describe_application
from airflow_delta_merge.launch.spark_application import SparkApplication
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.links.delta_merge import CommitLink, SparkApplicationLink, commit_address, history_page
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.task_exceptions import DeltaMergeException

APPLICATION = SparkApplication(id="app-1", ui_url="http://driver:4040", event_log=True)
RESULT = MergeResult(table="/lake/a b", version_read=3, version=4, executor="", executor_reason="")
MERGE: dict[str, Any] = {"target": "t", "source": "s", "on": ["id"], "clauses": [when_matched_update_all()]}


@pytest.mark.parametrize("ui_url", [None, "http://driver:4040"])
@pytest.mark.parametrize("event_log", [False, True])
def test_what_the_job_tells_is_understood(ui_url: str | None, event_log: bool) -> None:
    conf = {"spark.eventLog.enabled": "true"} if event_log else {}
    context = SimpleNamespace(applicationId="local-1", uiWebUrl=ui_url, getConf=lambda: conf)
    line = f"Merge: {describe_application(SimpleNamespace(sparkContext=context))}\n"  # type: ignore[arg-type]
    assert SparkApplication.from_log_line(line) == SparkApplication("local-1", ui_url, event_log)


@pytest.mark.parametrize("line", ["", "Merge: Read the source: 3 rows", "Spark application local-1"])
def test_other_lines_tell_of_no_application(line: str) -> None:
    assert SparkApplication.from_log_line(line) is None


def test_an_application_is_noticed_once_and_trouble_with_it_stops_nothing() -> None:
    seen: list[SparkApplication] = []

    def notice(application: SparkApplication) -> None:
        seen.append(application)
        raise RuntimeError("Airflow's API is away.")

    lines = ["Merge: Spark application local-1\n", "Merge: Spark application local-2\n"]
    assert list(SparkSubmit(on_application=notice)._process_lines(iter(lines))) == lines
    assert seen == [SparkApplication("local-1")]


@pytest.mark.parametrize(
    ("server", "application", "page"),
    [
        ("http://history:18080", APPLICATION, "http://history:18080/history/app-1"),
        ("https://spark.example/history-server/", APPLICATION, "https://spark.example/history-server/history/app-1"),
        (None, APPLICATION, ""),
        ("http://history:18080", SparkApplication("app-1", "http://driver:4040"), ""),  # it never hears of it
    ],
    ids=[
        "a history server",
        "a history server below a path",
        "no history server",
        "an application that logs no events",
    ],
)
def test_history_page(server: str | None, application: SparkApplication, page: str) -> None:
    assert history_page(server, application) == page


def test_commit_address() -> None:
    pattern = "https://catalog.example/tables/{table}?version={version}"
    assert commit_address(pattern, RESULT) == "https://catalog.example/tables/%2Flake%2Fa%20b?version=4"
    assert commit_address(None, RESULT) == ""
    nothing = MergeResult(table="t", version_read=3, version=None, executor="", executor_reason="")
    assert commit_address(pattern, nothing) == ""


ALL_KEYS = (SparkApplicationLink().xcom_key, CommitLink().xcom_key)


class Ti:
    """A task instance that remembers what was pushed."""

    def __init__(self) -> None:
        self.pushed: dict[str, str] = {}

    def xcom_push(self, key: str, value: str) -> None:
        self.pushed[key] = value


def run(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], error: Exception | None = None) -> tuple[str, str, str]:
    """Run the operator with a hook that only tells of an application: the links while it runs, and at its end."""

    def merge(self: DeltaMergeHook, *_: Any, on_application: Any, **__: Any) -> MergeResult:
        on_application(APPLICATION)
        if error:
            raise error
        return RESULT

    monkeypatch.setattr(DeltaMergeHook, "merge", merge)
    connection = {"conn_type": "spark", "host": "local[1]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LINKED", json.dumps(connection))
    operator = DeltaMergeOperator(task_id="merge", conn_id="linked", exactly_once=False, asset_events="never", **MERGE)
    ti: Any = Ti()
    try:
        operator.execute({"ti": ti})  # type: ignore[typeddict-item]
    except DeltaMergeException:
        assert error is not None
    at_the_end = [link.get_link(operator, ti_key=ti) for link in (SparkApplicationLink(), CommitLink())]
    # Airflow 3 keeps an XCom for each of these: none without an address, but to take the place of one that was shown.
    kept = [link.xcom_key for link in operator.operator_extra_links]
    assert kept == [key for key in ALL_KEYS if operator.link_addresses.get(key) or key in ti.pushed]
    return (ti.pushed.get(SparkApplicationLink().xcom_key, ""), *at_the_end)


HISTORY = {"history_server_url": "http://history:18080"}


def test_links_without_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's own UI is gone when the merge is done."""
    assert run(monkeypatch, {}) == ("http://driver:4040", "", "")


def test_links_with_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    links = run(monkeypatch, HISTORY | {"commit_url": "https://catalog.example/{table}/{version}"})
    page, commit = "http://history:18080/history/app-1", "https://catalog.example/%2Flake%2Fa%20b/4"
    assert links == ("http://driver:4040", page, commit)


def test_a_merge_that_failed_links_to_its_application(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = HISTORY | {"commit_url": "https://catalog.example"}
    links = run(monkeypatch, extra, DeltaMergeException("It failed."))
    assert links == ("http://driver:4040", "http://history:18080/history/app-1", "")


def test_what_is_no_web_address_gives_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"history_server_url": 18080, "commit_url": "javascript:alert(1)"}
    assert run(monkeypatch, wrong) == ("http://driver:4040", "", "")


def test_an_application_without_ui_is_not_linked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the worker itself, where the UI is off."""
    monkeypatch.setitem(globals(), "APPLICATION", SparkApplication("local-1"))
    assert run(monkeypatch, HISTORY) == ("", "", "")


def test_a_task_that_never_ran_has_no_links() -> None:
    operator = DeltaMergeOperator(task_id="merge", **MERGE)
    assert [link.get_link(operator, ti_key=None) for link in operator.operator_extra_links] == ["", ""]  # type: ignore[arg-type]


def test_airflow_keeps_the_links_of_plain_and_mapped_tasks() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG("linked", schedule=None) as dag:
        DeltaMergeOperator(task_id="plain", **MERGE)
        mapped = {name: value for name, value in MERGE.items() if name != "source"}
        DeltaMergeOperator.partial(task_id="mapped", **mapped).expand(source=["a", "b"])
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    for task_id in ("plain", "mapped"):
        links = read.get_task(task_id).operator_extra_link_dict
        assert {name: link.xcom_key for name, link in links.items()} == {
            "Commit": CommitLink().xcom_key,
            "Spark application": SparkApplicationLink().xcom_key,
        }
