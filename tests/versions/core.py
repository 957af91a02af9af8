"""The differential core: the merges that each combination of Spark and Delta runs, by our engine and by Delta's own.

One case for each thing that Delta's internals have a part in. Their expected outcome is what the built-in ``MERGE`` of
the same Spark and Delta makes of them; ``does`` and ``fails`` only say what a case is there to show.
"""

from __future__ import annotations

from dataclasses import replace

from tests.differential.cases import Case, Table

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE = "WHEN MATCHED THEN UPDATE SET v = s.v"
DELETE = "WHEN MATCHED THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
BY_SOURCE_DELETE = "WHEN NOT MATCHED BY SOURCE THEN DELETE"

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
#: What else only tables of many files meet.
LISTED = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.useChecksum.enabled": "false"}
# Three files: ids 0 to 3, 4 to 7, 8 to 11.
FILES = Table("id INT, v INT", ", ".join(f"({i}, {i})" for i in range(12)), files=3)
MARKABLE = replace(FILES, properties=VECTORS)
MARKED = replace(MARKABLE, then="DELETE FROM {t} WHERE id IN (2, 5)")
WITH_CHANGES = replace(FILES, properties=CHANGES)
WITH_BOTH = replace(FILES, properties={**VECTORS, **CHANGES})
PARTS = Table("id INT, v INT, day DATE", ", ".join(f"({i}, {i}, DATE'2024-01-0{1 + i % 3}')" for i in range(9)),
              partitioned_by="day")  # fmt: skip
TRACKED = replace(FILES, properties={"delta.enableRowTracking": "true"})
IDENTITIES = Table("k BIGINT GENERATED ALWAYS AS IDENTITY, id INT, v INT", "INSERT INTO {t} (id, v) VALUES (1, 1)")
GENERATED = Table("id INT, v INT, double INT GENERATED ALWAYS AS (v * 2)", "INSERT INTO {t} (id, v) VALUES (1, 1)")
MAPPED = replace(FILES, properties={"delta.columnMapping.mode": "name"})
TEXTS = Table("id INT, v STRING, `n ä` STRING", "(1, 'a', NULL), (2, repeat('ä', 40), 'n')",
              properties={"delta.columnMapping.mode": "name"})  # fmt: skip
NO_TEXTS = replace(TEXTS, rows=(), properties={**dict(TEXTS.properties), **CHANGES})
NOT_NULL = replace(FILES, columns="id INT, v INT NOT NULL")

PAIRS = "VALUES (2, 20), (3, 30), (7, 70), (40, 400) AS s(id, v)"
DOUBLE = "VALUES (2, 20), (2, 21), (7, 70) AS s(id, v)"
WIDER = "VALUES (2, 20, 'x'), (40, 400, 'y') AS s(id, v, note)"
LONG = "SELECT CAST(id AS BIGINT) AS id, CAST(v AS BIGINT) AS v FROM VALUES (2, 20), (40, 400), (NULL, 9) AS s(id, v)"
DAYS = "VALUES (1, 10, DATE'2024-01-02'), (90, 900, DATE'2024-01-02') AS s(id, v, day)"

