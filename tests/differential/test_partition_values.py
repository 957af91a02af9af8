"""Partitioned tables: values of every type, NULL, odd characters, rows that move."""

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
SOURCE = "VALUES (2, 'a', 'x'), (3, 'b', 'y'), (4, 'z', 'z'), (9, 'd', 'n'), (10, NULL, 'n') AS s(id, p, v)"
ODD = [
    "''", "'a b'", "'a/b'", "'a=b'", "'100%'", "'ü€😀'", "'__HIVE_DEFAULT_PARTITION__'", "'a:b'", "'q''q'", "'#{}[]'",
]  # fmt: skip
ODD_PARTITIONS = Table("id INT, p STRING", ", ".join(f"({i}, {p})" for i, p in enumerate(ODD)), partitioned_by="p")

CASES = [
    Case("partitioned: upsert by key", UPSERT, does="update, insert", table=PARTITIONED, source=SOURCE,
         every_version=True),
    Case("partitioned: upsert by key and partition", UPSERT, does="update, insert", table=PARTITIONED, source=SOURCE,
         on="t.p = s.p AND t.id = s.id"),
    Case("partitioned: null-safe partition", UPSERT, does="update, insert", table=PARTITIONED,
         source="VALUES (5, NULL, 'x'), (6, 'c', 'y'), (6, NULL, 'y') AS s(id, p, v)",
         on="t.p <=> s.p AND t.id = s.id"),
    Case("partitioned: insert only, null-safe partition", INSERT, does="insert", table=PARTITIONED,
         source="VALUES (5, NULL, 'x'), (7, NULL, 'y'), (6, 'c', 'y') AS s(id, p, v)",
         on="t.p <=> s.p AND t.id = s.id"),
    Case("partitioned: null-safe partition alone", DELETE, does="delete", table=PARTITIONED,
         source="VALUES (CAST(NULL AS STRING)) AS s(p)", on="t.p <=> s.p"),
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
    Case("partitioned: the file names of a partition that is new", INSERT, does="insert",
         table=Table("id INT, p STRING", (), partitioned_by="p"), source="VALUES (1, 'x y'), (2, NULL) AS s(id, p)"),
    Case("partitioned: with deletion vectors, rows move", "WHEN MATCHED THEN UPDATE SET p = 'moved/to'", does="update",
         source=SOURCE, table=Table(COLUMNS, ROWS, partitioned_by="p",
                                    properties={"delta.enableDeletionVectors": "true"})),
    Case("partitioned: a date before the calendar's reform", UPSERT, does="update, insert", on="t.p = s.p",
         table=Table("id INT, p DATE", "(1, DATE'1582-10-04'), (2, DATE'0001-01-01')", partitioned_by="p"),
         source="VALUES (5, DATE'1582-10-04'), (6, DATE'1582-10-15') AS s(id, p)"),
    Case("partitioned: timestamps in another time zone", UPSERT, does="update, insert", on="t.p = s.p",
         table=Table("id INT, p TIMESTAMP", "(1, TIMESTAMP'2024-03-31 00:30:00'), (2, TIMESTAMP'2024-06-01 12:00:00')",
                     partitioned_by="p"), confs={"spark.sql.session.timeZone": "Europe/Berlin"},
         source="VALUES (5, TIMESTAMP'2024-03-31 00:30:00Z'), (6, TIMESTAMP'2024-03-31 00:30:00') AS s(id, p)"),
    Case("partitioned: an empty string beside NULL", "WHEN NOT MATCHED THEN INSERT *", does="insert", on="t.p <=> s.p",
         table=ODD_PARTITIONS, source="VALUES (99, ''), (98, 'new') AS s(id, p)"),
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_partition_values(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", PARTITIONS_BY_TYPE, ids=str)
def test_partitions_by_type(case: Case, engines: Harness) -> None:
    engines.check(case)
