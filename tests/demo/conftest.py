"""What the demo's tests share: its modules, and a small slice of its data."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pandas as pd

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "dags"))

import flights_feed  # noqa: E402


@pytest.fixture(scope="session")
def all_flights() -> pd.DataFrame:
    """Every flight as it ended."""
    return flights_feed.read_flights()


@pytest.fixture(scope="session")
def flights(all_flights: pd.DataFrame) -> pd.DataFrame:
    """The last two months, which is all that the demo's feeds reach back to."""
    return all_flights[all_flights["month"] >= 11].reset_index(drop=True)


@pytest.fixture(scope="session")
def days() -> list[date]:
    """The demo's three intervals."""
    return [date(2013, 12, 29), date(2013, 12, 30), date(2013, 12, 31)]
