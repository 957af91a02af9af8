"""A Chromium without a window, and an Airflow that has run a merge, with all that its task links to."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scripts.real_airflow import RealAirflow, free_port
from tests.browser.dags.december import write_feeds

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Locator, Page

    Screenshot = Callable[[Page | Locator, str], None]

DAGS = Path(__file__).parent / "dags"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
PATIENCE_SECONDS = 420
SLOW_PAGE_MS = 60_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The machine's own Chromium: Playwright would download one from a host of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="`make test-browser` installs Playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("There is no chromium on the PATH; `make test-browser` says how to install it.")
    # Chromium's sandbox doesn't run as root, as which CI and containers do.
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, chromium_sandbox=os.geteuid() != 0)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables, event logs and Airflow are."""
    folder = tmp_path_factory.mktemp("lake")
    for name in ("events", "tmp"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="session")
def files(folder: Path) -> Iterator[str]:
    """The address of a web server that shows the folder, hence the log of each table."""
    handler = functools.partial(_SilentHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _SilentHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def history_server(folder: Path) -> Iterator[str]:
    """The address of Spark's history server, which reads the folder's event logs."""
    import pyspark

    port = free_port()
    options = {
        "spark.history.ui.port": port,
        "spark.history.fs.logDirectory": f"file://{folder / 'events'}",
        "spark.history.fs.update.interval": "2s",
    }
    environment = {
        **os.environ,
        "SPARK_HISTORY_OPTS": " ".join(f"-D{name}={value}" for name, value in options.items()),
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (folder / "history_server.log").open("wb") as log:
        process = subprocess.Popen(
            [spark_class, "org.apache.spark.deploy.history.HistoryServer"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        yield f"http://127.0.0.1:{port}"
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@pytest.fixture(scope="session")
def airflow(browser: Browser, folder: Path, files: str, history_server: str) -> Iterator[RealAirflow]:
    """An Airflow whose scheduler has run the merge, and the DAG that waits for its table.

    The browser comes first, so that without it nothing is started.
    """
    write_feeds(folder)
    connection = {
        "connection_id": "lake",
        "conn_type": "delta_merge",
        "host": "local[2]",
        "description": "Spark on the worker",
        "extra": json.dumps(
            {
                "history_server_url": history_server,
                "commit_url": f"{files}/orders/_delta_log/?table={{table}}&version={{version}}",
                "conf": {
                    "spark.eventLog.enabled": "true",
                    "spark.eventLog.dir": f"file://{folder / 'events'}",
                    "spark.driver.memory": "700m",
                    "spark.databricks.delta.snapshotPartitions": "1",
                },
            }
        ),
    }
    with (folder / "log").open("ab") as log:
        airflow = RealAirflow(
            folder / "airflow",
            DAGS,
            log,
            settings={"core": {"test_connection": "Enabled"}},
            environment={"DELTA_MERGE_TESTS": str(folder), "TMPDIR": str(folder / "tmp")},
        )
        with airflow.serving():
            airflow.call("/api/v2/connections", connection)
            airflow.start("scheduler --skip-serve-logs")
            wait(airflow, lambda: state_of_run(airflow, "orders_report") == "success")
            yield airflow


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window of its own, in which nobody is logged in: this Airflow asks for no password."""
    from playwright.sync_api import expect

    expect.set_options(timeout=SLOW_PAGE_MS)
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.set_default_timeout(SLOW_PAGE_MS)
        yield context.new_page()


@pytest.fixture
def said(page: Page) -> Iterator[list[str]]:
    """What the browser's console says of errors; at the end it must be nothing."""
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield errors
    assert errors == []


@pytest.fixture
def screenshot(request: pytest.FixtureRequest) -> Screenshot:
    """Keep a picture for the docs, if asked to (``--screenshots``)."""

    def take(what: Page | Locator, name: str) -> None:
        if request.config.getoption("--screenshots"):
            what.screenshot(path=IMAGES / f"{name}.png", animations="disabled")

    return take


def open_table(airflow: RealAirflow, page: Page, table: Path) -> FrameLocator:
    """Go from Airflow's navigation to the table's page."""
    page.goto(airflow.url)
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="Delta merges").click()
    view = page.frame_locator("iframe[title='Delta merges']")
    view.get_by_role("link", name=str(table)).click()
    return view


def wait(airflow: RealAirflow, condition: Callable[[], Any]) -> Any:
    """Ask until the answer is true; SQLite may be locked, then Airflow answers 500 or 503."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        airflow.check_alive()
        try:
            if found := condition():
                return found
        except TimeoutError:
            pass
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        assert time.monotonic() < until, Path(airflow.log.name).read_text(errors="replace")[-5000:]
        time.sleep(1)


def state_of_run(airflow: RealAirflow, dag_id: str) -> str | None:
    """How the DAG's last run went; None before it is there."""
    try:
        runs = airflow.call(f"/api/v2/dags/{dag_id}/dagRuns?order_by=-id")["dag_runs"]
    except urllib.error.HTTPError as error:
        if error.code == 404:  # not parsed yet
            return None
        raise
    return runs[0]["state"] if runs else None


def answers(address: str) -> bool:
    """Whether a server answers there, if only that it won't."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(address, timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
