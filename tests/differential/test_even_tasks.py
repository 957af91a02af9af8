"""Files read in tasks of another size than Spark's own: the same merge, in as many tasks as there should be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.engine import merge_sql
from tests.differential.cases import Case, Table
from tests.differential.harness import Harness
from tests.differential.session_settings import session_settings
from tests.differential.tasks_of_stages import tasks_of_stages
from tests.readable_ids import readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark takes each file for 4 MB more than it has. Two cores: of eight files it makes tasks of 3, 3 and 2.
EIGHT_FILES = {"spark.sql.files.maxPartitionBytes": "8500000"}
# As if to open a file took as long as to read 128 MB: each is a task of its own, more than the search is worth.
TWENTY_FILES = {"spark.sql.files.openCostInBytes": str(128 * 1024 * 1024)}
IN_TWO_PHASES = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.shortcuts.enabled": "false"}
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
SOURCE = "SELECT CAST(id * 5 AS INT) AS id, concat('p', id % 2) AS p, CAST(id AS INT) AS v FROM range(20)"
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def _table(files: int = 8, **more: object) -> Table:
    rows = "SELECT CAST(id AS INT), concat('p', id % 2), CAST(id AS INT) FROM range(80)"
    return Table("id INT, p STRING, v INT", rows, files=files, **more)  # type: ignore[arg-type]


def _case(name: str, clauses: str, does: str, confs: dict[str, str] = EIGHT_FILES, **more: object) -> Case:
    files = 20 if confs is TWENTY_FILES else 8
    return Case(f"even tasks: {name}", clauses, does=does, table=_table(files, **more), source=SOURCE, confs=confs)


CASES = [
    _case("upsert", UPSERT, "update, insert"),
    _case("upsert in fewer tasks", UPSERT, "update, insert", TWENTY_FILES),
    _case("insert only", "WHEN NOT MATCHED THEN INSERT *", "insert"),
    _case("insert only in fewer tasks", "WHEN NOT MATCHED THEN INSERT *", "insert", TWENTY_FILES),
    _case("deletion vectors", DELETE, "delete", properties=VECTORS),
    _case("deletion vectors in fewer tasks", UPSERT, "update, insert", TWENTY_FILES, properties=VECTORS),
    _case("deletion vectors there", UPSERT, "update, insert", properties=VECTORS,
          then=("DELETE FROM {t} WHERE id % 7 = 1",)),
    _case("change data", UPSERT, "update, insert", properties=FEED),
    _case("row tracking", UPSERT, "update, insert", properties={"delta.enableRowTracking": "true"}),
    _case("column mapping", UPSERT, "update, insert", properties={"delta.columnMapping.mode": "name"}),
    _case("partitioned", "WHEN MATCHED THEN UPDATE SET v = s.v + 1", "update", partitioned_by="p"),
    _case("not matched by source", "WHEN MATCHED THEN UPDATE SET v = -1 WHEN NOT MATCHED BY SOURCE AND t.v < 9 "
          "THEN DELETE", "update, delete"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_other_tasks_than_sparks(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize(
    ("files", "confs", "by_spark", "tasks"), [(8, EIGHT_FILES, 3, 4), (20, TWENTY_FILES, 20, 10)], ids=readable
)
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_as_many_tasks_as_there_should_be(
    spark: SparkSession, tmp_path: Path, files: int, confs: dict[str, str], by_spark: int, tasks: int, vectors: str
) -> None:
    table = tmp_path / "t"
    rows = spark.range(0, 80, 1, files).selectExpr("id", "id AS v")
    rows.write.format("delta").option("delta.enableDeletionVectors", vectors).save(str(table))
    with session_settings(spark, {**confs, **IN_TWO_PHASES}):
        assert spark.read.format("delta").load(str(table)).rdd.getNumPartitions() == by_spark
        source = f"(SELECT id * {80 // files} AS id, -1L AS v FROM range({files})) s"  # a key of each file
        with tasks_of_stages(spark) as found:
            result = merge_sql(spark, f"MERGE INTO delta.`{table}` t USING {source} ON t.id = s.id {DELETE}")
        assert {name: spark.conf.get(name) for name in confs} == confs, "the session keeps its settings"
    assert (result.num_candidate_files, result.num_deleted_rows) == (files, files)
    assert tasks in found
    assert by_spark not in found
