"""Source rows that break an expectation: they fail the merge, are merged with a warning, or are set aside and kept."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import MergeConfig, MergeStatement, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity
from airflow_delta_merge.engine import merge, plan
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.engine.source.kept_rows import KeptRows
from airflow_delta_merge.exceptions import (
    EmptySourceError,
    MergeConfigError,
    MergeExecutionError,
    NullKeysError,
    SourceExpectationError,
)
from airflow_delta_merge.patterns import Upsert
from tests.differential.conftest import MadeOnce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# 1 and 2 are good, 3 has no amount, 4 a negative one, 5 comes twice, once with a negative one.
ROWS = "VALUES (1, 10), (2, 20), (3, NULL), (4, -1), (5, 50), (5, -5) AS rows(id, amount)"
SOURCE = f"SELECT id, amount FROM {ROWS}"
POSITIVE = {"condition": "amount > 0"}
SET_ASIDE = {"on_failure": "set_aside"}


class Lake:
    """A table with the row (1, 0), and a place for failed rows."""

    def __init__(self, spark: SparkSession, folder: Path, made_once: MadeOnce) -> None:
        self.spark, self.target, self.failed = spark, str(folder / "target"), str(folder / "failed")
        made_once(folder / "target", made)

    def config(self, source: str = SOURCE, **options: Any) -> MergeConfig:
        expected = {name: options.pop(name) for name in list(options) if name not in ("guards", *MERGE)}
        if "set_aside" in str(expected):
            expected["failed_rows_path"] = self.failed
        clauses = [when_matched_update_all(), when_not_matched_insert_all()]
        guards = {"expect_source": expected, **options.pop("guards", {})}
        return MergeConfig(target=self.target, source=source, on=["id"], clauses=clauses, guards=guards, **options)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.spark.read.format("delta").load(self.target).collect())

    def kept(self) -> list[tuple[str, str]]:
        """Records and reasons."""
        rows = self.spark.read.format("delta").load(self.failed).collect()
        return sorted((row.record, row.reason) for row in rows)


def made(spark: SparkSession, path: Path) -> None:
    spark.sql("SELECT 1 AS id, 0 AS amount").write.format("delta").save(str(path))


MERGE = ("null_keys", "source_dedupe", "create_table", "with_schema_evolution")


@pytest.fixture
def lake(spark: SparkSession, made_once: MadeOnce, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path, made_once)


def test_a_condition_fails_the_merge_by_default(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SourceExpectationError, match="positive is broken by 2 rows, of 6 rows"):
        merge(lake.spark, lake.config(positive=POSITIVE))
    assert lake.rows() == [(1, 0)]
    assert any('{"id": "4"}' in record.getMessage() for record in caplog.records)


def test_a_warning_lets_rows_in_and_counts_them(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    source = f"{SOURCE} WHERE id < 5"
    config = lake.config(
        source,
        positive={**POSITIVE, "on_failure": "warn"},
        not_null={"columns": ["amount"], "on_failure": "warn"},
        unique={"columns": ["id"], "on_failure": "warn"},
    )
    result = merge(lake.spark, config)
    assert result.failed_expectations == {"not_null": 1, "positive": 1, "unique": 0}
    assert (result.num_set_aside_rows, result.metrics["numSourceRows"]) == (0, 4)
    assert lake.rows() == [(1, 10), (2, 20), (3, None), (4, -1)]
    assert "1 of the source's 4 rows break positive and are merged all the same" in caplog.text


def test_rows_are_set_aside_and_kept_with_what_they_break(lake: Lake) -> None:
    config = lake.config(
        positive={**POSITIVE, **SET_ASIDE}, not_null={"columns": ["amount"], **SET_ASIDE}, unique=["id"]
    )
    result = merge(lake.spark, config)
    assert result.failed_expectations == {"not_null": 1, "positive": 2, "unique": 0}
    assert (result.num_set_aside_rows, result.metrics["numSourceRows"]) == (3, 3)
    assert (result.num_updated_rows, result.num_inserted_rows) == (1, 2)
    assert lake.rows() == [(1, 10), (2, 20), (5, 50)]
    assert lake.kept() == [
        ('{"id":3,"amount":null}', "not_null"),
        ('{"id":4,"amount":-1}', "positive"),
        ('{"id":5,"amount":-5}', "positive"),
    ]


def test_a_row_that_breaks_several_is_kept_once(lake: Lake) -> None:
    config = lake.config(
        positive={**POSITIVE, **SET_ASIDE}, small={"condition": "id < 4", "on_failure": "warn"}, even={
            "condition": "id % 2 = 1", **SET_ASIDE
        }
    )  # fmt: skip
    merge(lake.spark, lake.config(f"{SOURCE} WHERE id IN (1, 4)", **_expectations(config)))
    assert lake.kept() == [('{"id":4,"amount":-1}', "positive, small, even")]


def _expectations(config: MergeConfig) -> dict[str, Any]:
    expected = config.guards.expect_source
    assert expected is not None
    return {name: part for name, part in expected.to_dict().items() if isinstance(part, dict) and "condition" in part}


def test_all_rows_that_share_a_key_are_set_aside(lake: Lake) -> None:
    result = merge(lake.spark, lake.config(unique={"columns": ["id"], **SET_ASIDE}))
    assert result.failed_expectations == {"unique": 2}
    assert [id for id, _ in lake.rows()] == [1, 2, 3, 4]
    assert {reason for _, reason in lake.kept()} == {"unique"}


def test_rows_set_aside_make_no_key_ambiguous(lake: Lake) -> None:
    """Nor does a row count for `unique` that a condition sets aside."""
    lake.spark.sql(f"INSERT INTO delta.`{lake.target}` VALUES (5, 0)")
    with pytest.raises(MergeExecutionError, match="multiple source rows"):
        merge(lake.spark, lake.config(columns={"id": "int"}))
    config = lake.config(positive={**POSITIVE, **SET_ASIDE}, unique={"columns": ["id"], **SET_ASIDE})
    result = merge(lake.spark, config)
    assert result.failed_expectations == {"positive": 2, "unique": 0}
    assert (5, 50) in lake.rows()


def test_a_condition_that_is_null_is_not_broken(lake: Lake) -> None:
    merge(lake.spark, lake.config(f"{SOURCE} WHERE id = 3", positive=POSITIVE))
    assert (3, None) in lake.rows()


def test_the_latest_row_is_chosen_before_rows_are_set_aside(lake: Lake) -> None:
    """So an older row doesn't take the place of one that is set aside."""
    source = "SELECT id, amount, at FROM VALUES (7, 1, 1), (7, -1, 2) AS rows(id, amount, at)"
    config = lake.config(
        f"SELECT * FROM ({source})",
        positive={**POSITIVE, **SET_ASIDE},
        source_dedupe=["at"],
        with_schema_evolution=True,
    )
    assert merge(lake.spark, config).num_inserted_rows == 0
    assert lake.kept() == [('{"id":7,"amount":-1,"at":2}', "positive")]


