"""MergeIntoCommand: from the statement to the transaction, and which executor runs."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

INSERT = "WHEN NOT MATCHED THEN INSERT *"
AMBIGUOUS = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
DOUBLE = "VALUES (2, 'x', 1), (2, 'y', 2), (7, 'z', 3), (7, 'z', 3) AS s(id, name, age)"

DISPATCH = [
    Case("duplicates that match in an insert-only merge without its optimisation", INSERT, fails=AMBIGUOUS,
         source=DOUBLE, confs={"spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled": "false"}),
]  # fmt: skip
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
PLAIN = Table("id INT, v STRING, n INT", ("(1, 'a', 1), (2, 'b', 2)", "(3, 'c', 3), (4, NULL, 4)"))
SOURCE = "VALUES (2, 'B', 20), (3, 'C', 30), (9, 'I', 90) AS s(id, v, n)"

IDEMPOTENCE = [
    Case("an idempotent transaction seen for the first time", UPSERT, does="update, insert", source=SOURCE, table=PLAIN,
         confs={"spark.databricks.delta.write.txnAppId": "app", "spark.databricks.delta.write.txnVersion": "5"}),
]  # fmt: skip


@pytest.mark.parametrize("case", DISPATCH, ids=str)
def test_dispatch(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", IDEMPOTENCE, ids=str)
def test_an_executed_transaction(case: Case, engines: Harness) -> None:
    engines.check(case)