CASES = [
    Case("update", UPDATE, does="update", table=FILES, source=PAIRS),
    Case("delete", DELETE, does="delete", table=FILES, source=PAIRS),
    Case("delete by several source rows", DELETE, does="delete", table=FILES, source=DOUBLE),
    Case("insert only", INSERT, does="insert", table=FILES, source=PAIRS),
    Case("insert by two clauses", "WHEN NOT MATCHED AND s.v > 100 THEN INSERT (id, v) VALUES (s.id, -s.v) "
         f"{INSERT}", does="insert", table=FILES, source="VALUES (40, 400), (50, 50) AS s(id, v)"),
    Case("upsert", UPSERT, does="update, insert", table=FILES, source=PAIRS),
    Case("sync", f"{UPSERT} {BY_SOURCE_DELETE}", does="update, insert, delete", table=FILES, source=PAIRS),
    Case("by source, with a condition", f"{UPDATE} WHEN NOT MATCHED BY SOURCE AND t.id < 2 THEN UPDATE SET v = -1",
         does="update", table=FILES, source=PAIRS),
    Case("clauses by condition", f"WHEN MATCHED AND s.v < 30 THEN DELETE WHEN MATCHED AND s.v < 50 THEN UPDATE SET "
         f"v = t.v + s.v {INSERT}", does="delete, update, insert", table=FILES, source=PAIRS),
    Case("nothing to do", "WHEN MATCHED AND s.v < 0 THEN DELETE", does="nothing", table=FILES, source=PAIRS),
    Case("keys of another type, one NULL", UPSERT, does="update, insert", table=FILES, source=LONG),
    Case("partitions: upsert", UPSERT, does="update, insert", table=PARTS, source=DAYS, on="t.id = s.id"),
    Case("partitions: sync of one", f"{UPSERT} WHEN NOT MATCHED BY SOURCE AND t.day = DATE'2024-01-02' THEN DELETE",
         does="update, insert, delete", table=PARTS, source=DAYS, on="t.id = s.id AND t.day = DATE'2024-01-02'"),
    Case("deletion vectors: upsert", UPSERT, does="update, insert", table=MARKABLE, source=PAIRS),
    Case("deletion vectors: more on marked files", f"{DELETE} {INSERT}", does="delete, insert", table=MARKED,
         source=PAIRS),
    Case("deletion vectors: sync", f"{UPSERT} {BY_SOURCE_DELETE}", does="update, insert, delete", table=MARKED,
         source=PAIRS),
    Case("change data: upsert", UPSERT, does="update, insert", table=WITH_CHANGES, source=PAIRS),
    Case("change data: delete by several source rows", DELETE, does="delete", table=WITH_CHANGES, source=DOUBLE),
    Case("change data and deletion vectors: sync", f"{UPSERT} {BY_SOURCE_DELETE}", does="update, insert, delete",
         table=WITH_BOTH, source=PAIRS),
    Case("schema evolution", UPSERT, does="update, insert", table=FILES, source=WIDER,
         confs={"spark.databricks.delta.schema.autoMerge.enabled": "true"}),
    Case("row tracking: upsert", UPSERT, does="update, insert", table=TRACKED, source=PAIRS),
    Case("identity column: upsert", "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES "
         "(s.id, s.v)", does="update, insert", table=IDENTITIES, source="VALUES (1, 10), (2, 20) AS s(id, v)",
         without=("k",)),
    Case("generated column: upsert", "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES "
         "(s.id, s.v)", does="update, insert", table=GENERATED, source="VALUES (1, 10), (2, 20) AS s(id, v)"),
    Case("column mapping: upsert", UPSERT, does="update, insert", table=MAPPED, source=PAIRS),
    Case("files listed from the log: upsert", UPSERT, does="update, insert", table=FILES, source=PAIRS, confs=LISTED),
    Case("files listed from the log: marked files", f"{DELETE} {INSERT}", does="delete, insert", table=MARKED,
         source=PAIRS, confs=LISTED),
    Case("first load: upsert", UPSERT, does="insert", table=Table("id INT, v INT"), source=PAIRS),
    Case("first load: change data, texts", UPSERT, does="insert", table=NO_TEXTS,
         source="SELECT 1 AS id, 'b' AS v, repeat('😀', 40) AS `n ä` UNION ALL SELECT 3, '', NULL"),
    Case("statistics of texts: upsert", UPSERT, does="update, insert", table=TEXTS,
         source="SELECT 1 AS id, 'b' AS v, repeat('😀', 40) AS `n ä` UNION ALL SELECT 3, '', NULL"),
    Case("error: two source rows for one target row", UPDATE, table=FILES, source=DOUBLE,
         fails="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
    Case("error: a constraint", UPSERT, table=NOT_NULL, source="VALUES (2, NULL), (40, NULL) AS s(id, v)",
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    Case("error: no such column", "WHEN MATCHED THEN UPDATE SET nowhere = s.v", table=FILES, source=PAIRS,
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
]  # fmt: skip

#: Delta's first versions in which ``CREATE TABLE`` makes the table of a case.
SINCE = {"identity column: upsert": (4, 4), "generated column: upsert": (4, 4)}
