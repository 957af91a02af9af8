"""Large sources that touch every candidate file, in two phases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.differential.cases import Case
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings
from tests.differential.test_one_pass import CASES as MOST_ROWS
from tests.differential.test_one_pass import TABLE, WITH_CHANGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_TWO_PHASES = {**WAYS["ours_as_large"], "spark.deltaMerge.shortcuts.enabled": "false"}
UPSERT_OF_CHANGES = "WHEN MATCHED AND s.v <> t.v THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture(autouse=True)
def as_a_large_source(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, IN_TWO_PHASES):
        yield


SOURCE = "SELECT CAST(id AS INT) AS id, concat('p', id % 2) AS p, CAST(id % 7 AS INT) AS v FROM range(5, 45)"
DELETES_TWICE = f"{SOURCE} UNION ALL SELECT 8, 'p0', 1"
CASES = [
    Case("what differs", UPSERT_OF_CHANGES, does="update, insert", table=TABLE, source=SOURCE),
    Case("what differs: partitioned", UPSERT_OF_CHANGES, does="update, insert", source=SOURCE,
         table=replace(TABLE, partitioned_by="p")),
    Case("what differs: a change data feed", f"WHEN MATCHED AND s.id % 4 = 0 THEN DELETE {UPSERT_OF_CHANGES}",
         does="delete, update, insert", table=WITH_CHANGES, source=SOURCE),
    Case("what differs: new rows that no clause takes", "WHEN MATCHED AND s.v <> t.v THEN UPDATE SET v = s.v "
         "WHEN NOT MATCHED AND s.id = 41 THEN INSERT *", does="update, insert", table=TABLE, source=SOURCE),
    Case("several source rows delete one", "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
         does="delete, insert", table=TABLE, source=DELETES_TWICE),
    Case("several source rows delete one: a change data feed",
         "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
         does="delete, insert", table=WITH_CHANGES, source=DELETES_TWICE),
    Case("row tracking", UPSERT_OF_CHANGES, does="update, insert", source=SOURCE,
         table=replace(TABLE, properties={"delta.enableRowTracking": "true"})),
]  # fmt: skip


@pytest.mark.parametrize("case", [*MOST_ROWS, *CASES], ids=str)
def test_rewritten_and_inserted_rows(case: Case, engines: Harness) -> None:
    engines.check(replace(case, confs={**case.confs, **IN_TWO_PHASES}))
