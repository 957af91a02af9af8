"""Statistics: which columns have them, cut strings, files without them."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
COLUMNS = "id INT, p STRING, v STRING"
ROWS = ("(1, 'a', 'v1'), (2, 'a', 'v2'), (3, 'b', 'v3')", "(4, 'b', 'v4'), (5, NULL, 'v5'), (6, 'c', 'v6')")
SOURCE = "VALUES (2, 'a', 'x'), (3, 'b', 'y'), (4, 'z', 'z'), (9, 'd', 'n'), (10, NULL, 'n') AS s(id, p, v)"

CASES = [
    Case("files without statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, confs={"spark.databricks.delta.stats.collect": "false"})),
    Case("some files without statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, (*ROWS, "(2, 'stats', 'v')"), then=("INSERT INTO {t} VALUES (9, 'x', 'y')",))),
    Case("keys beyond the columns with statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingNumIndexedCols": "0"})),
    Case("a delete from a file without columns with statistics", "WHEN MATCHED THEN DELETE", does="delete",
         source=SOURCE, table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingNumIndexedCols": "0"})),
    Case("a delete from a file whose only column with statistics is an array", "WHEN MATCHED THEN DELETE",
         does="delete", table=Table("a ARRAY<INT>, id INT", "(array(1, 2), 1), (NULL, 2), (array(), 3)",
                                    properties={"delta.dataSkippingNumIndexedCols": "1"}),
         source="SELECT 1 AS id"),
    Case("statistics on another column than the key", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingStatsColumns": "v"})),
    Case("long strings with cut statistics", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k STRING, n INT", ("(repeat('é', 40), 1), (repeat('a', 100), 2)", "(repeat('z', 33), 3)")),
         source="SELECT repeat('é', 40) k, 10 n UNION ALL SELECT repeat('a', 100), 20 "
                "UNION ALL SELECT repeat('a', 99), 3 UNION ALL SELECT repeat('z', 33), 4"),
    Case("long strings above the BMP, mapped columns", UPSERT, does="update, insert",
         table=Table("id INT, v STRING, `n ä` STRING", "(1, 'a', NULL), (2, repeat('ä', 40), 'n')",
                     properties={"delta.columnMapping.mode": "name"}),
         source="SELECT 1 AS id, 'b' AS v, repeat('😀', 40) AS `n ä` UNION ALL SELECT 3, '', NULL",
         every_version=True),
    Case("string keys above the BMP at the end of the range", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k STRING, n INT", ("(concat(repeat('a', 40), '😀'), 1)", "(repeat('\uffff', 40), 2)")),
         source="SELECT concat(repeat('a', 40), '😀') k, 1 n UNION ALL SELECT repeat('\uffff', 40), 5"
                " UNION ALL SELECT '😀', 6"),
    Case("indexed columns: the first one only", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingNumIndexedCols": "1"})),
    Case("indexed columns: all", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingNumIndexedCols": "-1"})),
    Case("statistics on a nested column", UPSERT, does="update, insert",
         table=Table("id INT, a STRUCT<x: INT, y: STRING>", "(1, struct(1, 'a')), (2, NULL)",
                     properties={"delta.dataSkippingStatsColumns": "a.x"}),
         source="SELECT id, named_struct('x', 5, 'y', 'b') AS a FROM VALUES (2), (3) AS s(id)"),
    Case("statistics on a mapped column", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingStatsColumns": "p,v",
                                                "delta.columnMapping.mode": "name"})),
    Case("statistics with deletion vectors: wide bounds", "WHEN MATCHED THEN UPDATE SET v = s.v", does="update",
         source=SOURCE, table=Table(COLUMNS, ROWS, properties={"delta.enableDeletionVectors": "true"})),
    Case("statistics switched off by the session", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS), confs={"spark.databricks.delta.stats.collect": "false"}),
    Case("statistics of columns that are all NULL", UPSERT, does="update, insert",
         table=Table("id INT, v STRING, d DATE", "(1, NULL, NULL)"),
         source="SELECT id, CAST(NULL AS STRING) AS v, CAST(NULL AS DATE) AS d FROM VALUES (1), (2) AS s(id)"),
    Case("a key whose statistics are NaN", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k DOUBLE, n INT", ("(CAST('NaN' AS DOUBLE), 1), (1.5, 2)", "(7, 3)")),
         source="VALUES (CAST('NaN' AS DOUBLE), 10), (7D, 30), (8D, 40) AS s(k, n)"),
    Case("timestamps whose statistics are cut to milliseconds", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k TIMESTAMP, n INT", ("(TIMESTAMP'2024-01-01 00:00:00.123456', 1)",
                                            "(TIMESTAMP'2024-06-01 00:00:00.999999', 2)")),
         source="VALUES (TIMESTAMP'2024-01-01 00:00:00.123456', 10), (TIMESTAMP'2024-06-01 00:00:00.999999', 20), "
                "(TIMESTAMP'2024-06-01 00:00:00.999998', 30) AS s(k, n)"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_statistics(case: Case, engines: Harness) -> None:
    engines.check(case)
