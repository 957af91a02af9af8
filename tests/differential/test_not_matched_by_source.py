"""WHEN NOT MATCHED BY SOURCE: target rows that no source row matches."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPDATE = "WHEN MATCHED THEN UPDATE SET *"
DELETE = "WHEN MATCHED THEN DELETE"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
DROP = "WHEN NOT MATCHED BY SOURCE THEN DELETE"
MARK = "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET age = -1"
AMBIGUOUS = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"

ONE = "VALUES (2, 'x', 5) AS s(id, name, age)"
DOUBLE = "VALUES (2, 'x', 1), (2, 'y', 2), (7, 'z', 3) AS s(id, name, age)"
NOBODY = "SELECT * FROM VALUES (1, 'x', 1) AS s(id, name, age) WHERE false"
WITH_NULL_KEYS = Table("id INT, name STRING, age INT", ("(1, 'a', 1), (NULL, 'b', 2)", "(3, 'c', 3), (NULL, 'd', 4)"))
FILES = Table("id INT, name STRING, age INT", ", ".join(f"({i}, 'n{i}', {i * 10})" for i in range(12)), files=4)
DAYS = Table(
    "id INT, day DATE, n INT",
    "(1, DATE'2024-01-01', 1), (2, DATE'2024-01-01', 2), (3, DATE'2024-01-02', 3), (4, DATE'2024-01-03', 4)",
    partitioned_by="day",
)
DAYS_AS_TEXTS = Table(
    "id INT, origin STRING, day STRING",
    "(1, 'files', '20240101'), (2, 'files', '20240102'), (3, 'by hand', 'unknown')",
    partitioned_by="day",
)
OLD_FILES = "t.origin <> 'by hand' AND to_date(t.day, 'yyyyMMdd') < DATE'2024-02-01'"
ONE_DAY = "VALUES (1, DATE'2024-01-01', 10), (9, DATE'2024-01-01', 90) AS s(id, day, n)"

CASES = [
    Case("delete", DROP, does="delete"),
    Case("update", MARK, does="update"),
    Case("update by the target's own columns", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET age = t.id * 10, name = 'x'",
         does="update"),
    Case("delete if", "WHEN NOT MATCHED BY SOURCE AND t.age > 20 THEN DELETE", does="delete"),
    Case("delete if, never", "WHEN NOT MATCHED BY SOURCE AND t.age > 2000 THEN DELETE", does="nothing"),
    Case("delete if NULL", "WHEN NOT MATCHED BY SOURCE AND t.age IS NULL THEN DELETE", does="delete"),
    Case("update some, delete the others",
         "WHEN NOT MATCHED BY SOURCE AND t.age IS NULL THEN UPDATE SET age = 0 WHEN NOT MATCHED BY SOURCE THEN DELETE",
         does="update, delete"),
    Case("synchronise: update, insert, delete", f"{UPDATE} {INSERT} {DROP}", does="update, insert, delete"),
    Case("update both ways", f"{UPDATE} {MARK}", does="update"),
    Case("delete both ways", f"{DELETE} {DROP}", does="delete"),
    Case("delete matched, update the others", f"{DELETE} {MARK}", does="update, delete"),
    Case("insert and delete", f"{INSERT} {DROP}", does="insert, delete"),
    Case("insert and update", f"{INSERT} {MARK}", does="insert, update"),
    Case("clauses of all kinds with conditions",
         "WHEN MATCHED AND s.age > 41 THEN DELETE WHEN MATCHED AND t.age > 0 THEN UPDATE SET age = t.age + s.age "
         "WHEN NOT MATCHED AND s.id = 7 THEN INSERT * "
         "WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN UPDATE SET name = 'x' "
         "WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE", does="update, insert, delete"),
    Case("an empty source deletes all", DROP, does="delete", source=NOBODY),
    Case("an empty source updates all", f"{UPDATE} {MARK}", does="update", source=NOBODY),
    Case("an empty source and a condition", "WHEN NOT MATCHED BY SOURCE AND t.id < 3 THEN DELETE", does="delete",
         source=NOBODY, table=FILES),
    Case("an empty target", f"{UPDATE} {INSERT} {DROP}", does="insert", table=Table("id INT, name STRING, age INT")),
    Case("an empty target and source", f"{INSERT} {DROP}", does="nothing", source=NOBODY,
         table=Table("id INT, name STRING, age INT")),
    Case("all match", DROP, does="nothing", source="SELECT CAST(id AS INT) id, '' name, 1 age FROM range(10)"),
    Case("NULL keys are not matched", f"{UPDATE} {DROP}", does="update, delete", table=WITH_NULL_KEYS,
         source="VALUES (1, 'x', 1), (NULL, 'y', 2) AS s(id, name, age)"),
    Case("NULL keys matched null-safely", f"{DROP}", does="delete", table=WITH_NULL_KEYS, on="t.id <=> s.id",
         source="VALUES (NULL, 'y', 2) AS s(id, name, age)"),
    Case("a target-only condition makes others not matched", DROP, does="delete", on="t.id = s.id AND t.age > 45"),
    Case("a source-only condition makes others not matched", MARK, does="update", on="t.id = s.id AND s.age > 41"),
    Case("a condition that is false", DROP, does="delete", on="false"),
    Case("a condition that is true, and an empty source", MARK, does="update", on="true", source=NOBODY),
    Case("no equality", MARK, does="update", on="t.age > s.age + 30", source=ONE),
    Case("several files, conditions on few", "WHEN NOT MATCHED BY SOURCE AND t.id > 8 THEN DELETE", does="delete",
         table=FILES, source="VALUES (9, 'x', 1), (2, 'y', 2) AS s(id, name, age)"),
    Case("several files, rows beyond the source's keys",
         f"{UPDATE} WHEN NOT MATCHED BY SOURCE AND t.id > 8 THEN DELETE", does="update, delete",
         table=FILES, source="VALUES (1, 'x', 1), (2, 'y', 2) AS s(id, name, age)", every_version=True),
    Case("several files, a condition for matched too",
         "WHEN MATCHED AND t.id < 3 THEN UPDATE SET name = s.name WHEN NOT MATCHED BY SOURCE AND t.id > 8 THEN DELETE",
         does="update, delete", table=FILES, source="VALUES (9, 'x', 1), (2, 'y', 2) AS s(id, name, age)"),
    Case("replace one day", f"{UPDATE} {INSERT} WHEN NOT MATCHED BY SOURCE AND t.day = DATE'2024-01-01' THEN DELETE",
         does="update, insert, delete", table=DAYS, source=ONE_DAY, on="t.id = s.id AND t.day = s.day",
         every_version=True),
    Case("delete partitions", DROP, does="delete", table=DAYS, on="t.day = s.day",
         source="VALUES (DATE'2024-01-01') AS s(day)"),
    Case("update moves rows between partitions",
         "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET day = DATE'2030-01-01'", does="update", table=DAYS,
         source=ONE_DAY),
    Case("another condition comes before one that raises for a partition",
         f"{UPDATE} WHEN NOT MATCHED BY SOURCE AND {OLD_FILES} THEN DELETE", does="update, delete",
         table=DAYS_AS_TEXTS, on="t.day = s.day", source="VALUES (2, 'files', '20240102') AS s(id, origin, day)"),
    Case("another condition comes before one that raises for a partition, in ON, too",
         f"{UPDATE} WHEN NOT MATCHED BY SOURCE AND {OLD_FILES} THEN DELETE", does="update, delete",
         table=DAYS_AS_TEXTS, on=f"t.id = s.id AND {OLD_FILES}",
         source="VALUES (2, 'files', '20240102') AS s(id, origin, day)"),
    Case("several source rows for one target row, delete the others", DROP, fails=AMBIGUOUS, source=DOUBLE),
    Case("several source rows, update the others", MARK, fails=AMBIGUOUS, source=DOUBLE),
    Case("several source rows, an unconditional delete beside", f"{DELETE} {DROP}", does="delete", source=DOUBLE),
    Case("several source rows, delete, insert and delete", f"{DELETE} {INSERT} {DROP}", does="delete, insert",
         source=DOUBLE),
    Case("several source rows, insert and delete the others", f"{INSERT} {DROP}", fails=AMBIGUOUS, source=DOUBLE),
    Case("several source rows, update and delete the others", f"{UPDATE} {DROP}", fails=AMBIGUOUS, source=DOUBLE),
    Case("no condition before another", "WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY SOURCE THEN DELETE",
         fails="NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION"),
    Case("star is no action here", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", fails="PARSE_SYNTAX_ERROR"),
    Case("nothing but a false condition", "WHEN NOT MATCHED BY SOURCE AND false THEN DELETE", does="nothing"),
    Case("a self merge", "WHEN NOT MATCHED BY SOURCE THEN DELETE", does="delete",
         source="SELECT * FROM {t} WHERE id > 2"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_not_matched_by_source(case: Case, engines: Harness) -> None:
    engines.check(case)
