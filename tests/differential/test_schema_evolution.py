"""WITH SCHEMA EVOLUTION, and the session's autoMerge: what the source has more, the target gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE = "WHEN MATCHED THEN UPDATE SET *"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
AUTO = {"spark.databricks.delta.schema.autoMerge.enabled": "true"}
UNRESOLVED = "DELTA_MERGE_UNRESOLVED_EXPRESSION"

TABLE = Table("id INT, v STRING", ("(1, 'a'), (2, 'b')", "(3, 'c')"))
MORE = "VALUES (2, 'B', 20), (9, 'I', 90) AS s(id, v, n)"
MORE_NONE_MATCHES = "VALUES (20, 'B', 20), (9, 'I', 90) AS s(id, v, n)"
STRUCT = Table("id INT, a STRUCT<x: INT>", "(1, struct(1)), (2, NULL)")
WIDER_STRUCT = "SELECT id, named_struct('x', id, 'y', 'new') AS a FROM VALUES (1), (2), (3) AS s(id)"
# Spark casts no array of arrays of structs to one with a further field.
ARRAYS = Table("id INT, a ARRAY<ARRAY<STRUCT<x: INT>>>, n INT", "(1, array(array(struct(1))), 1), (2, NULL, 2)")
MARKED_ARRAYS = replace(ARRAYS, properties={"delta.enableDeletionVectors": "true"})
WIDER_ARRAYS = "SELECT id, array(array(named_struct('x', id, 'y', 1))) AS a, id AS n FROM VALUES (1), (3) AS s(id)"
ALL_UPDATED = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = NULL"

CASES = [
    Case("a new column: upsert", UPSERT, does="update, insert", table=TABLE, source=MORE, evolves=True),
    Case("a new column: update", UPDATE, does="update", table=TABLE, source=MORE, evolves=True),
    Case("a new column: insert only", INSERT, does="insert", table=TABLE, source=MORE, evolves=True),
    Case("a new column: nobody matches", UPSERT, does="insert", table=TABLE, source=MORE_NONE_MATCHES, evolves=True),
    Case("a new column by the session", UPSERT, does="update, insert", table=TABLE, source=MORE, confs=AUTO,
         every_version=True),
    Case("a new column, without evolution: left out", UPSERT, does="update, insert", table=TABLE, source=MORE),
    Case("a new column first", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="VALUES (20, 2, 'B'), (90, 9, 'I') AS s(n, id, v)"),
    Case("new columns of many types", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="SELECT 2 id, 'B' v, 1.5 d, current_date() > DATE'2020-01-01' b, array(struct(1 AS x)) l, map('k', 1) m"
                " UNION ALL SELECT 9, 'I', 2.5, NULL, NULL, NULL"),
    Case("a column less in the source", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="VALUES (2), (9) AS s(id)"),
    Case("one column less, one more", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="VALUES (2, 5), (9, 6) AS s(id, n)"),
    Case("a column less in the source, without evolution", UPSERT, fails=UNRESOLVED, table=TABLE,
         source="VALUES (2), (9) AS s(id)"),
    Case("set a new column by name", "WHEN MATCHED THEN UPDATE SET n = s.n", does="update", table=TABLE, source=MORE,
         evolves=True),
    Case("insert a new column by name", "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)", does="insert",
         table=TABLE, source=MORE, evolves=True),
    Case("set a column that neither has", "WHEN MATCHED THEN UPDATE SET q = s.n", fails=UNRESOLVED, table=TABLE,
         source=MORE, evolves=True),
    Case("no new column named: the schema stays", "WHEN MATCHED THEN UPDATE SET v = s.v", does="update", table=TABLE,
         source=MORE, evolves=True),
    Case("a new column and explicit clauses beside a star",
         f"WHEN MATCHED AND s.n > 50 THEN UPDATE SET v = 'x' WHEN MATCHED THEN DELETE {INSERT}", does="delete, insert",
         table=TABLE, source=MORE, evolves=True),
    Case("a new column that differs in case only", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="VALUES (2, 'B'), (9, 'I') AS s(id, V)"),
    Case("a new column, case-sensitive", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="VALUES (2, 'B', 'x'), (9, 'I', 'y') AS s(id, v, W)", confs={"spark.sql.caseSensitive": "true"}),
    Case("a new column _change_type", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="VALUES (2, 'B', 'x'), (9, 'I', 'y') AS s(id, v, _change_type)"),
    Case("a new column, nothing to do otherwise", UPSERT, does="nothing", table=TABLE, evolves=True,
         source=f"SELECT * FROM {MORE} WHERE n > 1000"),
    Case("a new column, not matched by source beside",
         f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'gone'",
         does="update, insert", table=TABLE, source=MORE, evolves=True),
    Case("a delete evolves nothing", "WHEN MATCHED THEN DELETE", does="delete", table=TABLE, source=MORE, evolves=True),
    Case("a new column in a partitioned table", UPSERT, does="update, insert", source=MORE, evolves=True,
         table=replace(TABLE, partitioned_by="v")),
    Case("a new column in a table with a change feed", UPSERT, does="update, insert", source=MORE, evolves=True,
         table=replace(TABLE, properties={"delta.enableChangeDataFeed": "true"})),
    Case("a new column in a table with deletion vectors", UPSERT, does="update, insert", source=MORE, evolves=True,
         table=replace(TABLE, properties={"delta.enableDeletionVectors": "true"})),
    Case("a new column in a table with column mapping", UPSERT, does="update, insert", source=MORE, evolves=True,
         table=replace(TABLE, properties={"delta.columnMapping.mode": "name"})),
    Case("a new column with a space", UPSERT, fails="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", table=TABLE,
         evolves=True, source="VALUES (2, 'B', 1), (9, 'I', 2) AS s(id, v, `a b`)"),
    Case("a new column of NULL type", UPSERT, does="update, insert", table=TABLE, evolves=True,
         source="VALUES (2, 'B', NULL), (9, 'I', NULL) AS s(id, v, n)"),
    Case("a new field of a struct", UPSERT, does="update, insert", table=STRUCT, source=WIDER_STRUCT, evolves=True),
    Case("a new field, inserted only", INSERT, does="insert", table=STRUCT, source=WIDER_STRUCT, evolves=True),
    Case("a new field set by name", "WHEN MATCHED THEN UPDATE SET a.y = s.a.y", does="update", table=STRUCT,
         source=WIDER_STRUCT, evolves=True),
    Case("a field less in the source's struct", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, a STRUCT<x: INT, y: STRING>", "(1, struct(1, 'a')), (2, NULL)"),
         source="SELECT id, named_struct('x', id) AS a FROM VALUES (1), (2), (3) AS s(id)"),
    Case("a new field in an array of structs", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, a ARRAY<STRUCT<x: INT>>", "(1, array(struct(1), NULL)), (2, NULL)"),
         source="SELECT id, array(named_struct('x', id, 'y', 'n')) AS a FROM VALUES (1), (3) AS s(id)"),
    Case("a new field in a map of structs", UPSERT, does="update, insert", evolves=True,
         table=Table("id INT, a MAP<STRING, STRUCT<x: INT>>", "(1, map('k', struct(1))), (2, NULL)"),
         source="SELECT id, map('k', named_struct('x', id, 'y', 'n')) AS a FROM VALUES (1), (3) AS s(id)"),
    Case("a new field in an array of arrays of structs, to which Spark can't cast", UPSERT, evolves=True,
         fails="DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
         table=Table("id INT, a ARRAY<ARRAY<STRUCT<x: INT>>>", "(1, array(array(struct(1)))), (2, NULL)"),
         source="SELECT id, array(array(named_struct('x', id, 'y', 1))) AS a FROM VALUES (1), (3) AS s(id)"),
    Case("a new field in an array of arrays of structs, inserted only", INSERT, does="insert", evolves=True,
         table=Table("id INT, a ARRAY<ARRAY<STRUCT<x: INT>>>", "(1, array(array(struct(1)))), (2, NULL)"),
         source="SELECT id, array(array(named_struct('x', id, 'y', 1))) AS a FROM VALUES (1), (3) AS s(id)"),
    Case("no array of arrays stays that Spark can't cast: marked rows", ALL_UPDATED, does="update", evolves=True,
         table=MARKED_ARRAYS, source=WIDER_ARRAYS),
    Case("no array of arrays stays that Spark can't cast: marked rows, another column from its old value",
         "WHEN MATCHED AND s.id > 0 THEN UPDATE SET a = s.a, n = t.n + 1 WHEN NOT MATCHED THEN INSERT *",
         does="update, insert", evolves=True,
         table=MARKED_ARRAYS, source=WIDER_ARRAYS),
    Case("an array of arrays stays that Spark can't cast: marked rows",
         "WHEN MATCHED AND t.n = 1 THEN UPDATE SET n = s.n WHEN MATCHED THEN UPDATE SET *",
         evolves=True, fails="DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
         table=MARKED_ARRAYS, source=WIDER_ARRAYS),
    Case("no array of arrays stays that Spark can't cast: the rest is deleted",
         "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE", does="update, delete", evolves=True,
         table=ARRAYS, source=WIDER_ARRAYS),
    Case("no array of arrays stays that Spark can't cast: each row is updated", ALL_UPDATED, does="update",
         evolves=True, table=ARRAYS, source=WIDER_ARRAYS),
    Case("no array of maps stays that Spark can't cast: each row is updated", ALL_UPDATED, does="update", evolves=True,
         table=Table("id INT, a ARRAY<MAP<STRING, STRUCT<x: INT>>>", "(1, array(map('k', struct(1)))), (2, NULL)"),
         source="SELECT id, array(map('k', named_struct('x', id, 'y', 1))) AS a FROM VALUES (1), (3) AS s(id)"),
    Case("an array of arrays evolves for no row", "WHEN MATCHED THEN UPDATE SET *", does="nothing", evolves=True,
         table=ARRAYS, source=f"SELECT id + 100 AS id, a, n FROM ({WIDER_ARRAYS})"),
    Case("a new column of NULL type, where reads drop such columns", UPSERT, fails="DELTA_MERGE_ADD_VOID_COLUMN",
         table=TABLE, evolves=True, source="SELECT 2 AS id, 'B' AS v, NULL AS n",
         confs={"spark.databricks.delta.createDataFrame.dropNullColumns": "true"}),
    Case("a new array of NULL type", UPSERT, fails="DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE", table=TABLE,
         evolves=True, source="SELECT 2 AS id, 'B' AS v, array() AS l"),
    Case("a new struct of NULLs", UPSERT, fails="DELTA_CANNOT_WRITE_EMPTY_SCHEMA.STRUCT_ALL_VOID_FIELDS", table=TABLE,
         evolves=True, source="SELECT 2 AS id, 'B' AS v, named_struct('x', NULL) AS a"),
    Case("a new interval, which Delta can't hold", UPSERT, fails="DELTA_UNSUPPORTED_DATA_TYPES", table=TABLE,
         evolves=True, source="SELECT 2 AS id, 'B' AS v, INTERVAL '1' DAY AS i"),
    Case("two new columns that differ in case", UPSERT, fails="DELTA_DUPLICATE_COLUMNS_FOUND.DATA", table=TABLE,
         evolves=True, source="SELECT 2 AS id, 'B' AS v, 1 AS n, 2 AS N"),
    Case("a new column _change_type beside the change feed", UPSERT, fails="RESERVED_CDC_COLUMNS_ON_WRITE",
         evolves=True, table=replace(TABLE, properties={"delta.enableChangeDataFeed": "true"}),
         source="SELECT 2 AS id, 'B' AS v, 'x' AS _change_type"),
    Case("a new map in a table for Iceberg's readers", UPSERT, source="SELECT 2 AS id, 'B' AS v, map('a', 1) AS m",
         fails="DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED_DATA_TYPE", evolves=True,
         table=replace(TABLE, properties={"delta.enableIcebergCompatV1": "true", "delta.columnMapping.mode": "name"})),
    Case("a new map in a table for Iceberg's readers of version 2", UPSERT, does="update", evolves=True,
         source="SELECT 2 AS id, 'B' AS v, map('a', 1) AS m",
         table=replace(TABLE, properties={"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"})),
    Case("a new column with a space, with column mapping", UPSERT, does="update", evolves=True,
         table=replace(TABLE, properties={"delta.columnMapping.mode": "name"}),
         source="SELECT 2 AS id, 'B' AS v, 1 AS `a b`"),
    Case("a type that can't be merged", UPSERT, fails="DELTA_FAILED_TO_MERGE_FIELDS", evolves=True,
         table=TABLE, source="SELECT 2 AS id, array(1) AS v"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_schema_evolution(case: Case, engines: Harness) -> None:
    engines.check(case)
