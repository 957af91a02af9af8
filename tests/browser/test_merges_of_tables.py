"""The pages of a table's merges in Airflow's UI: real flights day by day, and 10,000 commits."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from deltalake import DeltaTable

from scripts.real_airflow import RealAirflow, free_port
from tests.browser.accessibility import check_accessible
from tests.browser.conftest import answers, open_table, state_of_run, wait
from tests.browser.dags.december import FIRST_DAY, LAST_DAY
from tests.history.test_table_history import merge_commit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Page

    from tests.browser.conftest import Screenshot

pytestmark = pytest.mark.slow

COUNTS = ("Inserted", "Updated", "Deleted", "Copied")
ON_A_PAGE = 100
#: Prints the token of a user with a role; without one, they have no rights.
TOKEN = """
import sys
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
print(init_auth_manager().generate_jwt(SimpleAuthManagerUser(username="somebody", role=sys.argv[1] or None, teams=[])))
"""


def rows_shown(view: FrameLocator) -> list[list[str]]:
    """The cells of each commit's row: version, kind, inserted, updated, deleted, copied and so on."""
    rows = view.get_by_role("region", name="Commits").locator("tbody tr")
    shown: list[list[str]] = rows.evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")
    return shown


def number(text: str) -> int:
    return 0 if text == "-" else int(text.replace(",", ""))


def test_each_days_merge_of_flights_has_the_numbers_of_the_tables_history(
    airflow: RealAirflow, folder: Path, page: Page, said: list[str], screenshot: Screenshot
) -> None:
    from playwright.sync_api import expect

    merges = (LAST_DAY - FIRST_DAY).days + 1
    wait(airflow, lambda: _succeeded(airflow, "flights_of_december") == merges)
    page.set_viewport_size({"width": 1280, "height": 1250})
    view = open_table(airflow, page, folder / "flights")
    expect(view.get_by_role("img", name="Rows changed by merge", exact=True)).to_be_visible()
    history = [each for each in DeltaTable(str(folder / "flights")).history() if each["operation"] == "MERGE"]
    expected = [
        (each["version"], [int(each["operationMetrics"][f"numTargetRows{count}"]) for count in COUNTS])
        for each in history
    ]
    shown = [
        (int(cells[0]), [number(each) for each in cells[2:6]]) for cells in rows_shown(view) if cells[1] == "merge"
    ]
    assert (len(shown), shown) == (merges, expected)
    for chart in view.locator("section:has(> svg)").all():
        assert chart.locator("svg[role=img] > g").count() > 0
    check_accessible(view)
    screenshot(page, "view_table")

    view.locator("summary", has_text="Rows changed by merge").click()
    table = view.get_by_role("region", name="Rows changed by merge").get_by_role("row")
    assert table.count() == merges + 1
    view.get_by_role("region", name="Commits").get_by_role("link", name="flights_of_december.merge").first.click()
    expect(page).to_have_url(re.compile(r"/dags/flights_of_december/runs/"))


def test_a_merge_that_a_guard_stopped_is_marked_with_what_it_said(
    airflow: RealAirflow, folder: Path, page: Page, said: list[str]
) -> None:
    from playwright.sync_api import expect

    for run, articles, state in (("delivery", 3, "success"), ("flood", 30, "failed")):
        asked = {"dag_run_id": run, "logical_date": None, "conf": {"articles": articles}}
        wait(airflow, lambda asked=asked: airflow.call("/api/v2/dags/stock/dagRuns", asked))
        wait(airflow, lambda state=state: state_of_run(airflow, "stock") == state)
    view = open_table(airflow, page, folder / "stock")
    stopped = view.get_by_role("region", name="Runs without a commit").locator("tbody tr")
    expect(stopped).to_have_count(1)
    expect(stopped).to_contain_text("stock.merge flood")
    expect(stopped).to_contain_text("stopped by a guard")
    expect(stopped).to_contain_text("num_inserted_rows is 27")
    check_accessible(view)
    stopped.get_by_role("link").click()
    page.get_by_role("link", name="Delta merges", exact=True).click()
    expect(view.get_by_role("alert")).to_contain_text("A guard stopped this merge. The merge was stopped")


def test_ten_thousand_commits_are_a_page_at_a_time(
    airflow: RealAirflow, folder: Path, page: Page, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from playwright.sync_api import expect

    wait(airflow, lambda: state_of_run(airflow, "hourly_prices") == "success")
    table = folder / "prices"
    first = DeltaTable(str(table)).version() + 1
    newest = 10_000
    for version in range(first, newest + 1):
        merge_commit(table, version)
    seconds = []
    for _ in ("cold", "warm"):
        began = time.perf_counter()
        view = open_table(airflow, page, table)
        expect(view.get_by_role("rowheader", name=str(newest), exact=True).first).to_be_visible()
        seconds.append(time.perf_counter() - began)
    with capsys.disabled():
        print(f" (10,000 commits, from Airflow's first page: cold {seconds[0]:.1f} s, warm {seconds[1]:.1f} s)", end="")
    assert [int(cells[0]) for cells in rows_shown(view)] == [*range(newest, newest - ON_A_PAGE, -1)]
    check_accessible(view)
    view.get_by_role("link", name="Older commits").click()
    expect(view.get_by_role("rowheader", name=str(newest - ON_A_PAGE), exact=True).first).to_be_visible()
    view.get_by_role("link", name="Newest commits").click()
    expect(view.get_by_role("rowheader", name=str(newest), exact=True).first).to_be_visible()


@pytest.fixture
def guarded(airflow: RealAirflow) -> str:
    """The address of an API server of the same Airflow in which not everybody is an admin."""
    port = free_port()
    airflow.start(f"api-server --port {port}", before=["env", "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS=False"])
    address = f"http://127.0.0.1:{port}"
    wait(airflow, lambda: answers(f"{address}/api/v2/version"))
    return address


def test_a_user_without_rights_sees_nothing(airflow: RealAirflow, guarded: str, browser: Browser, folder: Path) -> None:
    tables = [
        "",
        f"table?{urlencode({'location': folder / 'orders'})}",
        f"merge?{urlencode({'location': folder / 'orders', 'version': 1})}",
    ]
    for role, status in (("VIEWER", 200), (None, 403)):
        with browser.new_context() as context:
            context.add_cookies([{"name": "_token", "value": _token(airflow, role), "url": guarded}])
            page = context.new_page()
            for address in tables:
                answer = page.goto(f"{guarded}/delta_merge/{address}")
                assert answer is not None
                assert (answer.status, "orders" in page.content()) == (status, status == 200), address
    with browser.new_context() as context:
        answer = context.new_page().goto(f"{guarded}/delta_merge/")  # nobody is signed in
        assert answer is not None
        assert answer.status == 401


def _token(airflow: RealAirflow, role: str | None) -> str:
    made = subprocess.run(
        [sys.executable, "-c", TOKEN, role or ""], env=airflow.environment(), capture_output=True, text=True, check=True
    )
    return made.stdout.split()[-1]


def _succeeded(airflow: RealAirflow, dag_id: str) -> int:
    runs = airflow.call(f"/api/v2/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
    failed = [run["dag_run_id"] for run in runs if run["state"] == "failed"]
    assert failed == []
    return sum(run["state"] == "success" for run in runs)
