"""Writers at the same time: no merge is lost, none doubled. The whole of it is ``make chaos``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.airflow import tables
from tests.faults import writers
from tests.faults.chaos import wrong_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_two_writers(spark: SparkSession, tmp_path: Path) -> None:
    table = tables.create_table(tmp_path / "written", {"part": "string", "id": "string", "n": "long"})
    results = writers.run(spark, table, ["writer 0", "writer 1"], 4)
    assert wrong_counts(table, 2, 4) == []
    versions = sorted(result.version for of_writer in results.values() for result in of_writer)
    assert versions == list(range(1, 9))
