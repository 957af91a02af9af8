"""Guards: a merge that would overstep a bound commits nothing and leaves no file; one within it is the same merge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import (
    MergeClause,
    MergeConfig,
    MergeSource,
    MergeStatement,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_insert_all,
)
from airflow_delta_merge.engine import merge
from airflow_delta_merge.engine.source.expectations import SAMPLE_SIZE
from airflow_delta_merge.exceptions import (
    EmptySourceError,
    MergeConfigError,
    MergeGuardError,
    SourceExpectationError,
)
from tests.differential.conftest import MadeOnce
from tests.differential.delta_log import files_in
from tests.differential.session_settings import session_settings
from tests.readable_ids import readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# 20 rows in the target; of the source's 11 rows 5 match, 3 of these are to be deleted, 6 are new.
SOURCE = "SELECT id, 'new' AS v, id % 2 = 1 AS gone FROM range(15, 26)"
UPSERT = (when_matched_update_all(), when_not_matched_insert_all())
CLAUSES = (when_matched_delete(condition="source.gone"), *UPSERT)
WITHIN = {
    "num_source_rows": 11,
    "num_target_rows": 20,
    "num_updated_rows": 2,
    "num_deleted_rows": 3,
    "num_inserted_rows": 6,
    "num_affected_rows": 11,
    "num_touched_files": 1,
    "updated_fraction": 0.1,
    "deleted_fraction": 0.15,
    "inserted_fraction": 0.3,
    "affected_fraction": 0.55,
}


@pytest.fixture(params=[False, True], ids=["copy on write", "deletion vectors"])
def path(made_once: MadeOnce, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return made_once(tmp_path / "t", made, request.param)


def made(spark: SparkSession, path: Path, vectors: bool) -> None:
    """Four files of five ids each."""
    rows = spark.range(0, 20, 1, 4).selectExpr("id", "'old' AS v")
    rows.write.format("delta").option("delta.enableDeletionVectors", vectors).save(str(path))


def run(
    spark: SparkSession, path: Path, clauses: tuple[MergeClause, ...] = CLAUSES, source: str = SOURCE, **guards: Any
) -> tuple[int, int, int]:
    config = MergeConfig(target=str(path), source=MergeSource(query=source), on=["id"], clauses=clauses, guards=guards)
    result = merge(spark, config)
    return result.num_updated_rows, result.num_deleted_rows, result.num_inserted_rows


def test_what_is_within_all_bounds_is_merged(spark: SparkSession, path: Path) -> None:
    assert run(spark, path, fail_if=WITHIN) == (2, 3, 6)


@pytest.mark.parametrize("name", ["num_deleted_rows", "num_inserted_rows", "num_affected_rows", "deleted_fraction"])
def test_a_merge_that_trips_a_guard_leaves_no_files(spark: SparkSession, path: Path, name: str) -> None:
    before, value = files_in(path), WITHIN[name]
    with pytest.raises(MergeGuardError, match=rf"guard {name} > .*\b{name} is {value}[,.]"):
        run(spark, path, fail_if={**WITHIN, name: value * 0.99})
    assert files_in(path) == before


def test_a_condition_may_join_several_counts(spark: SparkSession, path: Path) -> None:
    assert run(spark, path, fail_if=["num_deleted_rows > 2 AND deleted_fraction > 0.2"]) == (2, 3, 6)
    with pytest.raises(MergeGuardError, match="num_source_rows is 11, num_inserted_rows is 11"):
        run(spark, path, source="SELECT id + 50 AS id, v, gone FROM (" + SOURCE + ")",
            fail_if=["num_inserted_rows = num_source_rows"])  # fmt: skip


def test_insert_only_merges_are_guarded(spark: SparkSession, path: Path) -> None:
    with pytest.raises(MergeGuardError, match=r"num_inserted_rows is 6.* excluded 3 of 4 files") as stopped:
        run(spark, path, UPSERT[1:], fail_if={"num_inserted_rows": 5})
    assert "deltaMerge.pruneBySource.enabled=false" in str(stopped.value)
    with (
        session_settings(spark, {"spark.deltaMerge.pruneBySource.enabled": "false"}),
        pytest.raises(MergeGuardError, match=r"clear the task\.$"),
    ):
        run(spark, path, UPSERT[1:], fail_if={"num_inserted_rows": 5})
    assert run(spark, path, UPSERT[1:], fail_if={"num_inserted_rows": 6}) == (0, 0, 6)


def test_fractions_of_an_empty_target_never_trip_a_guard(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'empty'}` (id BIGINT, v STRING) USING delta").collect()
    assert run(spark, tmp_path / "empty", UPSERT, fail_if={"inserted_fraction": 0.1}) == (0, 0, 11)


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ("num_dleted_rows > 1", r"not a valid condition\. Use the counts num_source_rows"),
        ("num_deleted_rows", "must be a boolean, but its type is bigint"),
        ("num_deleted_rows >", "is not a SQL expression"),
    ],
)
def test_a_wrong_guard_condition_fails_before_reading(
    spark: SparkSession, path: Path, condition: str, sentence: str
) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        run(spark, path, source="SELECT raise_error('read') AS id", fail_if=[condition])


def test_an_empty_source_deletes_all_unless_a_guard_says_otherwise(spark: SparkSession, path: Path) -> None:
    nothing, sync = f"{SOURCE} WHERE id < 0", (*UPSERT, when_not_matched_by_source_delete())
    for choice in ("skip", "fail"):
        with pytest.raises(EmptySourceError, match="no rows"):
            run(spark, path, sync, nothing, on_empty_source=choice)
    assert spark.read.format("delta").load(str(path)).count() == 20
    assert run(spark, path, sync, nothing) == (0, 20, 0)


def expect(spark: SparkSession, path: Path, source: str = SOURCE, **expected: Any) -> tuple[int, int, int]:
    return run(spark, path, source=source, expect_source=expected)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("WARNING", logger="airflow_delta_merge.engine")
    return caplog


# Ids 1 (twice), 2 (three times) and 3, two without; `day` is missing in two rows, one of them without id.
ODD = """SELECT id, day, concat('secret ', row) AS v
    FROM VALUES (1, 'mon', 1), (1, 'tue', 2), (2, 'mon', 3), (2, 'mon', 4), (2, NULL, 5), (3, 'mon', 6),
        (NULL, NULL, 7), (NULL, 'tue', 8) AS rows(id, day, row)"""
INSERTS = (when_not_matched_insert_all(),)


def test_a_source_that_is_as_expected_is_merged(spark: SparkSession, path: Path) -> None:
    columns = {"id": "BIGINT", "v": "string", "gone": "boolean"}
    assert expect(spark, path, unique=["id"], not_null=["id", "V"], columns=columns) == (2, 3, 6)


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"unique": ["id"]}, "5 rows share id with others, in 2 keys, of 8 rows"),
        ({"unique": ["id", "day"]}, "2 rows share id, day with others, in 1 key, of 8 rows"),
        ({"not_null": ["day"]}, "day is NULL in 2 rows, of 8 rows"),
        (
            {"not_null": ["v", "id", "day"], "unique": "id"},
            "id is NULL in 2 rows; day is NULL in 2 rows; 5 rows share id with others, in 2 keys, of 8 rows",
        ),
        ({"columns": {"id": "int", "day": "date", "v": "binary"}}, "day is string, not date; v is string, not binary."),
        ({"columns": {"month": "int"}, "not_null": ["year"]}, "there is no column year; there is no column month."),
    ],
    ids=readable,
)
def test_a_source_that_fails_its_expectations_leaves_no_files(
    spark: SparkSession, path: Path, expected: dict[str, Any], message: str
) -> None:
    before = files_in(path)
    with pytest.raises(SourceExpectationError) as raised:
        run(spark, path, INSERTS, ODD, expect_source=expected)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)
    assert files_in(path) == before


@pytest.mark.parametrize(
    ("sample", "rows"),
    [
        ("keys", ['{"id": "2"}', '{"id": null}', '{"id": "1", "number of rows": "2"}']),
        ("rows", ['{"id": "2", "day": null, "v": "secret 5"}', '{"id": "1", "day": "tue", "v": "secret 2"}']),
        ("none", []),
    ],
    ids=readable,
)
def test_the_log_shows_some_of_the_rows(
    spark: SparkSession, path: Path, log: pytest.LogCaptureFixture, sample: str, rows: list[str]
) -> None:
    with pytest.raises(SourceExpectationError) as raised:
        run(spark, path, INSERTS, ODD, expect_source={"unique": ["id"], "not_null": ["day"], "sample": sample})
    said = [record.getMessage().strip() for record in log.records]
    assert set(rows) <= set(said)
    assert bool(said) == ("The log above" in str(raised.value)) == bool(rows)
    assert ("secret" in log.text) == (sample == "rows")
    assert len([line for line in said if line.startswith("{")]) <= 2 * SAMPLE_SIZE


@pytest.mark.parametrize("sample", ["keys", "rows", "none"])
def test_unique_rows_are_looked_for_in_a_session_whose_groups_lack_their_columns(
    spark: SparkSession, path: Path, log: pytest.LogCaptureFixture, sample: str
) -> None:
    unique = {"unique": ["id", "day"], "sample": sample}
    with (
        session_settings(spark, {"spark.sql.retainGroupColumns": "false"}),
        pytest.raises(SourceExpectationError, match="2 rows share id, day with others, in 1 key, of 8 rows"),
    ):
        run(spark, path, INSERTS, ODD, expect_source=unique)
    found = {"keys": '{"id": "2", "day": "mon", "number of rows": "2"}', "rows": '"secret 4"', "none": ""}
    assert found[sample] in "\n".join(log.messages)


def test_expected_columns_outside_the_merge_are_checked(spark: SparkSession, path: Path) -> None:
    source = "SELECT id, 'new' AS v, named_struct('mail', nullif(id, 20)) AS who, 1 AS `a.b` FROM range(15, 26)"
    with pytest.raises(SourceExpectationError, match=r"who.mail is NULL in 1 row; 11 rows share `a.b` with others"):
        expect(spark, path, f"SELECT *, false AS gone FROM ({source})", unique=["`a.b`"], not_null=["who.mail"])


def test_the_log_identifies_a_row_by_the_compared_columns(
    spark: SparkSession, path: Path, log: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SourceExpectationError, match="v is NULL in 1 row, of 3 rows"):
        expect(spark, path, "SELECT INT(id), nullif(id, 16) AS v, false AS gone FROM range(15, 18)", not_null=["v"])
    assert [record.getMessage().strip() for record in log.records][1:] == ['{"id": "16"}']


def test_nan_is_a_value_and_null_is_none(spark: SparkSession, path: Path) -> None:
    size = "CASE WHEN id < 17 THEN double('NaN') WHEN id > 20 THEN NULL ELSE double(id) END AS size"
    with pytest.raises(SourceExpectationError, match="2 rows share size with others, in 1 key, of 11 rows"):
        expect(spark, path, SOURCE.replace("FROM", f", {size} FROM"), unique=["size"])


def test_values_of_a_sample_are_one_line_each_and_short(
    spark: SparkSession, path: Path, log: pytest.LogCaptureFixture
) -> None:
    source = "SELECT 1 AS id, concat('a\\nb', repeat('x', 1000)) AS v FROM range(2)"
    with pytest.raises(SourceExpectationError):
        run(spark, path, INSERTS, source, expect_source={"unique": ["v"]})
    (line,) = [record.getMessage() for record in log.records if "number of rows" in record.getMessage()]
    assert "\n" not in line
    assert len(line) < 200


def test_expected_columns_are_checked_before_reading(spark: SparkSession, path: Path) -> None:
    failing = "SELECT raise_error('read') AS id, 'new' AS v"
    with pytest.raises(SourceExpectationError, match="v is string, not int"):
        run(spark, path, INSERTS, failing, expect_source={"columns": {"v": "int"}})
    with pytest.raises(MergeConfigError, match="'bigit' in expect_source is not valid"):
        run(spark, path, INSERTS, failing, expect_source={"columns": {"v": "bigit"}})


def test_an_empty_source_has_all_that_is_expected_but_columns(spark: SparkSession, path: Path) -> None:
    assert expect(spark, path, f"{SOURCE} WHERE id < 0", unique=["id"], not_null=["id"]) == (0, 0, 0)


def test_the_rows_are_those_left_by_window_and_dedupe(spark: SparkSession, path: Path) -> None:
    source = "SELECT id % 3 AS id, concat('v', id) AS v, 'x' AS mail, id AS latest FROM range(9)"
    config = MergeConfig(
        target=str(path),
        source=MergeSource(query=source),
        on=["id"],
        clauses=[when_matched_update(set={"v": "source.v"})],
        source_dedupe=["latest"],
        guards={"expect_source": {"unique": ["mail"]}},
    )
    with pytest.raises(SourceExpectationError, match="3 rows share mail with others, in 1 key, of 3 rows"):
        merge(spark, config)


def test_the_source_of_a_statement_is_looked_at(spark: SparkSession, path: Path) -> None:
    sql = f"MERGE INTO delta.`{path}` t USING ({ODD}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    with pytest.raises(SourceExpectationError, match="id is NULL in 2 rows"):
        merge(spark, MergeStatement(sql=sql, guards={"expect_source": {"not_null": ["id"]}}))
