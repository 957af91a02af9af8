"""CHAR and VARCHAR: lengths checked, CHAR padded."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

CASES = [
    Case("VARCHAR within its length", UPSERT, does="update, insert", table=Table("id INT, v VARCHAR(3)", "(1, 'a')"),
         source="VALUES (1, 'abc'), (2, 'ab ') AS s(id, v)"),
    Case("VARCHAR beyond its length", UPSERT, fails="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
         table=Table("id INT, v VARCHAR(3)", "(1, 'a')"), source="VALUES (1, 'abcd') AS s(id, v)"),
    Case("CHAR is padded", UPSERT, does="update, insert", table=Table("id INT, v CHAR(3)", "(1, 'a')"),
         source="VALUES (1, 'b'), (2, 'c') AS s(id, v)"),
    Case("CHAR as key, which the built-in fails to resolve", UPSERT,
         fails="DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
         table=Table("v CHAR(3), id INT", "('a', 1), ('b', 2)"),
         source="VALUES ('a', 5), ('c', 6) AS s(v, id)", on="t.v = s.v"),
    Case("VARCHAR beyond its length by spaces alone", UPSERT, fails="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
         table=Table("id INT, v VARCHAR(3)", "(1, 'a')"), source="VALUES (1, 'abc  ') AS s(id, v)"),
    Case("CHAR beyond its length", UPSERT, fails="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
         table=Table("id INT, v CHAR(3)", "(1, 'a')"), source="VALUES (1, 'abcd') AS s(id, v)"),
    Case("VARCHAR beyond its length in an array", UPSERT, fails="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
         table=Table("id INT, v ARRAY<VARCHAR(3)>", "(1, array('a'))"), source="SELECT 1 AS id, array('abcd') AS v"),
    Case("VARCHAR in a struct", UPSERT, does="update, insert",
         table=Table("id INT, a STRUCT<v: VARCHAR(3)>", "(1, named_struct('v', 'a'))"),
         source="SELECT id, named_struct('v', 'abc') AS a FROM VALUES (1), (2) AS s(id)"),
    Case("CHAR in a struct", UPSERT, does="update, insert",
         table=Table("id INT, a STRUCT<c: CHAR(3)>", "(1, named_struct('c', 'a'))"),
         source="SELECT id, named_struct('c', 'b') AS a FROM VALUES (1), (2) AS s(id)"),
    Case("VARCHAR in characters, not bytes", UPSERT, does="update, insert",
         table=Table("id INT, v VARCHAR(3)", "(1, 'a')"), source="VALUES (1, 'üüü'), (2, '😀数') AS s(id, v)"),
    Case("VARCHAR as key", "WHEN MATCHED THEN UPDATE SET id = s.id WHEN NOT MATCHED THEN INSERT *", on="t.v = s.v",
         does="update, insert", table=Table("v VARCHAR(5), id INT", "('a', 1), ('a ', 2)"),
         source="VALUES ('a', 5), ('c', 6) AS s(v, id)"),
    Case("CHAR as partition", "WHEN NOT MATCHED THEN INSERT *", does="insert", source="VALUES (5, 'c') AS s(id, v)",
         table=Table("id INT, v CHAR(3)", "(1, 'a'), (2, 'b')", partitioned_by="v")),
    Case("CHAR read as a string by the session", UPSERT, does="update, insert",
         table=Table("id INT, v CHAR(3)", "(1, 'a')"), source="VALUES (1, 'abcd'), (2, 'c') AS s(id, v)",
         confs={"spark.sql.legacy.charVarcharAsString": "true"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_char_varchar(case: Case, engines: Harness) -> None:
    engines.check(case)
