"""What the built-in refuses, ours refuses with the same error condition, and writes nothing."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
NOT_NULL = Table("id INT NOT NULL, name STRING NOT NULL, age INT", "(1, 'ann', 30), (2, 'bob', 40)")
CHECKED = Table("id INT, name STRING, age INT", "(1, 'ann', 30), (2, 'bob', 40)",
                then="ALTER TABLE {t} ADD CONSTRAINT adult CHECK (age >= 18)")  # fmt: skip
APPEND_ONLY = Table("id INT, name STRING, age INT", "(1, 'ann', 30), (2, 'bob', 40)",
                    properties={"delta.appendOnly": "true"})  # fmt: skip

ANALYSIS = [
    Case("a missing column in the condition", UPSERT, on="t.id = s.nope", fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a missing column in a clause's condition", "WHEN MATCHED AND s.nope > 1 THEN DELETE",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a missing column in a value", "WHEN MATCHED THEN UPDATE SET age = s.nope",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
    Case("a missing column to update", "WHEN MATCHED THEN UPDATE SET nope = 1",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION"),
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
    Case("a clause's condition that is no boolean", "WHEN MATCHED AND s.id THEN DELETE",
         fails="CANNOT_UP_CAST_DATATYPE"),
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
]  # fmt: skip

AT_RUN_TIME = [
    Case("NOT NULL violated by an insert", "WHEN NOT MATCHED THEN INSERT *", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    Case("NOT NULL violated by a missing column", "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    Case("NOT NULL violated by an update", "WHEN MATCHED THEN UPDATE SET name = NULL", table=NOT_NULL,
         fails="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    Case("NOT NULL kept", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.name IS NOT NULL THEN INSERT *",
         table=NOT_NULL, does="update, insert"),
    Case("CHECK violated by an insert", "WHEN NOT MATCHED THEN INSERT *", table=CHECKED,
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
    Case("CHECK violated by an update", "WHEN MATCHED THEN UPDATE SET age = 3", table=CHECKED,
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
    Case("CHECK kept", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.age >= 18 THEN INSERT *", table=CHECKED,
         does="update, insert"),
    Case("CHECK is NULL, which is a violation too", "WHEN MATCHED THEN UPDATE SET age = NULL", table=CHECKED,
         fails="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
    Case("append-only: insert", "WHEN NOT MATCHED THEN INSERT *", table=APPEND_ONLY, does="insert"),
    Case("append-only: update", "WHEN MATCHED THEN UPDATE SET *", table=APPEND_ONLY,
         fails="DELTA_CANNOT_MODIFY_APPEND_ONLY"),
    Case("append-only: an upsert that updates nothing", UPSERT, table=APPEND_ONLY, does="insert",
         source="VALUES (70, 'gil', 17) AS s(id, name, age)"),
    Case("append-only: a delete that deletes nothing", "WHEN MATCHED THEN DELETE", table=APPEND_ONLY, does="nothing",
         source="VALUES (70, 'gil', 17) AS s(id, name, age)"),
    Case("the source fails while it is read", UPSERT, fails="USER_RAISED_EXCEPTION",
         source="SELECT id, name, CAST(raise_error('bad row') AS INT) AS age FROM VALUES (2, 'B') AS v(id, name)"),
    Case("an assertion in a value", "WHEN MATCHED THEN UPDATE SET name = CAST(assert_true(s.age < 0) AS STRING)",
         fails="USER_RAISED_EXCEPTION"),
]  # fmt: skip


@pytest.mark.parametrize("case", ANALYSIS, ids=str)
def test_refused_by_analysis(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", AT_RUN_TIME, ids=str)
def test_refused_or_not_at_run_time(case: Case, engines: Harness) -> None:
    engines.check(case)
