"""The pages of a table's merges in Airflow's API server, by HTTP, with Airflow's own users and database."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.tables import commit, create_table
from tests.airflow.view_database import Database
from tests.history.test_table_history import RECORD, RESULT, log_of, merge_commit

FORBIDDEN = "secret_of_others"
SQL = "MERGE INTO t USING (SELECT 1) s ON s.id < t.id"


@pytest.fixture(scope="module")
def api(airflow_home: Path) -> Iterator[TestClient]:
    """Airflow's API server with the plugin that it has found itself."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "tests.airflow.view_auth.AuthManagerByDag")
        purge_cached_app()
        yield TestClient(create_app(apps="core"), raise_server_exceptions=True)
        purge_cached_app()


@pytest.fixture
def database(airflow_home: Path) -> Iterator[Database]:
    """Rows that are gone after the test."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    with create_session() as session:
        yield Committing(session)
    with create_session() as session:
        for model in (AssetEvent, AssetModel, TaskInstance, DagRun, DagModel, DagBundleModel):
            session.query(model).delete()


class Committing(Database):
    """Commits each row, so that the API server sees it."""

    def merged(self, *args: Any, **more: Any) -> dict[str, Any]:
        key = super().merged(*args, **more)
        self.session.commit()
        return key


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A merge by load.merge in run r1, then another writer's commit."""
    path = create_table(tmp_path / "orders")
    merge_commit(path, 1)
    commit(path, "OPTIMIZE")
    return path


def token(api: TestClient, user: str = "viewer", role: str | None = "VIEWER") -> dict[str, str]:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    signed = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role=role, teams=[]))
    return {"Authorization": f"Bearer {signed}"}


def get(api: TestClient, path: str, user: str = "viewer", **query: Any) -> str:
    answer = api.get(f"/delta_merge/{path}", params=query, headers=token(api, user))
    assert answer.status_code == 200, answer.text
    return answer.text


def text(html: str) -> str:
    """What a person reads."""
    return " ".join(unescape(re.sub(r"<(script|style)>.*?</\1>|<[^>]*>", " ", html, flags=re.DOTALL)).split())


PATHS = ["", "table?location=/x", "merge?location=/x&version=1", "task_instance?dag_id=load&run_id=r1&task_id=merge"]


@pytest.mark.parametrize("path", PATHS)
def test_who_is_not_signed_in_or_has_no_rights_sees_nothing(
    api: TestClient, database: Database, table: Path, path: str
) -> None:
    database.merged(table, "load", event=True)
    path = path.replace("/x", str(table))
    for headers, code in (({}, 401), (token(api, "nobody", None), 403), ({"Authorization": "Bearer x"}, 403)):
        answer = api.get(f"/delta_merge/{path}", headers=headers)
        assert (answer.status_code, "orders" in answer.text) == (code, False)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_nothing_can_be_written(api: TestClient, path: str, method: str) -> None:
    assert getattr(api, method)(f"/delta_merge/{path}", headers=token(api, "admin", "ADMIN")).status_code == 405


@pytest.mark.parametrize("recorded_by", [{"xcom": True}, {"xcom": False, "event": True}, {"xcom": True, "event": True}])
def test_a_table_is_listed_once_by_its_xcoms_or_its_asset(
    api: TestClient, database: Database, table: Path, recorded_by: dict[str, bool]
) -> None:
    database.merged(table, "load", **recorded_by)
    html = get(api, "")
    assert html.count('<tr><th scope="row">') == 1
    assert f"{table} {table} load.merge 1" in text(html)


def test_a_table_of_many_merges_is_listed_by_its_asset_at_the_location_of_its_result(
    api: TestClient, database: Database, table: Path
) -> None:
    key = database.task_instance("load", "merge", "r1", conn_id="spark_default")
    results = [replace(RESULT, table=f"spark_catalog.{name}", location=f"file:{table}") for name in ("a", "b")]
    results[1] = replace(results[1], location="file:/elsewhere")
    database.xcom(key, results)
    database.event(key, replace(results[0], version=1), "a")
    database.session.commit()
    assert f"spark_catalog.a {table} load.merge 1" in text(get(api, ""))


