"""Types that came with Spark 4: variants and collated strings."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPDATE_V = "WHEN MATCHED THEN UPDATE SET v = s.v"
NO_TYPE_CHECK = {"spark.databricks.delta.schema.typeCheck.enabled": "false"}  # Delta refuses collated columns
CASES = [
    Case("variant values", "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *", does="update, insert",
         table=Table("id INT, v VARIANT", "(1, parse_json('{\"a\": 1}')), (2, NULL)"),
         source="SELECT id, parse_json(j) AS v FROM VALUES (1, '[1]'), (3, '{}') AS s(id, j)"),
    Case("a condition on a variant", "WHEN MATCHED AND t.v:a::int = 1 THEN DELETE", does="delete",
         table=Table("id INT, v VARIANT", "(1, parse_json('{\"a\": 1}')), (2, NULL)"),
         source="VALUES (1), (2) AS s(id)"),
    Case("collated keys outside of the file's range", UPDATE_V, does="update", on="t.k = s.k",
         table=Table("k STRING COLLATE UTF8_LCASE, v INT", ("('abc', 1)", "('XYZ', 2)"), confs=NO_TYPE_CHECK),
         source="SELECT CAST(k AS STRING COLLATE UTF8_LCASE) k, v FROM VALUES ('ABC', 20), ('xyz', 30) AS s(k, v)"),
    Case("a collation in the condition", UPDATE_V, does="update", on="t.k = s.k COLLATE UTF8_LCASE",
         table=Table("k STRING, v INT", ("('abc', 1)", "('XYZ', 2)")), source="VALUES ('ABC', 20) AS s(k, v)"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_spark_4_types(case: Case, engines: Harness) -> None:
    engines.check(case)
