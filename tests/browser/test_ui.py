"""What a person sees of the provider in Airflow's UI, by a Chromium without a window."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from airflow_delta_merge import __version__
from airflow_delta_merge.history.table_history import read_history
from airflow_delta_merge.provider import get_provider_info
from scripts.real_airflow import RealAirflow, free_port
from tests.browser.accessibility import check_accessible
from tests.browser.conftest import answers, open_table, wait

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Screenshot

pytestmark = pytest.mark.slow

CONNECTION_TYPE = get_provider_info()["connection-types"][0]


def open_task(airflow: RealAirflow, page: Page, dag_id: str, tab: str) -> None:
    """Go to a tab of the merge in the DAG's last run."""
    run_id = airflow.call(f"/api/v2/dags/{dag_id}/dagRuns?order_by=-id")["dag_runs"][0]["dag_run_id"]
    page.goto(f"{airflow.url}/dags/{dag_id}/runs/{quote(run_id)}/tasks/merge")
    page.get_by_role("link", name=tab, exact=True).click()


def test_the_providers_page_lists_the_provider_with_its_version(airflow: RealAirflow, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto(f"{airflow.url}/providers")
    row = page.get_by_role("row").filter(has_text="airflow-provider-delta-merge")
    expect(row.get_by_role("cell")).to_have_text(
        ["airflow-provider-delta-merge", __version__, get_provider_info()["description"].rstrip(".")]
    )


def test_the_connection_form_has_the_providers_fields_and_keeps_what_is_filled_in(
    airflow: RealAirflow, page: Page, screenshot: Screenshot
) -> None:
    from playwright.sync_api import expect

    page.goto(f"{airflow.url}/connections")
    page.get_by_role("button", name="Add Connection").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Connection ID").fill("by_hand")
    form.get_by_role("combobox", name="Connection Type").fill("delta")
    page.get_by_role("option", name=CONNECTION_TYPE["hook-name"], exact=True).click()
    behaviour = CONNECTION_TYPE["ui-field-behaviour"]
    master = form.get_by_label(behaviour["relabeling"]["host"], exact=True)
    expect(master).to_have_attribute("placeholder", behaviour["placeholders"]["host"])
    for hidden in behaviour["hidden-fields"]:
        expect(form.get_by_label(hidden.capitalize(), exact=True)).to_have_count(0)
    master.fill("local[2]")

    form.get_by_role("button", name="Extra Fields", exact=True).click()
    fields = {
        name: form.get_by_role("group").filter(has=page.get_by_text(field["label"], exact=True))
        for name, field in CONNECTION_TYPE["conn-fields"].items()
    }
    for name, field in CONNECTION_TYPE["conn-fields"].items():
        expect(fields[name]).to_contain_text(field["description"])
    expect(fields["deploy-mode"].get_by_role("textbox")).to_have_value("client")
    fields["namespace"].get_by_role("textbox").fill("staging")
    fields["history_server_url"].get_by_role("textbox").fill("http://history:18080")
    fields["deploy-mode"].scroll_into_view_if_needed()
    screenshot(page, "connection_form")
    form.get_by_role("button", name="Save").click()

    row = page.get_by_role("row").filter(has_text="by_hand")
    expect(row).to_contain_text("local[2]")
    kept = wait(airflow, lambda: airflow.call("/api/v2/connections/by_hand"))
    extra = {name: value for name, value in json.loads(kept["extra"]).items() if value is not None}
    assert (kept["conn_type"], kept["host"]) == ("delta_merge", "local[2]")
    assert extra == {"deploy-mode": "client", "namespace": "staging", "history_server_url": "http://history:18080"}
    given = {name: kept[name] for name in ("connection_id", "conn_type", "host", "extra")}
    tested = airflow.call("/api/v2/connections/test", given)
    assert (tested["status"], "Spark runs on the worker itself" in tested["message"]) == (True, True), tested


def test_the_test_button_of_a_connection_tells_what_is_wrong_with_it(airflow: RealAirflow, page: Page) -> None:
    from playwright.sync_api import expect

    nobody = {"connection_id": "nobody", "conn_type": "delta_merge", "host": "spark://127.0.0.1", "port": free_port()}
    wait(airflow, lambda: airflow.call("/api/v2/connections", nobody))
    page.goto(f"{airflow.url}/connections")
    page.get_by_role("row").filter(has_text="nobody").get_by_role("button", name="Test Connection").click()
    message = page.get_by_text(re.compile(rf"spark://127\.0\.0\.1:{nobody['port']}.*Tested on", re.DOTALL))
    expect(message).to_be_visible()


@pytest.mark.xfail(reason="Airflow 3.3.2 tests no connection without a port: apache/airflow#73298", strict=True)
def test_the_test_button_of_a_connection_without_a_port_tells_what_was_found(airflow: RealAirflow, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto(f"{airflow.url}/connections")
    with page.expect_response("**/api/v2/connections/test") as answer:
        page.get_by_role("row").filter(has_text="lake").get_by_role("button", name="Test Connection").click()
    assert answer.value.status == 200
    expect(page.get_by_text("Spark runs on the worker itself")).to_be_visible()


def test_the_rendered_templates_show_the_statement_clause_by_clause(
    airflow: RealAirflow, folder: Path, page: Page, screenshot: Screenshot
) -> None:
    from playwright.sync_api import expect

    open_task(airflow, page, "orders_upsert", "Rendered Templates")
    row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="statement", exact=True))
    expect(row).to_contain_text("MERGE INTO")
    # Each line is a number and pieces of text in colours.
    pieces = "lines => lines.map(line => [...line.childNodes].slice(1).map(piece => piece.textContent).join(''))"
    lines = [line.rstrip("\n") for line in row.locator("code > span").evaluate_all(pieces)]
    assert [line for line in lines if line.startswith(("MERGE", "USING", "ON", "WHEN", ")"))] == [
        f"MERGE INTO delta.`{folder}/orders` AS `target`",
        "USING (",
        ") AS `source`",
        "ON (",
        ")",
        "WHEN MATCHED AND (",
        ") THEN DELETE",
        "WHEN MATCHED AND (",
        ") THEN UPDATE SET *",
        "WHEN NOT MATCHED AND (",
        ") THEN INSERT *",
    ]
    screenshot(page, "rendered_templates")