def test_a_null_key_may_be_set_aside(lake: Lake) -> None:
    source = "SELECT * FROM VALUES (8, 1), (NULL, 2) AS rows(id, amount)"
    sides: dict[str, Any] = {"target": lake.target, "source": source}
    with pytest.raises(NullKeysError):
        merge(lake.spark, Upsert(keys=["id"]).to_config(**sides))
    expected = {"not_null": {"columns": ["id"], **SET_ASIDE}, "failed_rows_path": lake.failed}
    config = Upsert(keys=["id"]).to_config(**sides, guards={"expect_source": expected})
    result = merge(lake.spark, config)
    assert (result.num_null_keys, result.num_set_aside_rows, result.num_inserted_rows) == (0, 1, 1)


def test_rows_are_kept_once_however_often_a_merge_is_tried(lake: Lake) -> None:
    config = lake.config(positive={**POSITIVE, **SET_ASIDE})
    identity = MergeIdentity(application_id="a", generation=1)
    results = [merge(lake.spark, config, identity=identity) for _ in range(2)]
    assert [each.num_set_aside_rows for each in results] == [2, 2]
    assert [each.failed_expectations for each in results] == [{"positive": 2}] * 2
    assert results[1].already_committed
    assert len(lake.kept()) == 2
    kept = lake.spark.read.format("delta").load(lake.failed).collect()
    assert {(row.merge, row.generation, row.file) for row in kept} == {("a", 1, None)}
    merge(lake.spark, config, identity=MergeIdentity(application_id="a", generation=2))
    assert len(lake.kept()) == 4


@pytest.mark.parametrize("generation", [1_000_002, 1_001_002], ids=["the same", "another task was cleared"])
def test_a_try_after_a_failed_one_keeps_no_row_twice(lake: Lake, generation: int) -> None:
    expected = {"positive": {**POSITIVE, **SET_ASIDE}}
    task = TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r")
    first, second = (
        MergeIdentity(application_id="a", generation=each, task_instance=task) for each in (1_000_002, generation)
    )
    with pytest.raises(MergeExecutionError, match="guard"):
        merge(lake.spark, lake.config(**expected, guards={"fail_if": ["num_source_rows > 1"]}), identity=first)
    assert len(lake.kept()) == 2
    merge(lake.spark, lake.config(**expected), identity=second)
    assert len(lake.kept()) == 2


