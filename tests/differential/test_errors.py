"""What the built-in refuses, ours refuses with the same error condition, and writes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import PEOPLE, Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
GENERATED = Table("id INT, twice INT GENERATED ALWAYS AS (id * 2)", "INSERT INTO {t} (id) VALUES (1)")
STRUCT = Table("id INT, a STRUCT<x: INT>", "(1, struct(1)), (2, struct(2))")

ANALYSIS = [
    Case("a missing column in the condition", UPSERT, on="t.id = s.nope", fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a missing column in a clause's condition", "WHEN MATCHED AND s.nope > 1 THEN DELETE",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a missing column in a value", "WHEN MATCHED THEN UPDATE SET age = s.nope",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a missing column to update", "WHEN MATCHED THEN UPDATE SET nope = 1",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION", every_version=True),
    Case("a missing column to insert", "WHEN NOT MATCHED THEN INSERT (id, nope) VALUES (1, 2)",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a column of the target in an inserted value", "WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a column of the target in an insert's condition", "WHEN NOT MATCHED AND t.age > 1 THEN INSERT *",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a column of the source when not matched by source", fails="DELTA_MERGE_UNRESOLVED_EXPRESSION",
         clauses="WHEN NOT MATCHED BY SOURCE THEN UPDATE SET age = s.age"),
    Case("star without a column of the target", UPSERT, fails="DELTA_MERGE_UNRESOLVED_EXPRESSION",
         source="VALUES (2, 'B') AS s(id, name)"),
    Case("an ambiguous column", "WHEN MATCHED THEN UPDATE SET age = age + 1", fails="AMBIGUOUS_REFERENCE"),
    Case("an ambiguous source column", UPSERT, fails="AMBIGUOUS_REFERENCE",
         source="SELECT 2 AS id, 3 AS id, 'x' AS name, 1 AS age"),
    Case("a condition that is no boolean", UPSERT, on="t.id + s.id", fails="JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE"),
    Case("number as condition", "WHEN MATCHED AND s.id THEN DELETE", fails="CANNOT_UP_CAST_DATATYPE"),
    Case("types that can't be compared", UPSERT, on="t.id = array(s.id)",
         fails="DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES"),
    Case("an unknown function", UPSERT, on="nope(t.id) = s.id", fails="UNRESOLVED_ROUTINE"),
    Case("an aggregate in the condition", UPSERT, on="max(t.id) = s.id", fails="DELTA_AGGREGATION_NOT_SUPPORTED"),
    Case("an aggregate in a clause's condition", "WHEN MATCHED AND max(s.id) > 1 THEN DELETE",
         fails="DELTA_AGGREGATION_NOT_SUPPORTED"),
    Case("rand() in the condition", UPSERT, on="t.id = s.id AND rand() < 2",
         fails="DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
    Case("rand() in a clause's condition", "WHEN MATCHED AND rand() < 2 THEN DELETE",
         fails="DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
    Case("a subquery in the condition", UPSERT, on="t.id = s.id AND t.id IN (SELECT 2)",
         fails="DELTA_UNSUPPORTED_SUBQUERY"),
    Case("a scalar subquery in the condition", UPSERT, on="t.id = (SELECT 2)", fails="DELTA_UNSUPPORTED_SUBQUERY"),
    Case("a subquery in a clause's condition", "WHEN MATCHED AND s.id = (SELECT max(3)) THEN DELETE",
         fails="DELTA_UNSUPPORTED_SUBQUERY"),
    Case("DEFAULT as a value of a column without default", "WHEN MATCHED THEN UPDATE SET age = DEFAULT",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("fewer values than columns", "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (1)",
         fails="MERGE_INSERT_VALUE_COUNT_MISMATCH"),
    Case("a clause without condition before another", "WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *",
         fails="NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION"),
    Case("an insert without condition before another",
         "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED AND s.id > 1 THEN INSERT *",
         fails="NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION"),
    Case("an update when not matched", "WHEN NOT MATCHED THEN UPDATE SET age = 1", fails="PARSE_SYNTAX_ERROR"),
    Case("an insert when matched", "WHEN MATCHED THEN INSERT *", fails="PARSE_SYNTAX_ERROR"),
    Case("no clause at all", " ", fails="MERGE_WITHOUT_WHEN"),
    Case("no statement", merge="nonsense", fails="PARSE_SYNTAX_ERROR"),
    Case("the target doesn't exist", merge=f"MERGE INTO nope AS t USING {{s}} AS s ON t.id = s.id {UPSERT}",
         fails="TABLE_OR_VIEW_NOT_FOUND"),
    Case("the target's path doesn't exist", fails="PATH_NOT_FOUND",
         merge=f"MERGE INTO delta.`/nope/nowhere` AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("the source doesn't exist", UPSERT, source="nope", fails="TABLE_OR_VIEW_NOT_FOUND"),
    Case("the source's path doesn't exist", UPSERT, source="parquet.`/nope/nowhere`", fails="PATH_NOT_FOUND"),
    Case("the target is parquet", fails="UNSUPPORTED_FEATURE.TABLE_OPERATION",
         before="INSERT OVERWRITE DIRECTORY '{path}-p' USING parquet SELECT 1 AS id",
         merge="MERGE INTO parquet.`{path}-p` AS t USING {s} AS s ON t.id = s.id WHEN MATCHED THEN DELETE"),
    Case("the target is a query's view", fails="UNSUPPORTED_FEATURE.TABLE_OPERATION",
         before="CREATE OR REPLACE TEMPORARY VIEW some AS SELECT 1 AS id",
         merge="MERGE INTO some AS t USING {s} AS s ON t.id = s.id WHEN MATCHED THEN DELETE"),
    Case("an older version as target", fails="PARSE_SYNTAX_ERROR",
         merge="MERGE INTO {t} VERSION AS OF 0 AS t USING {s} AS s ON t.id = s.id WHEN MATCHED THEN DELETE"),
    Case("a map as key", UPSERT, table=Table("id INT, m MAP<STRING, INT>", "(1, map('a', 1))"), on="t.m = s.m",
         source="SELECT 1 AS id, map('a', 1) AS m", fails="DATATYPE_MISMATCH.INVALID_ORDERING_TYPE"),
    Case("a column twice in an insert", "WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)",
         fails="DELTA_DUPLICATE_COLUMNS_ON_INSERT"),
    Case("a column twice in an insert, in another case, beside a generated one",
         "WHEN NOT MATCHED THEN INSERT (id, ID) VALUES (1, 2)", fails="DELTA_DUPLICATE_COLUMNS_ON_INSERT",
         table=GENERATED),
    Case("a field in an insert's columns", "WHEN NOT MATCHED THEN INSERT (a.x) VALUES (1)", table=STRUCT,
         fails="DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION"),
    Case("a field of a map to set", "WHEN MATCHED THEN UPDATE SET m.x = 1", source="SELECT 1 AS id",
         table=Table("id INT, m MAP<STRING, INT>", "(1, map('x', 1))"),
         fails="DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE"),
    Case("a field of a number to set", "WHEN MATCHED THEN UPDATE SET age.x = 1",
         fails="INVALID_EXTRACT_BASE_FIELD_TYPE"),
    Case("an unknown field to set", "WHEN MATCHED THEN UPDATE SET a.nope = 1", table=STRUCT, fails="FIELD_NOT_FOUND"),
    Case("an unknown field in a value", "WHEN MATCHED THEN UPDATE SET id = t.a.nope", table=STRUCT,
         fails="FIELD_NOT_FOUND"),
    Case("an array's element to set", "WHEN MATCHED THEN UPDATE SET l[0] = 1", fails="PARSE_SYNTAX_ERROR"),
    Case("a field twice in an update", "WHEN MATCHED THEN UPDATE SET a.x = 1, a.X = 2", table=STRUCT,
         fails="DELTA_CONFLICT_SET_COLUMN"),
    Case("an aggregate as value", "WHEN MATCHED THEN UPDATE SET name = max(s.name)",
         fails="UNSUPPORTED_EXPR_FOR_OPERATOR"),
    Case("a window as value", "WHEN MATCHED THEN UPDATE SET age = row_number() OVER (ORDER BY s.id)",
         fails="UNSUPPORTED_EXPR_FOR_OPERATOR"),
    Case("a window in the condition", UPSERT, on="t.id = row_number() OVER (ORDER BY s.id)",
         fails="UNSUPPORTED_EXPR_FOR_OPERATOR"),
    Case("a generator as value", "WHEN MATCHED THEN UPDATE SET age = explode(array(1, 2))",
         fails="UNSUPPORTED_GENERATOR.OUTSIDE_SELECT"),
    Case("a generator in the condition", UPSERT, on="t.id = explode(array(1))",
         fails="UNSUPPORTED_GENERATOR.OUTSIDE_SELECT"),
    Case("a correlated subquery as value", fails="UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY."
         "UNSUPPORTED_CORRELATED_SCALAR_SUBQUERY", clauses="WHEN MATCHED THEN UPDATE SET name = "
         "(SELECT max(x) FROM VALUES ('a') AS q(x) WHERE q.x = s.name)"),
    Case("IN with a subquery as value", "WHEN MATCHED THEN UPDATE SET name = CAST(t.id IN (SELECT 2) AS STRING)",
         fails="UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY.UNSUPPORTED_IN_EXISTS_SUBQUERY"),
    Case("EXISTS as value", "WHEN MATCHED THEN UPDATE SET name = CAST(EXISTS (SELECT 2) AS STRING)",
         fails="UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY.UNSUPPORTED_IN_EXISTS_SUBQUERY"),
    Case("rand() in a by-source clause's condition", "WHEN NOT MATCHED BY SOURCE AND rand() > 2 THEN DELETE",
         fails="DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
    Case("too few arguments", "WHEN MATCHED THEN UPDATE SET name = upper()",
         fails="WRONG_NUM_ARGS.WITHOUT_SUGGESTION"),
    Case("a DATE for an INT", "WHEN MATCHED THEN UPDATE SET age = DATE'2024-01-01'",
         fails="DATATYPE_MISMATCH.CAST_WITH_FUNC_SUGGESTION"),
    Case("an INT for a BINARY", UPSERT, table=Table("id INT, v BINARY", "(1, X'00')"), source="SELECT 1 AS id, 5 AS v",
         fails="DATATYPE_MISMATCH.CAST_WITH_CONF_SUGGESTION"),
    Case("a variant as key", UPSERT, table=Table("id INT, v VARIANT", "(1, parse_json('1'))"), on="t.v = s.v",
         source="SELECT 1 AS id, parse_json('2') AS v", fails="DATATYPE_MISMATCH.INVALID_ORDERING_TYPE"),
    Case("two collations at once", UPSERT, fails="COLLATION_MISMATCH.EXPLICIT",
         on="t.name COLLATE UNICODE = s.name COLLATE UTF8_LCASE"),
    Case("an unknown column in the source's query", UPSERT, source="SELECT nope AS id FROM VALUES (1) AS q(x)",
         fails="UNRESOLVED_COLUMN.WITH_SUGGESTION"),
    Case("a column that the source doesn't group by", UPSERT, fails="MISSING_AGGREGATION",
         source="SELECT id, name, 1 AS age FROM VALUES (1, 'x') AS q(id, name) GROUP BY id"),
    Case("source and target of one alias", fails="AMBIGUOUS_REFERENCE",
         merge=f"MERGE INTO {{t}} AS t USING {{s}} AS t ON t.id = t.id {UPSERT}"),
    Case("the target in an unknown catalog", fails="REQUIRES_SINGLE_PART_NAMESPACE",
         merge=f"MERGE INTO nope.a.b AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("the target's folder holds another format", fails="DELTA_TABLE_NOT_FOUND",
         before="INSERT OVERWRITE DIRECTORY '{path}-p' USING parquet SELECT 1 AS id",
         merge=f"MERGE INTO delta.`{{path}}-p` AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("an older version by its path as target", fails="DELTA_FAILED_SCAN_WITH_HISTORICAL_VERSION",
         merge=f"MERGE INTO delta.`{{path}}@v0` AS t USING {{s}} AS s ON t.id = s.id {UPSERT}"),
    Case("a table without columns as target", fails="DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET",
         before="CREATE TABLE delta.`{path}-e` USING delta",
         merge="MERGE INTO delta.`{path}-e` AS t USING {s} AS s ON s.id = 2 WHEN NOT MATCHED THEN INSERT *"),
    Case("half of an idempotent transaction", UPSERT, fails="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
         confs={"spark.databricks.delta.write.txnAppId": "app"}),
]  # fmt: skip

MATCHED, NOT_MATCHED, BY_SOURCE = "WHEN MATCHED", "WHEN NOT MATCHED", "WHEN NOT MATCHED BY SOURCE"
DELETE, INSERT = "THEN DELETE", "THEN INSERT *"
MARKED = replace(PEOPLE, properties={"delta.enableDeletionVectors": "true"})
COMBINED, FILTERED, BRANCHED = (
    f"DATATYPE_MISMATCH.{what}" for what in ("BINARY_OP_DIFF_TYPES", "FILTER_NOT_BOOLEAN", "UNEXPECTED_INPUT_TYPE")
)

NO_BOOLEANS = [
    Case("string as condition", f"{MATCHED} AND t.id > 1 {DELETE} {MATCHED} AND s.name {DELETE}", fails=BRANCHED),
    Case("a struct as condition", f"{MATCHED} AND struct(s.id) THEN UPDATE SET age = 1",
         fails="CANNOT_UP_CAST_DATATYPE"),
    Case("a number beside another condition", f"{MATCHED} AND t.id > 1 {DELETE} {MATCHED} AND s.id {DELETE}",
         fails=COMBINED),
    Case("an untyped NULL beside another condition", f"{MATCHED} AND t.id > 1 {DELETE} {MATCHED} AND NULL {DELETE}",
         fails=BRANCHED),
    Case("an insert's number", f"{NOT_MATCHED} AND s.id {INSERT}", fails=FILTERED),
    Case("an insert's string", f"{NOT_MATCHED} AND s.name {INSERT}", fails=FILTERED),
    Case("an insert's number beside another insert", f"{NOT_MATCHED} AND s.id {INSERT} {NOT_MATCHED} {INSERT}",
         fails=BRANCHED),
    Case("an insert's number beside another insert, marked", table=MARKED, fails=BRANCHED,
         clauses=f"{NOT_MATCHED} AND s.id {INSERT} {NOT_MATCHED} {INSERT}"),
    *(
        case
        for name, clauses in {
            "of a matched clause beside an insert": f"{MATCHED} AND {{v}} {DELETE} {NOT_MATCHED} {INSERT}",
            "of an insert beside a matched clause": f"{MATCHED} {DELETE} {NOT_MATCHED} AND {{v}} {INSERT}",
            "by source": f"{BY_SOURCE} AND {{t}} {DELETE}",
            "by source beside another": f"{BY_SOURCE} AND {{t}} {DELETE} {BY_SOURCE} {DELETE}",
            "by source beside a matched clause": f"{MATCHED} {DELETE} {BY_SOURCE} AND {{t}} {DELETE}",
        }.items()
        for case in (
            Case(f"a number {name}", clauses.format(v="s.id", t="t.id"), fails=BRANCHED),
            Case(f"a number {name}, marked", clauses.format(v="s.id", t="t.id"), table=MARKED, fails=COMBINED),
            Case(f"a string {name}, marked", clauses.format(v="s.name", t="t.name"), table=MARKED, fails=BRANCHED),
        )
    ),
    Case("an untyped NULL by source beside another", f"{BY_SOURCE} AND NULL {DELETE} {BY_SOURCE} {DELETE}",
         fails=BRANCHED),
    Case("an untyped NULL beside another and an insert", fails=BRANCHED,
         clauses=f"{MATCHED} AND NULL {DELETE} {MATCHED} {DELETE} {NOT_MATCHED} {INSERT}"),
    Case("a string for ON", UPSERT, on="s.name", fails="JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE"),
    Case("a column of the target for ON", UPSERT, on="t.id", fails="JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE"),
    Case("an untyped NULL for ON", UPSERT, on="NULL", fails=FILTERED),
    Case("a struct for ON of an insert", f"{NOT_MATCHED} {INSERT}", on="struct(t.id)", table=MARKED,
         fails="JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE"),
]  # fmt: skip

AT_RUN_TIME = [
    Case("the source fails while it is read", UPSERT, fails="USER_RAISED_EXCEPTION",
         source="SELECT id, name, CAST(raise_error('bad row') AS INT) AS age FROM VALUES (2, 'B') AS v(id, name)"),
    Case("an arithmetic overflow", "WHEN MATCHED THEN UPDATE SET name = CAST(t.id + 2147483647 AS STRING)",
         fails="ARITHMETIC_OVERFLOW"),
    Case("a remainder by zero", "WHEN MATCHED THEN UPDATE SET name = CAST(t.id % (s.id - 2) AS STRING)",
         fails="REMAINDER_BY_ZERO"),
    Case("beyond an array's end", "WHEN MATCHED THEN UPDATE SET name = array('a')[t.id + 5]",
         fails="INVALID_ARRAY_INDEX"),
    Case("element_at beyond an array's end", "WHEN MATCHED THEN UPDATE SET name = element_at(array('a'), t.id + 5)",
         fails="INVALID_ARRAY_INDEX_IN_ELEMENT_AT"),
    Case("a key twice in a map", fails="DUPLICATED_MAP_KEY",
         clauses="WHEN MATCHED THEN UPDATE SET name = CAST(map_from_arrays(array(1, 1), array(2, s.id)) AS STRING)"),
    Case("a thirteenth month", "WHEN MATCHED THEN UPDATE SET name = CAST(make_date(2024, 13, t.id) AS STRING)",
         fails="DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION"),
    Case("a text that is no JSON", "WHEN MATCHED THEN UPDATE SET name = CAST(parse_json(s.name) AS STRING)",
         fails="MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION"),
    Case("a scalar subquery of two rows", fails="SCALAR_SUBQUERY_TOO_MANY_ROWS",
         clauses="WHEN MATCHED THEN UPDATE SET name = (SELECT x FROM VALUES ('a'), ('b') AS q(x))"),
    Case("an assertion in a value", "WHEN MATCHED THEN UPDATE SET name = CAST(assert_true(s.age < 0) AS STRING)",
         fails="USER_RAISED_EXCEPTION"),
]  # fmt: skip


@pytest.mark.parametrize("case", ANALYSIS, ids=str)
def test_refused_by_analysis(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", NO_BOOLEANS, ids=str)
def test_refused_as_no_boolean(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", AT_RUN_TIME, ids=str)
def test_refused_or_not_at_run_time(case: Case, engines: Harness) -> None:
    engines.check(case)
