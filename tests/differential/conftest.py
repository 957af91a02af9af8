"""The harness as a fixture: one for the run, so that equal tables are built once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.harness import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def engines(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Harness:
    """``engines.check(case)`` runs a case by the built-in MERGE and by ours and compares all they leave behind."""
    return Harness(spark, tmp_path_factory.mktemp("tables"), oracle_only=request.config.getoption("--oracle-only"))