def test_the_log_begins_with_the_business_folds_the_statement_and_ends_with_a_table(
    airflow: RealAirflow, folder: Path, page: Page, screenshot: Screenshot
) -> None:
    from playwright.sync_api import expect

    page.set_viewport_size({"width": 1280, "height": 1100})
    open_task(airflow, page, "orders_upsert", "Logs")
    expect(page.get_by_text(f"Merge into delta.`{folder}/orders`")).to_be_visible()
    expect(page.get_by_text(re.compile(r"rows +inserted +9 +files +touched +0"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"Statement\s*$")).first).to_be_visible()
    expect(page.get_by_text(re.compile("MERGE INTO")).first).not_to_be_visible()  # until a click unfolds it
    expect(page.get_by_text("NativeCodeLoader")).to_have_count(0)
    screenshot(page, "merge_log")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name=re.compile(r"tasks.merge.plugin.delta_merge$")).click()
    view = opened.value.frame_locator("iframe[title='Delta merges']")
    expect(view.get_by_role("heading", name=f"{folder}/orders, version 1")).to_be_visible()


def test_a_merge_that_has_ended_links_to_the_history_server_and_its_commit(
    airflow: RealAirflow, folder: Path, files: str, history_server: str, page: Page, screenshot: Screenshot
) -> None:
    from playwright.sync_api import expect

    open_task(airflow, page, "orders_upsert", "Details")
    expect(page.get_by_role("heading", name="Extra Links")).to_be_visible()
    screenshot(page, "extra_links")

    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Spark application").click()
    assert opened.value.url.startswith(f"{history_server}/history/local-")
    expect(opened.value).to_have_title(re.compile(r"^orders_upsert\.merge - Spark Jobs"))

    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Commit").click()
    table = quote(f"file:{folder}/orders", safe="")
    assert opened.value.url == f"{files}/orders/_delta_log/?table={table}&version=1"
    expect(opened.value.get_by_role("link", name=f"{1:020}.json", exact=True)).to_be_visible()


