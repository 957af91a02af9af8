"""Optimised writes, auto compaction and the size of files, where table or session ask for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"

CASES = [
    Case("optimised write", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.autoOptimize.optimizeWrite": "true"}, partitioned_by="v")),
    Case("auto compaction", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.autoOptimize.autoCompact": "true"}),
         confs={"spark.databricks.delta.autoCompact.minNumFiles": "2"}),
    Case("optimised write asked by the session", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, partitioned_by="v"), confs={"spark.databricks.delta.optimizeWrite.enabled": "true"}),
    Case("optimised write, small bins", UPSERT, does="update, insert", table=PLAIN, source=SOURCE,
         confs={"spark.databricks.delta.optimizeWrite.enabled": "true",
                "spark.databricks.delta.optimizeWrite.binSize": "1"}),
    Case("optimised write, insert only", "WHEN NOT MATCHED THEN INSERT *", does="insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.autoOptimize.optimizeWrite": "true"}, partitioned_by="v")),
    Case("optimised write with change data", UPSERT, does="update, insert", source=SOURCE, table=replace(PLAIN,
         properties={"delta.autoOptimize.optimizeWrite": "true", "delta.enableChangeDataFeed": "true"})),
    Case("optimised write with identity values", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", does="insert",
         table=Table("id INT, k BIGINT GENERATED ALWAYS AS IDENTITY", "INSERT INTO {t} (id) VALUES (1), (2)",
                     properties={"delta.autoOptimize.optimizeWrite": "true"}), source=SOURCE, without=("k",)),
    Case("auto compaction asked by the session", UPSERT, does="update, insert", table=PLAIN, source=SOURCE,
         confs={"spark.databricks.delta.autoCompact.enabled": "true",
                "spark.databricks.delta.autoCompact.minNumFiles": "2"}),
    Case("auto compaction after an insert-only merge", "WHEN NOT MATCHED THEN INSERT *", does="insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.autoOptimize.autoCompact": "true"}),
         confs={"spark.databricks.delta.autoCompact.minNumFiles": "2"}),
    Case("auto compaction of a partitioned table with deletion vectors", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.autoOptimize.autoCompact": "true",
                       "delta.enableDeletionVectors": "true"}, partitioned_by="v"),
         confs={"spark.databricks.delta.autoCompact.minNumFiles": "2"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_optimized_write(case: Case, engines: Harness) -> None:
    engines.check(case)
