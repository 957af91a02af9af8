"""The tests' Airflow, as in ``tests/airflow``, and one cluster for all tests."""

from __future__ import annotations

from tests.airflow.conftest import airflow_home

__all__ = ["airflow_home"]