def test_a_merge_that_fails_keeps_none(lake: Lake) -> None:
    config = lake.config(positive={**POSITIVE, **SET_ASIDE}, small={"condition": "id < 3"})
    with pytest.raises(SourceExpectationError, match="small is broken by 4 rows, of 6 rows"):
        merge(lake.spark, config)
    assert not Path(lake.failed).exists()


def test_a_source_whose_rows_are_all_set_aside_is_empty(lake: Lake) -> None:
    expected = {"positive": {"condition": "false", **SET_ASIDE}}
    with pytest.raises(EmptySourceError):
        merge(lake.spark, lake.config(**expected, guards={"on_empty_source": "fail"}))
    assert merge(lake.spark, lake.config(**expected)).num_affected_rows == 0
    assert len(lake.kept()) == 6


def test_a_dry_run_counts_and_keeps_none(lake: Lake) -> None:
    config = lake.config(positive={**POSITIVE, **SET_ASIDE}, small={"condition": "id < 3"}, columns={"amount": "int"})
    planned = plan(lake.spark, config)
    assert planned.failed_expectations == {"positive": 2, "small": 4}
    assert (planned.num_set_aside_rows, planned.num_source_rows, planned.num_inserted_rows) == (2, 4, 3)
    assert not Path(lake.failed).exists()
    assert plan(lake.spark, lake.config(columns={"amount": "date"})).num_source_rows == 6


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("price > 0", "the condition of positive is invalid"),
        ("amount + 1", "the condition of positive is invalid"),
        ("max(amount) > 0", "the condition of positive is invalid"),
    ],
)
def test_a_condition_that_is_none_fails_before_reading(lake: Lake, condition: str, said: str) -> None:
    source = "SELECT id, raise_error('read') AS amount FROM range(3)"
    with pytest.raises(SourceExpectationError, match=said):
        merge(lake.spark, lake.config(source, positive={"condition": condition}))


def test_a_condition_is_one_expression(lake: Lake) -> None:
    with pytest.raises(MergeConfigError, match="condition of positive in expect_source is not a SQL expression"):
        merge(lake.spark, lake.config(positive={"condition": "true) OR (1"}))


def test_the_source_of_a_statement_is_looked_at(lake: Lake) -> None:
    sql = f"MERGE INTO delta.`{lake.target}` t USING ({SOURCE}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    expected = {"positive": {**POSITIVE, **SET_ASIDE}, "failed_rows_path": lake.failed}
    result = merge(lake.spark, MergeStatement(sql=sql, guards={"expect_source": expected}))
    assert (result.num_set_aside_rows, result.num_inserted_rows) == (2, 3)
    assert [json.loads(record)["id"] for record, _ in lake.kept()] == [4, 5]


def test_random_conditions_count_keep_and_leave_out_the_same_rows(lake: Lake) -> None:
    source = "SELECT id, 1 AS amount FROM range(100, 1100)"
    result = merge(lake.spark, lake.config(source, some={"condition": "rand() < 0.5", **SET_ASIDE}))
    assert 0 < result.num_set_aside_rows == len(lake.kept()) == result.failed_expectations["some"]
    assert result.num_inserted_rows == 1000 - result.num_set_aside_rows
    kept = {json.loads(record)["id"] for record, _ in lake.kept()}
    assert kept.isdisjoint(id for id, _ in lake.rows())


@pytest.mark.parametrize("same", [False, True], ids=["two merges", "two tries of a merge"])
def test_rows_that_are_kept_at_the_same_time_are_all_kept_once(lake: Lake, same: bool) -> None:
    """The table is missing, so both make it, and the commit of one conflicts with that of the other."""
    sleep = "coalesce(java_method('java.lang.Thread', 'sleep', 2000L + id), '')"
    rows = lake.spark.range(1).selectExpr("'f' AS file", f"concat('r', {sleep}) AS record", "'x' AS reason")

    def keep(number: int) -> None:
        identity = MergeIdentity(application_id="one" if same else f"merge {number}", generation=1)
        KeptRows(Gateway(lake.spark), lake.target, identity).keep(rows, lake.failed, "bad_rows")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(keep, range(2)))
    assert len(lake.kept()) == (1 if same else 2)
