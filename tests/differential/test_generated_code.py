"""Statements with Spark's code generation on, which the other cases do without because it takes time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

GENERATED_CODE = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "CODEGEN_ONLY"}
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}

TABLE = Table(
    "id INT, p STRING, v INT, a STRUCT<x: INT, l: ARRAY<INT>>",
    ("(1, 'a', 1, struct(1, array(1, NULL))), (2, 'b', 2, NULL)", "(3, NULL, 3, struct(3, NULL)), (4, 'a', 4, NULL)"),
)
SOURCE = (
    "SELECT id, p, v, named_struct('x', v, 'l', array(v)) AS a "
    "FROM VALUES (2, 'b', 20), (3, 'x y', 30), (9, NULL, 90) AS s(id, p, v)"
)
EVERYTHING = (
    "WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED AND t.v > 100 THEN UPDATE SET v = 0 "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.v > 100 THEN INSERT (id) VALUES (s.id) "
    "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN UPDATE SET a.x = t.v + 1"
)


def _case(name: str, clauses: str, does: str = "", **more: object) -> Case:
    usual: dict[str, object] = {"table": TABLE, "source": SOURCE, "confs": GENERATED_CODE}
    return Case(f"generated code: {name}", clauses, does=does, **{**usual, **more})  # type: ignore[arg-type]


CASES = [
    _case("clauses of all kinds", EVERYTHING, "update, delete, insert"),
    _case("clauses of all kinds, deletion vectors", EVERYTHING, "update, delete, insert",
          table=replace(TABLE, properties=VECTORS, then="DELETE FROM {t} WHERE id = 4")),
    _case("clauses of all kinds, change data", EVERYTHING, "update, delete, insert",
          table=replace(TABLE, properties={**FEED, **VECTORS})),
    _case("insert only, several clauses", "WHEN NOT MATCHED AND s.v > 100 THEN INSERT (id) VALUES (s.id) "
          "WHEN NOT MATCHED AND s.v > 10 THEN INSERT *", "insert"),
    _case("a wide row, beyond the number of fields for which code is generated",
          "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", "update, insert",
          table=Table(", ".join(["id INT", *(f"c{i} INT" for i in range(120))]),
                      "SELECT CAST(id AS INT), " + ", ".join(map(str, range(120))) + " FROM range(4)"),
          source="SELECT CAST(id AS INT) id, " + ", ".join(f"{i} AS c{i}" for i in range(120)) + " FROM range(2, 6)"),
    _case("many clauses", " ".join(f"WHEN MATCHED AND s.v = {i} THEN UPDATE SET v = {i} + 1" for i in range(40)),
          "update"),
    _case("constraints and generated columns", "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT "
          "(id, v) VALUES (s.id, s.v)", "update, insert", source="VALUES (2, 20), (9, 90) AS s(id, v)",
          table=Table("id INT NOT NULL, v INT, g INT GENERATED ALWAYS AS (v * 2)",
                      "INSERT INTO {t} (id, v) VALUES (1, 1), (2, 2)",
                      then="ALTER TABLE {t} ADD CONSTRAINT c CHECK (v > 0)")),
    _case("row tracking", EVERYTHING, "update, delete, insert",
          table=replace(TABLE, properties={"delta.enableRowTracking": "true"})),
    _case("a condition that raises", "WHEN MATCHED AND 1 / (t.v - 2) > 0 THEN DELETE", fails="DIVIDE_BY_ZERO"),
    _case("a value too large", "WHEN MATCHED THEN UPDATE SET v = 5000000000L * s.v",
          fails="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"),
    _case("several source rows for one", "WHEN MATCHED THEN UPDATE SET v = s.v", source="VALUES (2, 1), (2, 2) "
          "AS s(id, v)", fails="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_generated_code(case: Case, engines: Harness) -> None:
    engines.check(case)
