"""Statistics: which columns have them, cut strings, files without them."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
COLUMNS = "id INT, p STRING, v STRING"
ROWS = ("(1, 'a', 'v1'), (2, 'a', 'v2'), (3, 'b', 'v3')", "(4, 'b', 'v4'), (5, NULL, 'v5'), (6, 'c', 'v6')")
SOURCE = "VALUES (2, 'a', 'x'), (3, 'b', 'y'), (4, 'z', 'z'), (9, 'd', 'n'), (10, NULL, 'n') AS s(id, p, v)"

CASES = [
    Case("files without statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, confs={"spark.databricks.delta.stats.collect": "false"})),
    Case("some files without statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, (*ROWS, "(2, 'stats', 'v')"), then=("INSERT INTO {t} VALUES (9, 'x', 'y')",))),
    Case("keys beyond the columns with statistics", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingNumIndexedCols": "0"})),
    Case("statistics on another column than the key", UPSERT, does="update, insert", source=SOURCE,
         table=Table(COLUMNS, ROWS, properties={"delta.dataSkippingStatsColumns": "v"})),
    Case("long strings with cut statistics", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k STRING, n INT", ("(repeat('é', 40), 1), (repeat('a', 100), 2)", "(repeat('z', 33), 3)")),
         source="SELECT repeat('é', 40) k, 10 n UNION ALL SELECT repeat('a', 100), 20 "
                "UNION ALL SELECT repeat('a', 99), 3 UNION ALL SELECT repeat('z', 33), 4"),
    Case("string keys above the BMP at the end of the range", UPSERT, does="update, insert", on="t.k = s.k",
         table=Table("k STRING, n INT", ("(concat(repeat('a', 40), '😀'), 1)", "(repeat('\uffff', 40), 2)")),
         source="SELECT concat(repeat('a', 40), '😀') k, 1 n UNION ALL SELECT repeat('\uffff', 40), 5"
                " UNION ALL SELECT '😀', 6"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_statistics(case: Case, engines: Harness) -> None:
    engines.check(case)
