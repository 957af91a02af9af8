"""Row tracking: stable row ids and commit versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE = "WHEN MATCHED THEN UPDATE SET *"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
DROP = "WHEN NOT MATCHED BY SOURCE THEN DELETE"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"
TRACKED = replace(PLAIN, properties={"delta.enableRowTracking": "true"})
TRACKED_VECTORS = replace(PLAIN, properties={"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"})

CASES = [
    Case("row tracking: update", UPDATE, does="update", table=TRACKED, source=SOURCE),
    Case("row tracking: delete", DELETE, does="delete", table=TRACKED, source=SOURCE),
    Case("row tracking: insert", INSERT, does="insert", table=TRACKED, source=SOURCE),
    Case("row tracking: upsert", UPSERT, does="update, insert", table=TRACKED, source=SOURCE, every_version=True),
    Case("row tracking: upsert after an upsert", UPSERT, does="update, insert", table=TRACKED, source=SOURCE,
         before=f"MERGE INTO {{t}} t USING (VALUES (1, 'x', 5), (5, 'y', 5) AS s(id, v, n)) s ON t.id = s.id {UPSERT}"),
    Case("row tracking: not matched by source", f"{UPDATE} {DROP}", does="update, delete", table=TRACKED,
         source=SOURCE),
    Case("row tracking and deletion vectors", UPSERT, does="update, insert", table=TRACKED_VECTORS, source=SOURCE),
    Case("row tracking and deletion vectors: delete and insert", f"{DELETE} {INSERT}", does="delete, insert",
         table=TRACKED_VECTORS, source=SOURCE),
    Case("row tracking and deletion vectors: update twice", UPDATE, does="update", table=TRACKED_VECTORS, source=SOURCE,
         before="UPDATE {t} SET n = 0 WHERE id = 2"),
    Case("row tracking, and no statistics to count new rows by", UPSERT, table=TRACKED, source=SOURCE,
         fails="DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS", confs={"spark.databricks.delta.stats.collect": "false"}),
    Case("row tracking and change data", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, properties={"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"})),
    Case("row tracking: all kinds of clauses", f"WHEN MATCHED AND s.id = 2 THEN DELETE {UPSERT} WHEN NOT MATCHED BY "
         "SOURCE AND t.id = 1 THEN UPDATE SET n = 0 WHEN NOT MATCHED BY SOURCE THEN DELETE",
         does="update, delete, insert", table=TRACKED, source=SOURCE),
    Case("row tracking: partitioned, rows move", "WHEN MATCHED THEN UPDATE SET v = 'moved'", does="update",
         table=replace(TRACKED, partitioned_by="v"), source=SOURCE),
    Case("row tracking: switched on later", UPSERT, does="update, insert", source=SOURCE,
         table=replace(PLAIN, then="ALTER TABLE {t} SET TBLPROPERTIES (delta.enableRowTracking = true)")),
    Case("row tracking: with column mapping", UPSERT, does="update, insert", source=SOURCE, table=replace(PLAIN,
         properties={"delta.enableRowTracking": "true", "delta.columnMapping.mode": "name"})),
    Case("row tracking: a new column", UPSERT, does="update, insert", table=TRACKED, evolves=True,
         source="VALUES (2, 'B', 20, 1), (9, 'I', 90, 2) AS s(id, v, n, more)"),
    Case("row tracking: after OPTIMIZE", UPSERT, does="update, insert", source=SOURCE,
         table=replace(TRACKED, then="OPTIMIZE {t}")),
    Case("row tracking, deletion vectors and change data: all kinds", f"WHEN MATCHED AND s.id = 2 THEN DELETE {UPSERT}",
         does="update, delete, insert", source=SOURCE, table=replace(TRACKED_VECTORS, properties={
         "delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true",
         "delta.enableChangeDataFeed": "true"})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_tracking(case: Case, engines: Harness) -> None:
    engines.check(case)
