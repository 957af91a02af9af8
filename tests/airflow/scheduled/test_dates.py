"""Runs without a logical date, by a real scheduler: what names their day, and what {{ ds }} gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.airflow import tables
from tests.airflow.once import Once

pytestmark = pytest.mark.slow


def test_runs_by_hand_and_by_an_asset_have_run_after_and_an_error_about_ds(airflow: Once, folder: Path) -> None:
    tables.create_table(folder / "dates", {"day": "string"})
    airflow.trigger("dates_by_hand", "by_hand")
    airflow.run_ended("dates_by_hand", "by_hand", "failed")  # as by_ds has failed
    runs = "/api/v2/dags/dates_by_asset/dagRuns"
    airflow.wait(lambda: airflow.call(runs)["dag_runs"])
    (by_asset,) = airflow.call(runs)["dag_runs"]
    airflow.run_ended("dates_by_asset", by_asset["dag_run_id"], "failed")
    days = {datetime.now(UTC).strftime("%Y-%m-%d")}
    for dag_id, run_id, begins in (
        ("dates_by_hand", "by_hand", ""),
        ("dates_by_asset", by_asset["dag_run_id"], "asset "),
    ):
        run = airflow.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")
        assert run["logical_date"] is None
        days.add(run["run_after"][:10])
        merge = airflow.task(dag_id, run_id)
        assert merge["state"] == "success", airflow.logged(dag_id, run_id)[-3000:]
        assert merge["rendered_fields"]["source"] in {f"SELECT '{begins}{day}' AS day" for day in days}
        by_ds = airflow.task(dag_id, run_id, "by_ds")
        assert (by_ds["state"], by_ds["try_number"]) == ("failed", 1)
        log = airflow.logged(dag_id, run_id)
        assert "so ds has no value. Use dag_run.run_after, e.g. {{ dag_run.run_after | ds }}" in log
    assert tables.count_rows(folder / "dates") == 2
