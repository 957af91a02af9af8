"""What the demo asks of Airflow's API on a machine that is too busy to answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts import real_airflow
from scripts.real_airflow import RealAirflow


class Busy(BaseHTTPRequestHandler):
    """Answers the first request of each method too late."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.command)
        if self.asked.count(self.command) == 1:
            time.sleep(1)
        with suppress(BrokenPipeError):  # nobody waits any more
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"dag_runs": []}')

    do_POST = do_GET


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealAirflow]:
    monkeypatch.setattr(real_airflow, "SECONDS_TO_ANSWER", 0.3)
    monkeypatch.setattr(Busy, "asked", [], raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(RealAirflow, "url", f"http://127.0.0.1:{server.server_port}")
    with (tmp_path / "log").open("wb") as log:
        yield RealAirflow(tmp_path / "home", tmp_path / "dags", log)
    server.shutdown()


def test_what_only_reads_is_asked_for_again(airflow: RealAirflow) -> None:
    assert airflow.call("/api/v2/dags") == {"dag_runs": []}
    assert Busy.asked == ["GET", "GET"]


def test_what_changes_something_is_not(airflow: RealAirflow) -> None:
    with pytest.raises(TimeoutError):
        airflow.call("/api/v2/dags/d/dagRuns/r/clear", {})
    assert Busy.asked == ["POST"]
