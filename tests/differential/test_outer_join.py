"""Large sources that touch every candidate file: rewritten and inserted rows come out of one join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import MergeStatement
from airflow_delta_merge.engine import merge_sql, plan
from tests.differential.cases import Case
from tests.differential.harness import WAYS, Harness
from tests.differential.session_settings import session_settings
from tests.differential.test_one_pass import CASES as MOST_ROWS
from tests.differential.test_one_pass import FILES, ROWS, TABLE, WITH_CHANGES, statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_TWO_PHASES = {**WAYS["ours_as_large"], "spark.deltaMerge.onePass.enabled": "false"}
OUT_OF_ONE_JOIN = "what is inserted comes out of that join"
UPSERT_OF_CHANGES = "WHEN MATCHED AND s.v <> t.v THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture(autouse=True)
def as_a_large_source(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, IN_TWO_PHASES):
        yield


@pytest.mark.parametrize(
    ("clauses", "is_one_join"),
    [
        (UPSERT_OF_CHANGES, True),
        ("WHEN MATCHED AND s.v <> t.v THEN UPDATE SET *", False),
        # A source row that is not in the files that are rewritten may be in the others.
        (UPSERT_OF_CHANGES.replace("AND", "AND t.id < 30 AND"), False),
    ],
)
def test_a_large_source_is_joined_once_more_if_all_files_are_touched(
    spark: SparkSession, tmp_path: Path, clauses: str, is_one_join: bool
) -> None:
    spark.range(0, ROWS, 1, FILES).selectExpr("id", "'old' AS v").write.format("delta").save(str(tmp_path / "t"))
    source = "SELECT id * 2 AS id, if(id % 4 = 0, 'old', 'new') AS v FROM range(30)"
    merge = statement(tmp_path / "t", source, clauses)
    planned, result = plan(spark, MergeStatement(sql=merge)), merge_sql(spark, merge)
    assert (OUT_OF_ONE_JOIN in result.executor_reason) is is_one_join
    assert planned.executor_reason == result.executor_reason
    assert (planned.num_updated_rows, planned.num_inserted_rows) == (result.num_updated_rows, result.num_inserted_rows)


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
