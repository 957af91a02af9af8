"""``engine="builtin"``: Delta's own steps under our identity, guards and commit do what its own MERGE does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import MergeStatement
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.engine import merge
from airflow_delta_merge.exceptions import (
    EmptySourceError,
    MergeConfigError,
    MergeExecutionError,
    MergeGuardError,
    StaleMergeError,
)
from tests.differential.conftest import MadeOnce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult

SOURCE = "SELECT id, 'new' AS v FROM range(15, 26)"
CLAUSES = {
    "upsert": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "insert only": "WHEN NOT MATCHED THEN INSERT *",
    "delete": "WHEN MATCHED THEN DELETE",
    "sync": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "nothing touched": "WHEN MATCHED AND s.id < 0 THEN DELETE",
    "nothing touched, rows inserted": "WHEN MATCHED AND s.id < 0 THEN DELETE WHEN NOT MATCHED THEN INSERT *",
}
PROPERTIES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "deletion vectors": ("delta.enableDeletionVectors",),
    "change data": ("delta.enableChangeDataFeed",),
}
#: What time it took, and where in a shuffle a row was, is different each time.
_VARYING = ("TimeMs", "Bytes", "BytesAdded", "BytesRemoved")


@pytest.fixture(params=PROPERTIES.values(), ids=PROPERTIES)
def table(request: pytest.FixtureRequest, made_once: MadeOnce, tmp_path: Path) -> Path:
    return made_once(tmp_path / "t", made, *request.param)


@pytest.fixture
def plain(made_once: MadeOnce, tmp_path: Path) -> Path:
    return made_once(tmp_path / "t", made, *PROPERTIES["plain"])


def made(spark: SparkSession, path: Path, *properties: str) -> None:
    """Two files of ten ids each, in a table with these properties turned on."""
    rows = spark.range(0, 20, 1, 2).selectExpr("id", "'old' AS v")
    rows.write.format("delta").options(**dict.fromkeys(properties, "true")).save(str(path))


def statement(table: Path, clauses: str, source: str = SOURCE) -> str:
    return f"MERGE INTO delta.`{table}` t USING ({source}) s ON t.id = s.id {clauses}"


def merged(spark: SparkSession, table: Path, clauses: str, **options: object) -> MergeResult:
    identity = options.pop("identity", None)
    source = str(options.pop("source", SOURCE))
    config = MergeStatement(sql=statement(table, clauses, source), engine="builtin", **options)  # type: ignore[arg-type]
    return merge(spark, config, identity=identity)  # type: ignore[arg-type]


def rows(spark: SparkSession, table: Path) -> list[tuple[int, str]]:
    return sorted(map(tuple, spark.read.format("delta").load(str(table)).collect()))


def last_metrics(spark: SparkSession, table: Path) -> tuple[int, dict[str, str]]:
    last = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").head()
    metrics = {name: value for name, value in last.operationMetrics.items() if not name.endswith(_VARYING)}
    return last.version, metrics


@pytest.mark.parametrize("clauses", CLAUSES.values(), ids=CLAUSES)
def test_it_does_what_deltas_own_merge_does(spark: SparkSession, table: Path, tmp_path: Path, clauses: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(table, copy)
    (expected,) = spark.sql(statement(copy, clauses)).collect()
    result = merged(spark, table, clauses)
    assert rows(spark, table) == rows(spark, copy)
    assert last_metrics(spark, table) == last_metrics(spark, copy)
    assert {name: getattr(result, name) for name in expected.asDict()} == expected.asDict()
    assert result.executor == "BuiltInMergeExecutor"
    assert result.version == (1 if result.num_affected_rows else None)


def test_it_is_committed_once(spark: SparkSession, plain: Path) -> None:
    who = MergeIdentity(application_id="a", generation=64)
    first = merged(spark, plain, CLAUSES["upsert"], identity=who)
    again = merged(spark, plain, CLAUSES["upsert"], identity=who)
    assert (first.version, first.num_updated_rows, first.num_inserted_rows) == (1, 5, 6)
    assert (again.version, again.num_updated_rows, again.already_committed) == (1, 5, True)
    late = MergeIdentity(application_id="a", generation=0)
    with pytest.raises(StaleMergeError):
        merged(spark, plain, CLAUSES["upsert"], identity=late)


def test_a_guard_that_trips_leaves_neither_commit_nor_file(spark: SparkSession, table: Path) -> None:
    before = rows(spark, table)
    with pytest.raises(MergeGuardError, match="num_updated_rows is 5"):
        merged(spark, table, CLAUSES["upsert"], guards={"fail_if": {"num_updated_rows": 4}})
    assert rows(spark, table) == before
    assert len([*table.rglob("*.parquet")]) == 2


def test_an_empty_source_can_fail(spark: SparkSession, plain: Path) -> None:
    with pytest.raises(EmptySourceError):
        merged(
            spark,
            plain,
            CLAUSES["sync"],
            source="SELECT id, 'new' AS v FROM range(0)",
            guards={"on_empty_source": "fail"},
        )
    assert len(rows(spark, plain)) == 20


def test_deltas_errors_keep_their_condition(spark: SparkSession, plain: Path) -> None:
    with pytest.raises(MergeExecutionError) as raised:
        merged(spark, plain, CLAUSES["upsert"], source=f"{SOURCE} UNION ALL {SOURCE}")
    assert raised.value.condition == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


@pytest.mark.parametrize(
    "options", [{"update_only_changed": True}, {"guards": {"expect_source": {"unique": ["id"]}}}], ids=str
)
def test_what_only_our_engine_can_do_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(MergeConfigError, match='is not available with engine="builtin"'):
        MergeStatement(sql=statement(Path("t"), CLAUSES["delete"]), engine="builtin", **options)  # type: ignore[arg-type]


def test_another_engine_is_refused() -> None:
    with pytest.raises(MergeConfigError, match="must be one of delta_merge, builtin"):
        MergeStatement(sql=statement(Path("t"), CLAUSES["delete"]), engine="photon")  # type: ignore[arg-type]
