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
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_char_varchar(case: Case, engines: Harness) -> None:
    engines.check(case)
