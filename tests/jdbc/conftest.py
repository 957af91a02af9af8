"""The tests' Airflow, as in ``tests/airflow``, and one Postgres for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.airflow.conftest import airflow_home
from tests.jdbc.postgres import Postgres, postgres

__all__ = ["airflow_home"]


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server