def test_users_see_the_tables_of_the_dags_that_they_may_read(
    api: TestClient, database: Database, table: Path, tmp_path: Path
) -> None:
    database.merged(table, "load", event=True)
    hidden = create_table(tmp_path / FORBIDDEN)
    database.merged(hidden, "payroll", event=True)
    assert FORBIDDEN in get(api, "")
    listed = get(api, "", "seller")
    assert ("orders" in listed, FORBIDDEN in listed, "payroll" in listed) == (True, False, False)
    for path, query in (("table", {}), ("merge", {"version": 0})):
        answer = api.get(
            f"/delta_merge/{path}", params={"location": str(hidden), **query}, headers=token(api, "seller")
        )
        assert (answer.status_code, FORBIDDEN in answer.text) == (404, False)
    of_task = {"dag_id": "payroll", "run_id": "r1", "task_id": "merge"}
    assert api.get("/delta_merge/task_instance", params=of_task, headers=token(api, "seller")).status_code == 403


def test_who_may_not_read_xcoms_and_task_instances_sees_what_assets_tell(
    api: TestClient, database: Database, table: Path
) -> None:
    database.merged(table, "load")
    assert "orders" not in get(api, "", "auditor")
    database.merged(table, "load", "r2", xcom=False, event=True)
    assert "orders" in get(api, "", "auditor")
    html = get(api, "merge", "auditor", location=table, version=1)
    assert ("MERGE INTO" in html, "dags/load/runs" in html) == (False, False)


def test_of_another_dags_merge_into_a_shared_table_only_the_numbers_are_shown(
    api: TestClient, database: Database, table: Path
) -> None:
    task = replace(RECORD.identity.task_instance, dag_id="payroll", run_id=FORBIDDEN)  # type: ignore[type-var]
    identity = replace(RECORD.identity, task_instance=task, application_id="airflow:/payroll/merge/r/-1")
    merge_commit(table, 3, metadata=replace(RECORD, identity=identity).to_user_metadata())
    database.merged(table, "load")
    database.merged(table, "payroll", FORBIDDEN)
    for path, query in (("table", {}), ("merge", {"version": 3})):
        assert "payroll" in get(api, path, location=table, **query)
        html = get(api, path, "seller", location=table, **query)
        assert ("payroll" in html, FORBIDDEN in html) == (False, False)
        assert "a task that is not shown to you" in html


