"""What is written is counted against what the search found, before the commit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction
from airflow_delta_merge.engine.strategies import all_changes
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.conftest import MadeOnce
from tests.differential.foreign_tables import make_table, with_statistics
from tests.differential.session_settings import session_settings
from tests.session import COPIED_WHATEVER_THE_SIZE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "k BIGINT, v STRING"
ROWS = "SELECT id AS k, concat('old', id) AS v FROM range(6)"
#: Half of its rows are new.
SOURCE = "SELECT id AS k, 'new' AS v FROM range(3, 9)"
UPDATED = "WHEN MATCHED THEN UPDATE SET v = concat(t.v, s.v)"
STATEMENTS = {
    "updates and deletes": f"WHEN MATCHED AND s.k = 3 THEN DELETE {UPDATED}",
    "updates and inserts": f"{UPDATED} WHEN NOT MATCHED THEN INSERT *",
    "all three": f"WHEN MATCHED AND s.k = 3 THEN DELETE {UPDATED} WHEN NOT MATCHED THEN INSERT *",
}
#: How old rows are taken out: whether the table has deletion vectors, and the session's settings.
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "rewritten": ("false", {}),
    "copied": ("false", dict(COPIED_WHATEVER_THE_SIZE)),
    "marked": ("true", {}),
}
SETTINGS = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.onePassFromRows": "1000"}


def merged(spark: SparkSession, table: Path, clauses: str, settings: dict[str, str] | None = None) -> Any:
    statement = f"MERGE INTO delta.`{table}` t USING ({SOURCE}) s ON t.k = s.k {clauses}"
    with session_settings(spark, {**SETTINGS, **(settings or {})}):
        return merge_sql(spark, statement)


def made(spark: SparkSession, table: Path, vectors: str) -> None:
    make_table(spark, table, COLUMNS, ROWS, options=f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')")


def state(spark: SparkSession, table: Path) -> tuple[int, list[tuple[Any, ...]]]:
    rows = spark.read.format("delta").load(str(table))
    version = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").head()
    assert version is not None
    return version.version, sorted(map(tuple, rows.collect()))


@pytest.mark.parametrize(("vectors", "settings"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("clauses", STATEMENTS.values(), ids=STATEMENTS)
def test_a_lost_row_fails_the_merge(
    clauses: str,
    vectors: str,
    settings: dict[str, str],
    spark: SparkSession,
    made_once: MadeOnce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rewritten_rows = all_changes.rewritten_rows

    def without_one(*args: Any) -> tuple[DataFrame, Any]:
        rows, tracking = rewritten_rows(*args)
        return rows.filter("k <> 5"), tracking

    table = made_once(tmp_path / "t", made, vectors)
    before = state(spark, table)
    monkeypatch.setattr(all_changes, "rewritten_rows", without_one)
    with pytest.raises(MergeExecutionError, match=r"wrote \d+ rows where it should have written \d[\d to]*\. Nothing"):
        merged(spark, table, clauses, settings)
    assert state(spark, table) == before


def test_a_row_that_is_not_marked_fails_the_merge(
    spark: SparkSession, made_once: MadeOnce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletion_vector_actions = MergeTransaction.deletion_vector_actions

    def without_one(self: MergeTransaction, files: Any, rows: DataFrame) -> Any:
        return deletion_vector_actions(self, files, rows.limit(2))

    table = made_once(tmp_path / "t", made, "true")
    before = state(spark, table)
    monkeypatch.setattr(MergeTransaction, "deletion_vector_actions", without_one)
    with pytest.raises(MergeExecutionError, match="marked 2 rows as deleted where clauses take 3"):
        merged(spark, table, STATEMENTS["all three"])
    assert state(spark, table) == before


@pytest.mark.parametrize(("vectors", "settings"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("logged", [0, 700])
def test_wrong_numbers_in_the_log_change_no_count(
    logged: int, vectors: str, settings: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """A file of which another writer logged a number of rows that no merge could have come from."""
    wrong = with_statistics(lambda statistics: statistics.update(numRecords=logged))
    table = make_table(
        spark,
        tmp_path / "t",
        COLUMNS,
        "SELECT id AS k, 'old' AS v FROM range(6)",  # one file
        options=f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')",
        edit=wrong,
    )
    counts = {}
    for engine in ("ours", "built-in"):
        copy = tmp_path / engine
        shutil.copytree(table, copy)
        if engine == "ours":
            merged(spark, copy, STATEMENTS["all three"], settings)
        else:
            statement = f"MERGE INTO delta.`{copy}` t USING ({SOURCE}) s ON t.k = s.k {STATEMENTS['all three']}"
            spark.sql(statement).collect()
        metrics = spark.sql(f"DESCRIBE HISTORY delta.`{copy}` LIMIT 1").select(F.col("operationMetrics")).head()
        assert metrics is not None
        rows = {name: number for name, number in metrics[0].items() if name.startswith("numTargetRows")}
        counts[engine] = (rows, state(spark, copy))
    assert counts["ours"] == counts["built-in"]
