"""Types that came with Spark 4: variants and collated strings."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE_V = "WHEN MATCHED THEN UPDATE SET v = s.v"
VARIANT_BOUNDS = {
    "spark.databricks.delta.variantShredding.parseFooterForStats": "true",
    "spark.databricks.delta.stats.limitPerVariant": "10",
}
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
    Case("a variant as source of several columns", "WHEN MATCHED THEN UPDATE SET v = s.j:b, n = s.j:a::int "
         "WHEN NOT MATCHED THEN INSERT (id, v, n) VALUES (s.id, s.j, 0)", does="update, insert",
         table=Table("id INT, v VARIANT, n INT", "(1, parse_json('1'), 1), (2, NULL, 2)"),
         source="SELECT id, parse_json(j) AS j FROM VALUES (1, '{\"a\": 5, \"b\": [1]}'), (3, '7') AS s(id, j)"),
    Case("variants in structs and arrays", UPSERT, does="update, insert",
         table=Table("id INT, a STRUCT<v: VARIANT>, l ARRAY<VARIANT>",
                     "(1, named_struct('v', parse_json('1')), array(parse_json('2')))"),
         source="SELECT id, named_struct('v', parse_json('[3]')) AS a, array(parse_json('4'), NULL) AS l "
                "FROM VALUES (1), (2) AS s(id)"),
    Case("variants with change data and deletion vectors", UPSERT, does="update, insert",
         table=Table("id INT, v VARIANT", "(1, parse_json('1')), (2, NULL)",
                     properties={"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}),
         source="SELECT id, parse_json(j) AS v FROM VALUES (1, '[1]'), (3, '{}') AS s(id, j)"),
    Case("variants with bounds, in files that get deletion vectors", UPDATE_V, does="update", confs=VARIANT_BOUNDS,
         table=Table("id INT, v VARIANT", "SELECT CAST(id AS INT), parse_json('{\"a\": ' || id || '}') FROM range(3)",
                     properties={"delta.enableVariantShredding": "true", "delta.enableDeletionVectors": "true"},
                     confs=VARIANT_BOUNDS), source="SELECT 1 AS id, parse_json('[1]') AS v"),
    Case("a new variant column", UPSERT, does="update, insert", evolves=True, table=Table("id INT", "(1), (2)"),
         source="SELECT id, parse_json('[1]') AS v FROM VALUES (1), (3) AS s(id)"),
    Case("collated values", UPSERT, does="update, insert",
         table=Table("id INT, v STRING COLLATE UTF8_LCASE", "(1, 'a'), (2, 'B')", confs=NO_TYPE_CHECK),
         source="VALUES (1, 'A'), (2, 'b'), (3, 'C') AS s(id, v)"),
    Case("a collated condition of a clause", "WHEN MATCHED AND t.v = 'ABC' THEN DELETE", does="delete",
         table=Table("id INT, v STRING COLLATE UTF8_LCASE", "(1, 'abc'), (2, 'x')", confs=NO_TYPE_CHECK),
         source="VALUES (1), (2) AS s(id)"),
    Case("collated keys that are equal meet twice", UPDATE_V, on="t.k = s.k",
         fails="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
         table=Table("k STRING COLLATE UTF8_LCASE, v INT", "('abc', 1)", confs=NO_TYPE_CHECK),
         source="SELECT CAST(k AS STRING COLLATE UTF8_LCASE) k, v FROM VALUES ('ABC', 20), ('abC', 30) AS s(k, v)"),
    Case("collated keys, insert only", "WHEN NOT MATCHED THEN INSERT *", does="insert", on="t.k = s.k",
         table=Table("k STRING COLLATE UNICODE_CI, v INT", ("('abc', 1)", "('ü', 2)"), confs=NO_TYPE_CHECK),
         source="SELECT CAST(k AS STRING COLLATE UNICODE_CI) k, v "
                "FROM VALUES ('ABC', 20), ('Ü', 30), ('z', 1) AS s(k, v)"),
    Case("collated keys, not matched by source", "WHEN NOT MATCHED BY SOURCE THEN DELETE", does="delete",
         on="t.k = s.k",
         table=Table("k STRING COLLATE UTF8_LCASE, v INT", ("('abc', 1)", "('XYZ', 2)"), confs=NO_TYPE_CHECK),
         source="SELECT CAST('ABC' AS STRING COLLATE UTF8_LCASE) AS k"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_spark_4_types(case: Case, engines: Harness) -> None:
    engines.check(case)
