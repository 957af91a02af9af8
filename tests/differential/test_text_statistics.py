"""Statistics of text columns: in copied files the same as Delta's writer collects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

#: Files are copied however small they are, and their statistics gathered by Arrow.
COPIED = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.copyFilesFromBytes": "0"}
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
VECTORS = {"delta.enableDeletionVectors": "true"}


def _texts(name: str, first: str, second: str, **others: object) -> Case:
    """One file whose two rows have a text each: the first is updated, the other stays."""
    table = Table(
        "id INT, v STRING, n DECIMAL(38, 18), d DOUBLE",
        f"SELECT id, v, n, d FROM VALUES (1, {first}, 0.5BD, 2.0D), "
        f"(9, {second}, 12345678901234567890.123456789012345678BD, CAST('NaN' AS DOUBLE)) AS s(id, v, n, d)",
    )
    source = f"SELECT * FROM VALUES (1, {first}, 0.10BD, -0.0D), (2, {second}, NULL, 1e300D) AS s(id, v, n, d)"
    return Case(name, UPSERT, does="update, insert", table=table, source=source, **others)  # type: ignore[arg-type]


NAMES = "`a``b` STRING, `c.d` STRING, `Größe` STRUCT<`x.y`: STRING, z: INT>, `'\"` INT"
NAMES_OF_MAPPED = NAMES + ", `e, f` STRING, `ä; ü` INT"
NAMED = "('a', 'b', struct('x', 2), 1), (NULL, '', NULL, NULL)"
NAMED_SOURCE = "SELECT `a``b`, `c.d` FROM {t} UNION ALL SELECT 'k', 'l'"
NAMED_CLAUSES = (
    "WHEN MATCHED THEN UPDATE SET `a``b` = concat(s.`a``b`, '!') WHEN NOT MATCHED THEN INSERT (`c.d`) VALUES (s.`c.d`)"
)
NAMED_ON = "t.`c.d` = s.`c.d`"
MIXED = "id INT, p STRING, v STRING, a ARRAY<STRING>, m MAP<STRING, INT>, b BINARY, t TIMESTAMP, f BOOLEAN"
MIXED_ROWS = (
    "(1, 'a', 'x', array('q'), map('k', 1), X'00', TIMESTAMP'2024-01-01 00:00:00.123456', true), "
    "(2, 'b', NULL, NULL, NULL, NULL, NULL, NULL)"
)
MIXED_SOURCE = (
    "SELECT 2 AS id, 'b' AS p, 'y' AS v, array('r') AS a, map('l', 2) AS m, X'FF' AS b, "
    "TIMESTAMP'2025-01-01 00:00:00' AS t, false AS f UNION ALL SELECT 3, 'b', NULL, NULL, NULL, NULL, NULL, NULL"
)

#: One file of two rows: one is updated, the other stays.
ONE_STAYS = [
    _texts("short", "'a'", "'b'"),
    _texts("empty", "''", "'b'"),
    _texts("NULL in some rows", "CAST(NULL AS STRING)", "'b'"),
    _texts("NULL in all rows", "CAST(NULL AS STRING)", "CAST(NULL AS STRING)"),
    _texts("what JSON escapes", "'\\\\ \" \\n \\u0001 {'", "'\"minValues\":{'"),
    _texts("of the prefix's length", "repeat('a', 32)", "repeat('z', 32)"),
    _texts("longer than the prefix", "repeat('a', 33)", "repeat('z', 100)"),
    _texts("long ones beyond ASCII", "repeat('ä', 40)", "repeat('ß', 33)"),
    _texts("cut within a pair of surrogates", "concat(repeat('a', 31), '😀😀')", "concat(repeat('z', 31), '😀😀')"),
    _texts("the greatest characters", "concat(repeat('a', 32), '\U0010ffff')", "repeat('\U0010ffff', 40)"),
    _texts("above and below the BMP", "'\uffff'", "'😀'"),
    _texts("very long", "repeat('a', 3000)", "repeat('z', 5000)"),
    _texts("very long ones beyond ASCII", "repeat('ä', 1500)", "repeat('€', 2500)"),
    _texts("prefix of the session", "repeat('a', 10)", "repeat('z', 10)",
           confs={"spark.databricks.io.skipping.stringPrefixLength": "4"}),
    _texts("a long prefix", "repeat('a', 900)", "repeat('z', 900)",
           confs={"spark.databricks.io.skipping.stringPrefixLength": "800"}),
    _texts("cut in footers", "repeat('a', 20)", "repeat('z', 20)",
           confs={"parquet.statistics.truncate.length": "8"}),
    _texts("footers without statistics", "'a'", "'z'", confs={"parquet.column.statistics.enabled": "false"}),
    _texts("several row groups", "'a'", "'b'",
           confs={"parquet.block.size": "1", "parquet.block.size.row.check.min": "1"}),
    Case("beside other types", UPSERT, does="update, insert", table=Table(MIXED, MIXED_ROWS), source=MIXED_SOURCE),
]  # fmt: skip

CASES = [
    *ONE_STAYS,
    Case("prefix of the table", UPSERT, does="update, insert",
         table=Table("id INT, v STRING", "(1, 'abcdefgh')", properties={"delta.dataSkippingStringPrefixLength": "3"}),
         source="VALUES (1, 'abcdefgh'), (2, 'stuvwxyz') AS s(id, v)"),
    Case("nothing but texts", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k STRING, v STRING", "('a', 'x'), ('b', NULL)"),
         source="VALUES ('b', 'y'), ('c', 'z') AS s(k, v)"),
    Case("names", NAMED_CLAUSES, does="update, insert", on=NAMED_ON, table=Table(NAMES, NAMED), source=NAMED_SOURCE),
    Case("names of mapped columns", NAMED_CLAUSES, does="update, insert", on=NAMED_ON, source=NAMED_SOURCE,
         table=Table(NAMES_OF_MAPPED, "('a', 'b', struct('x', 2), 1, 'e', 5), (NULL, '', NULL, NULL, NULL, 6)",
                     properties={"delta.columnMapping.mode": "name"})),
    Case("mapped by id", NAMED_CLAUSES, does="update, insert", on=NAMED_ON, source=NAMED_SOURCE,
         table=Table(NAMES, NAMED, properties={"delta.columnMapping.mode": "id"})),
    Case("renamed columns", UPSERT, does="update, insert",
         table=Table("id INT, v STRING, w STRING", "(1, 'a', 'b')", properties={"delta.columnMapping.mode": "name"},
                     then=("ALTER TABLE {t} RENAME COLUMN v TO x", "ALTER TABLE {t} RENAME COLUMN w TO v")),
         source="VALUES (1, 'c', 'd'), (2, 'e', NULL) AS s(id, x, v)"),
    Case("partitioned by a text", UPSERT, does="update, insert", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS, partitioned_by="p")),
    Case("clustered by a text", UPSERT, does="update, insert", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS, cluster_by="v")),
    Case("change data", "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *", does="delete, insert",
         table=Table(MIXED, MIXED_ROWS, properties={"delta.enableChangeDataFeed": "true"}), source=MIXED_SOURCE),
    Case("deletion vectors", UPSERT, does="update, insert", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS, properties=VECTORS)),
    Case("inserts alone", "WHEN NOT MATCHED THEN INSERT *", does="insert", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS)),
    Case("row tracking", UPSERT, does="update, insert", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS, properties={"delta.enableRowTracking": "true"})),
    Case("the first columns alone", UPSERT, does="update, insert", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS, properties={"delta.dataSkippingNumIndexedCols": "2"})),
    Case("chosen columns", UPSERT, does="update, insert", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS, properties={"delta.dataSkippingStatsColumns": "v,id"})),
    Case("a part of a struct", UPSERT, does="update, insert",
         table=Table("s STRUCT<a: STRING, b: STRING, c: INT>, id INT, v STRING", "(struct('a', 'b', 1), 1, 'v')",
                     properties={"delta.dataSkippingStatsColumns": "s.a, s.c, v"}),
         source="SELECT named_struct('a', 'x', 'b', 'y', 'c', 2) AS s, id, 'w' AS v FROM VALUES (1), (2) AS s(id)"),
    Case("CHAR and VARCHAR", UPSERT, does="update, insert",
         table=Table("id INT, c CHAR(5), v VARCHAR(5)", "(1, 'a', 'b')"),
         source="VALUES (1, 'c', 'd'), (2, 'e', 'f') AS s(id, c, v)"),
    Case("variants", UPSERT, does="update, insert",
         table=Table("id INT, v VARIANT, w STRING", "SELECT 1, parse_json('{\"a\": 1}'), 'w'"),
         source="SELECT id, parse_json('2') AS v, 'x' AS w FROM VALUES (1), (2) AS s(id)"),
    Case("a schema that evolves", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, v STRING", "(1, 'a')"), source="VALUES (1, 'b', 'n'), (2, 'c', 'm') AS s(id, v, added)"),
    Case("a generated text", does="update, insert", source="VALUES (1), (5) AS s(id)",
         clauses="WHEN MATCHED THEN UPDATE SET id = s.id + 1 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
         table=Table("id INT, v STRING GENERATED ALWAYS AS (CAST(id AS STRING))", "INSERT INTO {t} (id) VALUES (1)")),
]  # fmt: skip


#: An upsert writes a file beside the copy, where the built-in writes one. Where a row is deleted, both write one.
COPIES = [
    *(replace(case, clauses="WHEN MATCHED THEN DELETE", does="delete") for case in ONE_STAYS),
    Case("partitioned by a text", "WHEN MATCHED THEN DELETE", does="delete", source=MIXED_SOURCE,
         table=Table(MIXED, MIXED_ROWS.replace("'b'", "'a'"), partitioned_by="p")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_statistics(case: Case, engines: Harness) -> None:
    engines.check(replace(case, confs={**COPIED, **case.confs}))


@pytest.mark.parametrize("case", COPIES, ids=str)
def test_the_same_statistics_of_a_copy(case: Case, engines: Harness) -> None:
    engines.check(replace(case, confs={**COPIED, **case.confs}))
