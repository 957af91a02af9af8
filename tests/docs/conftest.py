"""Examples are DAG files, so they need an Airflow: that of ``tests/airflow``, set up by its import."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.airflow.conftest import HOME


@pytest.fixture(scope="session", autouse=True)
def airflow_home() -> Iterator[None]:
    """Its home, without the database, which no example asks for."""
    yield
    shutil.rmtree(HOME, ignore_errors=True)
