"""Other writers commit while the merge runs: the same conflicts, with the same error conditions, or none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_delete
from airflow_delta_merge.engine import merge, merge_sql
from airflow_delta_merge.exceptions import MergeConfigError
from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

TABLE = Table("id INT, v STRING", ("(1, 'a'), (2, 'b')", "(3, 'c')"))
SOURCE = "VALUES (2, 'B'), (3, 'C'), (9, 'I') AS s(id, v)"
PARTITIONED = Table("id INT, p STRING", ("(1, 'a'), (2, 'b')", "(3, 'c')"), partitioned_by="p")
PARTS = "VALUES (2, 'b'), (9, 'i') AS s(id, p)"
LISTED = replace(TABLE, properties={"delta.feature.allowColumnDefaults": "supported",
                                    "delta.feature.vacuumProtocolCheck": "supported"})  # fmt: skip
IDENTITY = Table("id INT, k BIGINT GENERATED ALWAYS AS IDENTITY", "INSERT INTO {t} (id) VALUES (1), (2)")
TXN = "spark.databricks.delta.write."

CASES = [
    Case("rows appended to the table", UPSERT, table=TABLE, source=SOURCE,
         fails="DELTA_CONCURRENT_APPEND.WITHOUT_HINT", meanwhile="INSERT INTO {t} VALUES (2, 'x')"),
    Case("rows appended to a partition that was read", UPSERT, table=PARTITIONED, source=PARTS,
         fails="DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT", meanwhile="INSERT INTO {t} VALUES (2, 'b')"),
    Case("rows appended with keys that the table had not", UPSERT, table=TABLE, source="VALUES (9, 'I') AS s(id, v)",
         fails="DELTA_CONCURRENT_APPEND.WITHOUT_HINT", meanwhile="INSERT INTO {t} VALUES (9, 'x')",
         confs={"spark.deltaMerge.smallMergeBytes": "0"}),
    Case("rows appended with keys that the table had not, inserts only", "WHEN NOT MATCHED THEN INSERT *", table=TABLE,
         source="VALUES (9, 'I') AS s(id, v)", fails="DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
         meanwhile="INSERT INTO {t} VALUES (9, 'x')"),
    Case("rows updated", UPSERT, table=TABLE, source=SOURCE, fails="DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
         meanwhile="UPDATE {t} SET v = 'z' WHERE id = 2"),
    Case("files compacted", UPSERT, table=TABLE, source=SOURCE, fails="DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
         meanwhile="OPTIMIZE {t}"),
    Case("another merge inserts", UPSERT, table=TABLE, source=SOURCE, fails="DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
         meanwhile="MERGE INTO {t} t USING (SELECT 77 id, 'x' v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"),
    Case("a whole file deleted", UPSERT, table=TABLE, source=SOURCE,
         fails="DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT", meanwhile="DELETE FROM {t} WHERE id = 3"),
    Case("a partition deleted", UPSERT, table=PARTITIONED, source=PARTS,
         fails="DELTA_CONCURRENT_DELETE_READ.WITH_PARTITION_HINT", meanwhile="DELETE FROM {t} WHERE p = 'b'"),
    Case("a table property set", UPSERT, table=TABLE, source=SOURCE, fails="DELTA_METADATA_CHANGED",
         meanwhile="ALTER TABLE {t} SET TBLPROPERTIES ('mine' = 'now')"),
    Case("a column added", UPSERT, table=TABLE, source=SOURCE, fails="DELTA_METADATA_CHANGED",
         meanwhile="ALTER TABLE {t} ADD COLUMN n INT"),
    Case("identity values drawn", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", table=IDENTITY,
         source="VALUES (2), (9) AS s(id)", fails="DELTA_METADATA_CHANGED",
         meanwhile="INSERT INTO {t} (id) VALUES (7)"),
    Case("a feature dropped", UPSERT, table=LISTED, source=SOURCE, fails="DELTA_PROTOCOL_CHANGED",
         meanwhile="ALTER TABLE {t} DROP FEATURE vacuumProtocolCheck"),
    Case("a feature that old writers may ignore", UPSERT, does="update, insert", table=TABLE, source=SOURCE,
         meanwhile="ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.columnMapping' = 'supported')"),
    Case("the same application's transaction", UPSERT, table=TABLE, source=SOURCE,
         fails="DELTA_CONCURRENT_TRANSACTION", confs={f"{TXN}txnAppId": "app", f"{TXN}txnVersion": "5"},
         meanwhile=(f"SET {TXN}txnAppId=app", f"SET {TXN}txnVersion=6", "INSERT INTO {t} VALUES (7, 'x')")),
    Case("no attempt left", UPSERT, table=PARTITIONED, source=PARTS, on="t.id = s.id AND t.p = s.p",
         fails="DELTA_MAX_COMMIT_RETRIES_EXCEEDED", meanwhile="INSERT INTO {t} VALUES (2, 'q')",
         confs={"spark.databricks.delta.maxCommitAttempts": "0"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_concurrency(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("attempts", [0, True, "2"])
def test_attempts_that_are_no_number_are_refused(attempts: Any, spark: SparkSession) -> None:
    config = MergeConfig(target="t", source="s", on=["id"], clauses=[when_matched_delete()])
    for run in (partial(merge, spark, config), partial(merge_sql, spark, "MERGE INTO t")):
        with pytest.raises(MergeConfigError, match="max_commit_attempts must be a whole number ≥ 1"):
            run(max_commit_attempts=attempts)
