"""Files read in fewer tasks than Spark's own: the same merge, in as many tasks as the search is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from tests.differential.cases import Case, Table
from tests.differential.harness import Harness
from tests.differential.session_settings import session_settings
from tests.differential.tasks_of_stages import tasks_of_stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As if to open a file took as long as to read 128 MB: each is a task of its own, more than the search is worth.
FILES, CONFS = 20, {"spark.sql.files.openCostInBytes": str(128 * 1024 * 1024)}
IN_TWO_PHASES = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.shortcuts.enabled": "false"}
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
SOURCE = "SELECT CAST(id * 5 AS INT) AS id, concat('p', id % 2) AS p, CAST(id AS INT) AS v FROM range(20)"
VECTORS = {"delta.enableDeletionVectors": "true"}


def _case(name: str, clauses: str, does: str, **more: object) -> Case:
    rows = "SELECT CAST(id AS INT), concat('p', id % 2), CAST(id AS INT) FROM range(80)"
    table = Table("id INT, p STRING, v INT", rows, files=FILES, **more)  # type: ignore[arg-type]
    return Case(f"few tasks: {name}", clauses, does=does, table=table, source=SOURCE, confs=CONFS)


CASES = [
    _case("upsert", UPSERT, "update, insert"),
    _case("insert only", "WHEN NOT MATCHED THEN INSERT *", "insert"),
    _case("deletion vectors", UPSERT, "update, insert", properties=VECTORS),
    _case("deletion vectors there", UPSERT, "update, insert", properties=VECTORS,
          then=("DELETE FROM {t} WHERE id % 7 = 1",)),
    _case("row tracking", UPSERT, "update, insert", properties={"delta.enableRowTracking": "true"}),
    _case("partitioned", "WHEN MATCHED THEN UPDATE SET v = s.v + 1", "update", partitioned_by="p"),
    _case("not matched by source", "WHEN MATCHED THEN UPDATE SET v = -1 WHEN NOT MATCHED BY SOURCE AND t.v < 9 "
          "THEN DELETE", "update, delete"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fewer_tasks_than_sparks(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_as_many_tasks_as_the_search_is_worth(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    table = tmp_path / "t"
    rows = spark.range(0, 80, 1, FILES).selectExpr("id", "id AS v")
    rows.write.format("delta").option("delta.enableDeletionVectors", vectors).save(str(table))
    with session_settings(spark, {**CONFS, **IN_TWO_PHASES}):
        assert spark.read.format("delta").load(str(table)).rdd.getNumPartitions() == FILES
        source = f"(SELECT id * {80 // FILES} AS id, -1L AS v FROM range({FILES})) s"  # a key of each file
        with tasks_of_stages(spark) as found:
            result = merge_sql(spark, f"MERGE INTO delta.`{table}` t USING {source} ON t.id = s.id {DELETE}")
        assert {name: spark.conf.get(name) for name in CONFS} == CONFS, "the session keeps its settings"
    assert (result.num_candidate_files, result.num_deleted_rows) == (FILES, FILES)
    assert 10 in found
    assert FILES not in found