@pytest.fixture
def endless_merge(airflow: RealAirflow) -> Iterator[None]:
    """A merge that runs, and that no later test has to wait for."""
    runs = "/api/v2/dags/orders_without_end/dagRuns"
    wait(airflow, lambda: airflow.call(runs, {"dag_run_id": "runs", "logical_date": None}))
    merge = f"{runs}/runs/taskInstances/merge"
    links = wait(airflow, lambda: _links(airflow, merge))
    yield
    wait(airflow, lambda: airflow.call(merge, {"new_state": "failed"}, method="PATCH"))
    wait(airflow, lambda: not answers(links["Spark application"]))


def test_a_merge_that_runs_links_to_sparks_own_ui(
    airflow: RealAirflow, endless_merge: None, history_server: str, page: Page
) -> None:
    from playwright.sync_api import expect

    open_task(airflow, page, "orders_without_end", "Details")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Spark application").click()
    assert not opened.value.url.startswith(history_server)
    expect(opened.value).to_have_title(re.compile(r"^orders_without_end\.merge - Spark Jobs"))


def test_the_assets_graph_shows_the_table_between_the_dag_that_merges_and_the_one_that_waits(
    airflow: RealAirflow, folder: Path, page: Page, screenshot: Screenshot
) -> None:
    from playwright.sync_api import expect

    uri = f"delta://file{folder}/orders"
    page.goto(f"{airflow.url}/assets")
    page.get_by_role("link", name=uri, exact=True).click()
    graph = page.get_by_role("application")
    for name in ("orders_upsert", uri, "orders_report"):
        expect(graph.get_by_role("link", name=name, exact=True)).to_be_visible()
    ways = [way.get_attribute("aria-label") for way in graph.get_by_role("group", name="Edge from").all()]
    asset = wait(airflow, lambda: airflow.call(f"/api/v2/assets?uri_pattern={quote(uri)}")["assets"][0])
    node = f"asset:{asset['id']}"
    assert {
        "Edge from dag:orders_upsert to asset-alias:delta_merge",
        f"Edge from asset-alias:delta_merge to {node}",
        f"Edge from {node} to dag:orders_report",
    } <= set(ways)
    # The merge's event, its result, and the run that it made.
    events = page.get_by_role("heading", name="1 Asset Event").locator("..")
    expect(events.get_by_role("link", name="orders_upsert")).to_be_visible()
    expect(events.get_by_role("link", name="orders_report")).to_be_visible()
    screenshot(page, "asset_graph")


def test_the_merges_of_a_table_are_in_the_navigation_and_lead_to_their_task(
    airflow: RealAirflow, folder: Path, page: Page, said: list[str], screenshot: Screenshot
) -> None:
    from playwright.sync_api import expect

    view = open_table(airflow, page, folder / "orders")
    expect(view.get_by_role("img", name="Rows changed by merge")).to_be_visible()
    newest = view.get_by_role("region", name="Commits").get_by_role("row").nth(1).get_by_role("cell")
    merged = read_history(str(folder / "orders")).commits[0]
    expect(newest.nth(1)).to_have_text(str(merged.rows.inserted))
    page.set_viewport_size({"width": 1280, "height": 1100})
    check_accessible(view)

    for theme in ("dark", "light"):
        page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        page.reload()
        expect(view.locator("html")).to_have_attribute("data-theme", theme)
        expect(view.get_by_role("img", name="Rows changed by merge")).to_be_visible()
        check_accessible(view)

    view.get_by_role("region", name="Commits").get_by_role("link", name="1", exact=True).click()
    expect(view.get_by_role("region", name="Statement")).to_contain_text("MERGE INTO")
    check_accessible(view)
    screenshot(page, "view_merge")
    view.get_by_role("link", name="orders_upsert.merge").click()
    expect(page).to_have_url(re.compile(r"/dags/orders_upsert/runs/[^/]+/tasks/merge"))
    page.get_by_role("link", name="Delta merges", exact=True).click()
    expect(view.get_by_role("heading", name=f"{folder}/orders, version 1")).to_be_visible()


def _links(airflow: RealAirflow, task: str) -> dict[str, Any] | None:
    links = airflow.call(f"{task}/links")["extra_links"]
    return dict(links) if links.get("Spark application") else None
