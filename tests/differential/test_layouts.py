"""How the target lies on disk: partitions, many files, files without statistics, odd partition values."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
SOME = "WHEN MATCHED AND s.v = 'x' THEN DELETE WHEN MATCHED AND s.v = 'y' THEN UPDATE SET v = 'Y'"

COLUMNS = "id INT, p STRING, v STRING"
ROWS = ("(1, 'a', 'v1'), (2, 'a', 'v2'), (3, 'b', 'v3')", "(4, 'b', 'v4'), (5, NULL, 'v5'), (6, 'c', 'v6')")
PARTITIONED = Table(COLUMNS, ROWS, partitioned_by="p")
MANY_FILES = Table(COLUMNS, "SELECT CAST(id AS INT), concat('p', id % 3), concat('v', id) FROM range(40)", files=10)
RANGES = Table(COLUMNS, ", ".join(f"({i}, 'p', 'v{i}')" for i in range(24)), files=6)
SOURCE = "VALUES (2, 'a', 'x'), (3, 'b', 'y'), (4, 'z', 'z'), (9, 'd', 'n'), (10, NULL, 'n') AS s(id, p, v)"

ODD = [
    "''", "'a b'", "'a/b'", "'a=b'", "'100%'", "'ü€😀'", "'__HIVE_DEFAULT_PARTITION__'", "'a:b'", "'q''q'", "'#{}[]'",
]  # fmt: skip
ODD_PARTITIONS = Table("id INT, p STRING", ", ".join(f"({i}, {p})" for i, p in enumerate(ODD)), partitioned_by="p")

LAYOUTS = [
    Case("partitioned: upsert by key", UPSERT, does="update, insert", table=PARTITIONED, source=SOURCE),
    Case("partitioned: upsert by key and partition", UPSERT, does="update, insert", table=PARTITIONED, source=SOURCE,
         on="t.p = s.p AND t.id = s.id"),
    Case("partitioned: null-safe partition", UPSERT, does="update, insert", table=PARTITIONED,
         source="VALUES (5, NULL, 'x'), (6, 'c', 'y'), (6, NULL, 'y') AS s(id, p, v)",
         on="t.p <=> s.p AND t.id = s.id"),
    Case("partitioned: one partition by a constant", UPSERT, does="update, insert", table=PARTITIONED, source=SOURCE,
         on="t.p = 'b' AND t.id = s.id"),
    Case("partitioned: the NULL partition", DELETE, does="delete", table=PARTITIONED, source=SOURCE, on="t.p IS NULL"),
    Case("partitioned: partitions by IN", DELETE, does="delete", table=PARTITIONED, source=SOURCE,
         on="t.p IN ('a', 'c') AND t.id = s.id"),
    Case("partitioned: rows move to another partition", "WHEN MATCHED THEN UPDATE SET p = 'moved'", does="update",
         table=PARTITIONED, source=SOURCE),
    Case("partitioned: delete a whole partition", DELETE, does="delete", table=PARTITIONED,
         source="VALUES ('a') AS s(p)", on="t.p = s.p"),
    Case("partitioned: delete all", DELETE, does="delete", table=PARTITIONED, on="true", source="VALUES (1) AS s(id)"),
    Case("partitioned: insert only", INSERT, does="insert", table=PARTITIONED, source=SOURCE,
         on="t.p = s.p AND t.id = s.id"),
    Case("partitioned: insert only, one partition", INSERT, does="insert", table=PARTITIONED, source=SOURCE,
         on="t.p = 'b' AND t.id = s.id"),
    Case("partitioned: several clauses", SOME, does="update, delete", table=PARTITIONED, source=SOURCE),
    Case("partitioned, unrepartitioned writes", UPSERT, does="update, insert", table=PARTITIONED, source=SOURCE,
         confs={"spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false"}),
    Case("partitioned by two columns", UPSERT, does="update, insert",
         table=Table("id INT, p STRING, q INT", "(1, 'a', 1), (2, 'a', NULL), (3, NULL, 1)", partitioned_by="p, q"),
         source="VALUES (1, 'a', 2), (2, 'b', NULL), (4, NULL, NULL) AS s(id, p, q)"),
    Case("partition columns first in the table", UPSERT, does="update, insert",
         table=Table("p STRING, id INT", "('a', 1), ('b', 2)", partitioned_by="p"),
         source="VALUES ('z', 2), ('z', 3) AS s(p, id)"),
    Case("partition values of odd characters", UPSERT.replace("*", "id = s.id + 50", 1), does="update, insert",
         table=ODD_PARTITIONS, source="SELECT p, id FROM VALUES " + ", ".join(f"({p}, {i})" for i, p in enumerate(ODD))
         + ", ('new/=%', 77) AS s(p, id)", on="t.p = s.p"),
    Case("partition value of an empty string is NULL", INSERT, does="insert", table=ODD_PARTITIONS,
         source="VALUES (99, ''), (98, NULL) AS s(id, p)"),
    Case("many files: a few keys", UPSERT, does="update, insert", table=MANY_FILES,
         source="VALUES (7, 'x', 'x'), (23, 'y', 'y'), (99, 'z', 'z') AS s(id, p, v)"),
    Case("many files: keys in one file", UPSERT, does="update, insert", table=RANGES,
         source="VALUES (5, 'x', 'x'), (6, 'y', 'y'), (-1, 'z', 'z') AS s(id, p, v)"),
    Case("many files: every key", UPSERT, does="update", table=MANY_FILES,
         source="SELECT CAST(id AS INT) id, 'p' p, 'v' v FROM range(40)"),
    Case("many files: delete every second", DELETE, does="delete", table=MANY_FILES,
         source="SELECT CAST(id * 2 AS INT) id FROM range(30)"),
    Case("many files: delete whole files", DELETE, does="delete", table=RANGES,
         source="SELECT CAST(id + 4 AS INT) id FROM range(8)"),
    Case("many files: a range", DELETE, does="delete", table=RANGES, on="t.id BETWEEN s.a AND s.b",
         source="VALUES (3, 5), (20, 30) AS s(a, b)"),
    Case("many files: insert only", INSERT, does="insert", table=RANGES,
         source="VALUES (5, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)"),
    Case("many files: insert only, keys outside of every file", INSERT, does="insert", table=RANGES,
         source="VALUES (50, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)"),
    Case("many files: no key within", UPSERT, does="insert", table=RANGES,
         source="VALUES (50, 'x', 'x'), (60, 'y', 'y') AS s(id, p, v)"),
    Case("many files: the merge condition on the target alone cuts some off", DELETE, does="delete", table=RANGES,
         source="SELECT CAST(id AS INT) id FROM range(24)", on="t.id = s.id AND t.id < 9"),
    Case("files without statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, confs={"spark.databricks.delta.stats.collect": "false"})),
    Case("some files without statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, (*ROWS, "(2, 'stats', 'v')"), then=("INSERT INTO {t} VALUES (9, 'x', 'y')",))),
    Case("keys beyond the columns with statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingNumIndexedCols": "0"})),
    Case("statistics on another column than the key", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingStatsColumns": "v"})),
    Case("long strings with cut statistics", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k STRING, n INT", ("(repeat('é', 40), 1), (repeat('a', 100), 2)", "(repeat('z', 33), 3)")),
         source="SELECT repeat('é', 40) k, 10 n UNION ALL SELECT repeat('a', 100), 20 "
                "UNION ALL SELECT repeat('a', 99), 3 UNION ALL SELECT repeat('z', 33), 4"),
    Case("string keys above the BMP at the end of the range", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k STRING, n INT", ("(concat(repeat('a', 40), '😀'), 1)", "(repeat('\uffff', 40), 2)")),
         source="SELECT concat(repeat('a', 40), '😀') k, 1 n UNION ALL SELECT repeat('\uffff', 40), 5"
                " UNION ALL SELECT '😀', 6"),
    Case("a table after deletes and updates of others", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, then=("DELETE FROM {t} WHERE id = 3", "UPDATE {t} SET v = 'w' WHERE id < 3"))),
    Case("a compacted table", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, then=("OPTIMIZE {t}",))),
    Case("a table after ADD COLUMN: old files lack it", UPSERT, does="update, insert",
         table=Table(COLUMNS, ROWS, then=("ALTER TABLE {t} ADD COLUMN w INT",
         "INSERT INTO {t} VALUES (8, 'h', 'v', 8)")),
         source="VALUES (2, 'a', 'x', 2), (8, 'h', 'x', 80), (9, 'i', 'x', 90) AS s(id, p, v, w)"),
    Case("a key that old files lack", UPSERT, does="update, insert", on="t.w = s.w",
         table=Table(COLUMNS, ROWS, then=("ALTER TABLE {t} ADD COLUMN w INT",
         "INSERT INTO {t} VALUES (8, 'h', 'v', 8)")),
         source="VALUES (2, 'a', 'x', 2), (8, 'h', 'x', 8) AS s(id, p, v, w)"),
    Case("a key that old files lack, null-safe", DELETE, does="delete", on="t.w <=> s.w",
         table=Table(COLUMNS, ROWS, then=("ALTER TABLE {t} ADD COLUMN w INT",
         "INSERT INTO {t} VALUES (8, 'h', 'v', 8)")),
         source="VALUES (CAST(NULL AS INT)) AS s(w)"),
]  # fmt: skip

PARTITION_TYPES = [
    ("INT", "1", "2", "3"),
    ("BIGINT", "-5000000000", "2", "NULL"),
    ("BOOLEAN", "true", "false", "NULL"),
    ("DATE", "DATE'0001-01-01'", "DATE'2024-02-29'", "DATE'9999-12-31'"),
    ("TIMESTAMP", "TIMESTAMP'2024-03-31 02:30:00.123456'", "TIMESTAMP'1969-12-31 23:59:59'", "NULL"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2024-03-31 02:30:00.123456'", "TIMESTAMP_NTZ'1900-01-01'", "NULL"),
    ("DECIMAL(20, 4)", "1.5", "-99999999999999.9999", "NULL"),
    ("DOUBLE", "CAST('NaN' AS DOUBLE)", "CAST('-0.0' AS DOUBLE)", "1e300D"),
    ("FLOAT", "CAST('Infinity' AS FLOAT)", "1.1F", "NULL"),
    ("BINARY", "X'6162'", "X'61'", "NULL"),
]
PARTITIONS_BY_TYPE = [
    Case(
        f"partitioned by {kind}",
        UPSERT,
        does="update, insert",
        table=Table(f"id INT, p {kind}", f"(1, {a}), (2, {b})", partitioned_by="p"),
        source=f"SELECT id, CAST(p AS {kind}) AS p FROM VALUES (1, {a}), (2, {c}), (3, {b}) AS s(id, p)",
        on="t.p <=> s.p",
    )
    for kind, a, b, c in PARTITION_TYPES
]


@pytest.mark.parametrize("case", LAYOUTS, ids=str)
def test_layouts(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", PARTITIONS_BY_TYPE, ids=str)
def test_partitions_by_type(case: Case, engines: Harness) -> None:
    engines.check(case)
