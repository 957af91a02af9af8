"""``engine="builtin"`` on versions that were never tried: Delta runs one statement, which is committed once.

The versions that are here were tried; so the list of those is emptied.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import MergeConfig, MergeStatement, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.engine import merge, merge_sql, plan
from airflow_delta_merge.exceptions import MergeConfigError, MergeConflictError, MergeExecutionError, StaleMergeError
from tests.differential.conftest import MadeOnce
from tests.differential.meanwhile import Meanwhile
from tests.readable_ids import readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult

SOURCE = "SELECT id, 'new' AS v FROM range(15, 26)"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
SYNC = f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"


@pytest.fixture(autouse=True)
def nothing_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_delta_merge.engine.delta_jvm.versions.TRIED", {})


@pytest.fixture(params=["false", "true"], ids=["files rewritten", "rows marked"])
def table(request: pytest.FixtureRequest, made_once: MadeOnce, tmp_path: Path) -> Path:
    return made_once(tmp_path / "t", made, request.param)


def made(spark: SparkSession, path: Path, vectors: str) -> None:
    """Two files of ten ids each."""
    rows = spark.range(0, 20, 1, 2).selectExpr("id", "'old' AS v")
    rows.write.format("delta").option("delta.enableDeletionVectors", vectors).save(str(path))


def statement(table: Path, clauses: str, source: str = SOURCE) -> str:
    return f"MERGE INTO delta.`{table}` t USING ({source}) s ON t.id = s.id {clauses}"


def merged(spark: SparkSession, table: Path, clauses: str = UPSERT, *, generation: int | None = None) -> MergeResult:
    identity = None if generation is None else MergeIdentity(application_id="a", generation=generation)
    return merge(spark, MergeStatement(sql=statement(table, clauses), engine="builtin"), identity=identity)


def rows(spark: SparkSession, table: Path) -> list[tuple[int, str]]:
    return sorted(map(tuple, spark.read.format("delta").load(str(table)).collect()))


def versions(table: Path) -> int:
    return len([*(table / "_delta_log").glob("*.json")])


@pytest.mark.parametrize("clauses", [UPSERT, SYNC, "WHEN NOT MATCHED THEN INSERT *"])
def test_the_result_is_what_delta_did(spark: SparkSession, table: Path, tmp_path: Path, clauses: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(table, copy)
    (expected,) = spark.sql(statement(copy, clauses)).collect()
    result = merged(spark, table, clauses)
    assert rows(spark, table) == rows(spark, copy)
    assert {name: getattr(result, name) for name in expected.asDict()} == expected.asDict()
    assert (result.executor, result.version_read, result.version) == ("BuiltInStatement", 0, 1)
    assert (result.location, result.num_files_before_skipping) == (f"file:{table}", 2)
    log = [json.loads(line) for line in (table / "_delta_log" / f"{1:020}.json").read_text().splitlines()]
    marked = [action for action in log if "add" in action and action["add"].get("deletionVector")]
    assert result.num_added_files == len([action for action in log if "add" in action]) - len(marked)
    assert result.num_touched_files == len([action for action in log if "remove" in action])


def test_nothing_to_do_is_a_version_that_says_who_merged(spark: SparkSession, table: Path) -> None:
    # Delta writes the session's transaction down even where no row changes.
    result = merged(spark, table, "WHEN MATCHED AND s.id < 0 THEN DELETE", generation=64)
    assert (result.version, result.num_affected_rows, versions(table)) == (1, 0, 2)
    again = merged(spark, table, "WHEN MATCHED AND s.id < 0 THEN DELETE", generation=64)
    assert (again.version, again.already_committed, versions(table)) == (1, True, 2)


def test_it_is_committed_once(spark: SparkSession, table: Path) -> None:
    first, again = merged(spark, table, generation=64), merged(spark, table, generation=64)
    assert (first.version, first.num_updated_rows, first.already_committed) == (1, 5, False)
    assert (again.version, again.num_updated_rows, again.already_committed) == (1, 5, True)
    with pytest.raises(StaleMergeError, match="generation 64"):
        merged(spark, table, generation=0)
    assert merged(spark, table, generation=65).version == 2
    assert versions(table) == 3


def test_a_commit_without_a_record_fails_as_stale(spark: SparkSession, table: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.write.txnAppId", "a")
    session.conf.set(TXN_VERSION, "64")
    session.sql(statement(table, UPSERT)).collect()
    with pytest.raises(StaleMergeError, match="result is unknown"):
        merged(spark, table, generation=64)
    assert versions(table) == 2


def test_the_sessions_own_settings_stay(spark: SparkSession, table: Path) -> None:
    session = spark.newSession()
    session.conf.set(USER_METADATA, "nightly")
    merged(session, table, generation=64)
    recorded = json.loads(spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").head().userMetadata)
    assert recorded["user_metadata"] == "nightly"
    assert recorded["airflow_delta_merge_builtin"]["generation"] == 64
    assert (session.conf.get(USER_METADATA), session.conf.get(TXN_VERSION, None)) == ("nightly", None)


def test_deltas_errors_keep_their_condition(spark: SparkSession, table: Path) -> None:
    sql = statement(table, UPSERT, f"{SOURCE} UNION ALL {SOURCE}")
    with pytest.raises(MergeExecutionError) as raised:
        merge(spark, MergeStatement(sql=sql, engine="builtin"))
    assert raised.value.condition == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


def test_another_writers_commit_is_a_conflict(spark: SparkSession, table: Path) -> None:
    with Meanwhile(spark, table, [f"DELETE FROM delta.`{table}` WHERE id = 16"]) as other:
        sql = statement(table, UPSERT, other.pausing(f"({SOURCE})"))
        with pytest.raises(MergeConflictError, match="attempt 1 of 1"):
            merge(spark, MergeStatement(sql=sql, engine="builtin"), max_commit_attempts=1)
    assert versions(table) == 2


def test_an_error_after_the_commit_is_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    table, manifest = tmp_path / "t", tmp_path / "t" / "_symlink_format_manifest"
    writer = spark.sql("SELECT 15L AS id, 'old' AS v").write.format("delta")
    writer.option("delta.compatibility.symlinkFormatManifest.enabled", "true").save(str(table))
    shutil.rmtree(manifest)
    manifest.write_text("in the way")
    result = merged(spark, table, generation=7)
    assert (result.version, result.num_updated_rows, result.already_committed) == (1, 1, False)


def test_a_config_with_a_missing_target(spark: SparkSession, tmp_path: Path) -> None:
    config = MergeConfig(
        target=str(tmp_path / "new"),
        source=SOURCE,
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
        create_table=True,
        engine="builtin",
    )
    assert merge(spark, config).num_inserted_rows == 11


def test_our_engine_does_nothing_there(spark: SparkSession, table: Path) -> None:
    sql = statement(table, UPSERT)
    for refused in (lambda: merge(spark, MergeStatement(sql=sql)), lambda: merge_sql(spark, sql),
                    lambda: plan(spark, MergeStatement(sql=sql, engine="builtin"))):  # fmt: skip
        with pytest.raises(MergeConfigError, match='or set engine="builtin" to run Delta'):
            refused()
    assert versions(table) == 1


@pytest.mark.parametrize(
    ("guards", "locations", "option"),
    [
        ({"fail_if": {"num_updated_rows": 4}}, None, "fail_if"),
        ({"on_empty_source": "skip"}, None, "on_empty_source"),
        ({}, ["/"], "allowed_locations"),
    ],
    ids=readable,
)
def test_options_checked_before_the_commit_are_refused(
    spark: SparkSession, table: Path, guards: dict[str, object], locations: list[str] | None, option: str
) -> None:
    config = MergeStatement(sql=statement(table, UPSERT), engine="builtin", guards=guards)  # type: ignore[arg-type]
    with pytest.raises(MergeConfigError, match=f"^{option} needs a check before the commit"):
        merge(spark, config, allowed_locations=locations)
    assert versions(table) == 1
