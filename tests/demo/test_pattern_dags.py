"""The example DAGs of the patterns run on real flights, and their tables hold what pandas says they should."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.demo import airflow_run
from tests.demo.conftest import CHECKOUT

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLIGHTS_DEMO_FOLDER", str(tmp_path))
    return tmp_path


def merge_results(folder: Path, dag_id: str, *days: str) -> list[dict[str, Any]]:
    """Run a DAG by hand on these days, each for the interval that was the last to end, and give what its merges did."""
    run_report = airflow_run.run(folder / "airflow", CHECKOUT / "dags", dag_id, *days)
    assert [run["state"] for run in run_report["runs"]] == ["success"] * len(days)
    return [run["xcoms"]["merge.return_value"] for run in run_report["runs"]]


def table(folder: Path, name: str) -> pd.DataFrame:
    from deltalake import DeltaTable

    return DeltaTable(str(folder / name)).to_pandas()


def flown(all_flights: pd.DataFrame, *months: int) -> pd.DataFrame:
    """The flights that left in these months; their local month is the scheduled one but around midnight."""
    import pandas as pd

    flights = all_flights[all_flights["dep_time"].notna() & all_flights["tailnum"].notna()].copy()
    flights["seen_at"] = pd.to_datetime(flights["time_hour"])
    local = flights["seen_at"].dt.tz_convert("America/New_York")
    return flights[local.dt.month.isin(months) & (local.dt.year == 2013)]


def test_insert_new(folder: Path, all_flights: pd.DataFrame) -> None:
    merge_results(folder, "planes_first_seen", "2013-02-02", "2013-03-02")
    first = flown(all_flights, 1, 2).groupby("tailnum")["seen_at"].min()
    found = table(folder, "planes_first_seen").set_index("tailnum")["first_seen_at"]
    assert found.to_dict() == first.to_dict()


def test_soft_delete(folder: Path, all_flights: pd.DataFrame) -> None:
    merge_results(folder, "planes_in_service", "2013-02-02", "2013-03-02", "2013-04-02")
    found = table(folder, "planes_in_service").set_index("tailnum")["is_grounded"]
    of_march = set(flown(all_flights, 3)["tailnum"])
    assert set(found.index) == set(flown(all_flights, 1, 2, 3)["tailnum"])
    assert set(found[~found].index) == of_march
    assert found.sum() > 0


def test_scd2_in_any_order(folder: Path, all_flights: pd.DataFrame) -> None:
    merge_results(folder, "planes_carriers", "2013-03-02", "2013-05-02", "2013-04-02")
    found = table(folder, "planes_carriers")
    seen = flown(all_flights, 2, 3, 4).sort_values("seen_at")
    changed = seen[seen["carrier"] != seen.groupby("tailnum")["carrier"].shift()]
    expected = {(row.tailnum, row.carrier, row.seen_at) for row in changed.itertuples()}
    assert {(row.tailnum, row.carrier, row.valid_from) for row in found.itertuples()} == expected
    ended = found[found["valid_to"].notna()]
    passed_on = changed["tailnum"][changed["tailnum"].duplicated()]
    assert set(ended["tailnum"]) == set(passed_on) != set()
    assert set(ended["carrier"]) == {"9E"}
    assert (found["valid_to"].isna() == found["is_current"]).all()


def test_sync_in_a_window_on_the_day_of_23_hours(folder: Path) -> None:
    results = merge_results(folder, "weather_of_a_day", "2013-03-10 12:00", "2013-03-11 12:00", "2013-03-11 12:00")
    assert [result["num_inserted_rows"] for result in results] == [72, 69, 0]
    assert results[2]["num_deleted_rows"] == 0
    assert len(table(folder, "weather")) == 72 + 69


def test_apply_changes_in_any_order(folder: Path, all_flights: pd.DataFrame) -> None:
    import pandas as pd

    import flights_feed

    merge_results(folder, "flights_changes", "2014-01-01", "2013-12-31", "2014-01-01")
    found = table(folder, "flights_changes")
    days = [pd.Timestamp(day).date() for day in ("2013-12-30", "2013-12-31")]
    feeds = pd.concat([flights_feed.changes(all_flights, day) for day in days])
    last = feeds.sort_values("reported_on").drop_duplicates(list(flights_feed.KEYS), keep="last")
    assert len(found) == len(last)
    assert found["is_cancelled"].sum() == last["cancelled"].sum() > 0
    assert found["dep_time"].notna().sum() == last["dep_time"].notna().sum()