@pytest.mark.parametrize(
    ("extra", "is_shown"),
    [({}, True), ({"allowed_locations": ["{tmp}"]}, True), ({"allowed_locations": ["/elsewhere"]}, False),
     ({"allowed_locations": "no list"}, False), (["no object"], False)],
)  # fmt: skip
def test_what_the_connection_forbids_is_not_shown(
    api: TestClient,
    database: Database,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    extra: Any,
    is_shown: bool,
) -> None:
    connection = json.dumps({"conn_type": "delta_merge", "host": "local", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection.replace("{tmp}", str(tmp_path)))
    database.merged(table, "load", event=True, conn_id="lake")
    html = get(api, "")
    assert ("orders" in html, "Not shown: 1 more" in html) == (is_shown, not is_shown)
    answer = api.get("/delta_merge/table", params={"location": str(table)}, headers=token(api))
    assert answer.status_code == (200 if is_shown else 404)


def test_a_table_whose_connection_is_gone_is_not_shown(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load", conn_id="gone")
    html = get(api, "")
    assert ("orders" in html, "Not shown: 1 more" in html) == (False, True)


def test_a_tables_page_has_the_numbers_of_its_log_and_leads_to_the_try(
    api: TestClient, database: Database, table: Path
) -> None:
    database.merged(table, "load")
    html = get(api, "table", location=table)
    assert "1 merge 3 2 0 90 0 / 5 / 0 700 B 1.2 s MERGE 2026-01-01 00:00:00 load.merge r1 try 2" in text(html)
    assert "2 other writer - - - - - - - OPTIMIZE" in text(html)
    assert 'href="../dags/load/runs/r1/tasks/merge?try_number=2"' in html


def test_a_run_that_airflow_no_longer_has_is_no_link(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load", "r9")
    assert "load.merge r1 try 2" in text(get(api, "table", location=table))
    assert "runs/r1" not in get(api, "table", location=table)


def test_runs_without_a_commit_are_marked(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load")
    database.task_instance("load", "merge", "r2", state="failed")
    database.task_instance("load", "merge", "r3", state="skipped")
    database.task_instance("load", "other", "r3", state="failed")
    database.session.commit()
    shown = text(get(api, "table", location=table)).partition("Runs without a commit")[2]
    assert re.findall(r"load\.(\w+ r\d) (\w+)", shown) == [("merge r3", "skipped"), ("merge r2", "failed")]


def test_a_merge_that_a_guard_stopped_says_so(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load")
    key = database.task_instance("load", "merge", "r2", state="failed")
    database.said_by_guard(key, "The merge was stopped: <5> rows.")
    database.session.commit()
    row = "load.merge r2 stopped by a guard 1 2026-01-01 00:00:00 The merge was stopped: <5> rows."
    assert row in text(get(api, "table", location=table))
    of_task = {"dag_id": "load", "run_id": "r2", "task_id": "merge"}
    assert "A guard stopped this merge. The merge was stopped: <5> rows." in text(get(api, "task_instance", **of_task))


def test_what_a_guard_said_is_for_those_who_may_read_xcoms(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load", event=True)
    key = database.task_instance("load", "merge", "r2", state="failed")
    database.said_by_guard(key, FORBIDDEN)
    database.session.commit()
    of_task = {"dag_id": "load", "run_id": "r2", "task_id": "merge"}
    for page, query in (("table", {"location": table}), ("task_instance", of_task)):
        assert FORBIDDEN in get(api, page, **query)
        assert FORBIDDEN not in get(api, page, "auditor", **query)


def test_a_merges_page_has_its_statement_strategy_and_metrics(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load")
    shown = text(get(api, "merge", location=table, version=1))
    assert f"Statement As rendered for the newest try of this run. MERGE INTO {table}" in shown
    assert "Strategy ClassicMergeExecutor: because" in shown
    assert "numTargetRowsCopied 90" in shown
    assert "rows inserted 3" in shown


def test_a_task_instance_leads_to_its_commit(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load")
    of_task = {"dag_id": "load", "task_id": "merge", "map_index": "{MAP_INDEX}"}
    assert f"{table}, version 1" in text(get(api, "task_instance", run_id="r1", **of_task))
    assert "Tables of this task" in text(get(api, "task_instance", run_id="r2", **of_task))
    assert "has merged into no Delta table" in get(api, "task_instance", run_id="r1", dag_id="x", task_id="y")


def test_any_task_instance_has_a_page_whatever_it_returned(api: TestClient, database: Database) -> None:
    from airflow.models.xcom import XComModel

    key = database.task_instance("load", "other", "r1")
    for returned in ('{"__classname__": "some.Thing", "__version__": 1, "__data__": {}}', "text", ["a"], 7):
        XComModel.set("return_value", returned, **key, session=database.session)
        row = database.session.query(XComModel).filter_by(task_id="other", key="return_value").one()
        row.value = returned  # as Airflow's API stores what the task's process has made JSON of
        database.session.commit()
        assert "has merged into no Delta table" in get(api, "task_instance", **{**key, "map_index": "-1"})
    assert "has merged into no Delta table" in get(api, "task_instance", **{**key, "map_index": "9" * 30})


def test_names_are_shown_as_they_are(api: TestClient, database: Database, tmp_path: Path) -> None:
    name = "<script>alert(1)</script>'\"é`"
    path = create_table(tmp_path / "<script>" / "'é`")
    database.merged(path, "load", name=name, event=False)
    for html in (get(api, ""), get(api, "table", location=path), get(api, "merge", location=path, version=0)):
        assert html.count("<script") == 1
        assert name in unescape(html)
    (href,) = re.findall(r'<a href="(table[^"]*)"', get(api, ""))
    assert name in text(api.get(f"/delta_merge/{unescape(href)}", headers=token(api)).text)


def test_a_vanished_a_broken_and_an_unreachable_table_are_sentences(
    api: TestClient, database: Database, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.merged(table, "load")
    log_of(table, 2).write_text("{")
    assert "The log can't be shown. The log of" in text(get(api, "table", location=table))
    assert "The commit can't be shown." in text(get(api, "merge", location=table, version=1))
    shutil.rmtree(table)
    assert "There is no Delta table at" in text(get(api, "table", location=table))
    assert "There is no Delta table at" in text(get(api, "merge", location=table, version=1))

    extra = {"endpoint_url": "http://127.0.0.1:1", "region_name": "us-east-1"}
    store = {"conn_type": "aws", "login": "key", "password": "of-the-store", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(store))
    lake = {"conn_type": "delta_merge", "host": "local", "extra": {"aws_conn_id": "store"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    key = database.task_instance("load", "far", "r1", conn_id="lake")
    database.xcom(key, replace(RESULT, location="s3a://lake/t", version=1))
    database.session.commit()
    html = get(api, "table", location="s3a://lake/t")
    assert "The storage of s3a://lake/t can't be read" in text(html)
    assert "of-the-store" not in html


def test_commits_that_are_not_there_are_sentences(api: TestClient, database: Database, table: Path) -> None:
    database.merged(table, "load")
    assert "no commit of version 9: the newest is 2" in text(get(api, "merge", location=table, version=9))
    for query in ({"version": -1}, {"version": "x"}, {}):
        answer = api.get("/delta_merge/merge", params={"location": str(table), **query}, headers=token(api))
        assert answer.status_code == 422


def test_pages_of_many_commits_follow_each_other(api: TestClient, database: Database, tmp_path: Path) -> None:
    path = create_table(tmp_path / "long")
    for version in range(1, 250):
        merge_commit(path, version)
    database.merged(path, "load")
    for _ in range(2):  # from the log, and from what is kept of it
        html = get(api, "table", location=path)
        assert re.findall(r'version=(\d+)">\d+</a></th>', html) == [str(version) for version in range(249, 149, -1)]
    (older,) = re.findall(r'<a href="(table[^"]*before=150)"', html)
    next_page = api.get(f"/delta_merge/{unescape(older)}", headers=token(api)).text
    assert re.findall(r'version=(\d+)">\d+</a></th>', next_page) == [str(version) for version in range(149, 49, -1)]


def test_pages_are_framed_by_airflow_only_and_load_nothing(api: TestClient, database: Database) -> None:
    answer = api.get("/delta_merge/", headers=token(api))
    assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert api.get("/delta_merge/openapi.json", headers=token(api)).status_code == 404


def test_airflows_ui_lists_the_pages(api: TestClient) -> None:
    plugins = api.get("/api/v2/plugins?limit=100", headers=token(api, "admin", "ADMIN")).json()["plugins"]
    (plugin,) = [each for each in plugins if each["name"] == "delta_merge"]
    assert [(each["destination"], each["href"].split("?")[0]) for each in plugin["external_views"]] == [
        ("nav", "delta_merge/"),
        ("task_instance", "delta_merge/task_instance"),
    ]
    assert plugin["fastapi_apps"][0]["url_prefix"] == "/delta_merge"


def test_the_plugin_is_cheap_to_load_and_nothing_before_airflow_3_1(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    program = (
        "import sys, airflow_delta_merge.view.plugin as p; p.DeltaMergePlugin().external_views; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"airflow_delta_merge.view.app", "airflow_delta_merge.view.pages", "deltalake", "pyspark"} & {*loaded}

    from airflow_delta_merge.view import plugin

    monkeypatch.setattr(plugin, "AIRFLOW_V_3_1_PLUS", False)
    assert (plugin.DeltaMergePlugin().fastapi_apps, plugin.DeltaMergePlugin().external_views) == ([], [])


def test_a_tasks_rendered_fields_have_what_the_pages_need() -> None:
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

    merge = DeltaMergeOperator(task_id="merge", sql=SQL, conn_id="{{ where }}", name="merge")
    merge.render_template_fields({"where": "lake"})  # type: ignore[typeddict-unknown-key]
    rendered = {name: getattr(merge, name) for name in merge.template_fields}
    assert (rendered["conn_id"], rendered["sql"], merge.hook.conn_id) == ("lake", SQL, "lake")
