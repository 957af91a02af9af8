"""The engine's guard: one commit for one intended execution, whoever tries how often, and its result from the log."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge import engine
from airflow_delta_merge.config import (
    MergeConfig,
    when_matched_update,
    when_not_matched_by_source_delete,
    when_not_matched_insert_all,
)
from airflow_delta_merge.contract.commit_record import CommitRecord
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeConflictError, MergeExecutionError, StaleMergeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not idempotent on purpose: each time it is applied, `n` of the row grows.
COUNT_UP = [when_matched_update(set={"n": "target.n + source.n"}), when_not_matched_insert_all()]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Path:
    """Rows 0 to 9 with n = 0, in files of one row's part each."""
    path = tmp_path / "table"
    spark.range(10).selectExpr("id % 2 AS part", "id", "0L AS n").write.format("delta").partitionBy("part").save(
        str(path)
    )
    return path


def config(table: Path, ids: str = "1", **changes: Any) -> MergeConfig:
    source = f"SELECT id % 2 AS part, id, 1L AS n FROM VALUES ({'), ('.join(ids.split(','))}) AS t(id)"
    return MergeConfig(target=str(table), source=source, on=["id"], clauses=COUNT_UP, **changes)


def me(generation: int = 7, application_id: str = "me", **changes: Any) -> MergeIdentity:
    return MergeIdentity(application_id=application_id, generation=generation, **changes)


def commits(table: Path) -> list[list[dict[str, Any]]]:
    logs = sorted((table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def info(commit: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [action["commitInfo"] for action in commit if "commitInfo" in action]
    return found


def total(spark: SparkSession, table: Path) -> int:
    return spark.read.format("delta").load(str(table)).selectExpr("sum(n)").first()[0]


def data_files(table: Path) -> set[Path]:
    return set(table.rglob("*.parquet")) - set((table / "_delta_log").rglob("*.parquet"))


def live_files(table: Path) -> set[Path]:
    live: set[str] = set()
    for commit in commits(table):
        live -= {action["remove"]["path"] for action in commit if "remove" in action}
        live |= {action["add"]["path"] for action in commit if "add" in action}
    return {table / path for path in live}


def test_second_try_returns_what_the_first_committed(spark: SparkSession, table: Path) -> None:
    first = engine.merge(spark, config(table, "1,100"), identity=me())
    engine.merge(spark, config(table, "2"))  # somebody else's commit in between
    second = engine.merge(spark, config(table, "1,100"), identity=me())
    assert (first.version, first.already_committed) == (1, False)
    known = {name: ms for name, ms in first.durations_ms.items() if name not in ("commit", "total")}
    assert second == replace(first, already_committed=True, durations_ms=known)
    assert [len(commits(table)), total(spark, table)] == [3, 3]


def test_second_try_is_known_without_the_tables_checksum_files(spark: SparkSession, table: Path) -> None:
    first = engine.merge(spark, config(table), identity=me())
    for checksum in (table / "_delta_log").rglob("*.crc"):
        checksum.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    again = engine.merge(spark, config(table), identity=me())
    assert (again.already_committed, again.version, len(commits(table))) == (True, first.version, 2)


def test_commit_carries_transaction_and_record(spark: SparkSession, table: Path) -> None:
    who = TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r", map_index=3, try_number=2)
    identity = me(1_700_000_000_000_000_003, task_instance=who)
    result = engine.merge(spark, config(table), identity=identity)
    commit = commits(table)[-1]
    (txn,) = [action["txn"] for action in commit if "txn" in action]
    assert (txn["appId"], txn["version"]) == ("me", 1_700_000_000_000_000_003)
    assert abs(txn["lastUpdated"] - info(commit)["timestamp"]) < 60_000
    record = CommitRecord.from_user_metadata(info(commit)["userMetadata"])
    assert record is not None
    assert record.identity == identity
    assert len(record.config_digest) == 64
    assert record.result_of(1).num_updated_rows == result.num_updated_rows == 1


def test_later_generation_merges_again_and_an_earlier_one_is_stale(spark: SparkSession, table: Path) -> None:
    engine.merge(spark, config(table), identity=me(7))
    assert engine.merge(spark, config(table), identity=me(8)).version == 2
    before = sorted(table.rglob("*"))
    with pytest.raises(StaleMergeError, match=r"later execution .* \(generation 7\) is outdated and changes nothing"):
        engine.merge(spark, config(table), identity=me(7))
    assert sorted(table.rglob("*")) == before
    assert total(spark, table) == 2


def test_applications_do_not_mix(spark: SparkSession, table: Path) -> None:
    for name in ("a", "b", "a/b", "ä' \"\n"):
        assert not engine.merge(spark, config(table), identity=me(1, name)).already_committed
        assert engine.merge(spark, config(table), identity=me(1, name)).already_committed
    assert total(spark, table) == 4


def test_nothing_to_do_commits_nothing(spark: SparkSession, table: Path) -> None:
    nothing = MergeConfig(
        target=str(table), source="SELECT -1L AS id", on=["id"], clauses=[when_matched_update(set={"n": "1"})]
    )
    for _ in range(2):
        result = engine.merge(spark, nothing, identity=me())
        assert (result.version, result.already_committed) == (None, False)
    assert len(commits(table)) == 1


def test_new_column_alone_is_committed_once(spark: SparkSession, table: Path) -> None:
    evolving = MergeConfig(
        target=str(table),
        source="SELECT -1L AS id, 'x' AS more",
        on=["id"],
        clauses=[when_matched_update(set={"more": "source.more"})],
        with_schema_evolution=True,
    )
    first = engine.merge(spark, evolving, identity=me())
    assert (first.version, first.num_affected_rows) == (1, 0)
    assert engine.merge(spark, evolving, identity=me()).already_committed


def test_session_user_metadata_is_kept_beside(spark: SparkSession, table: Path) -> None:
    setting = "spark.databricks.delta.commitInfo.userMetadata"
    spark.conf.set(setting, 'mine "{}"')
    try:
        engine.merge(spark, config(table), identity=me())
        assert spark.conf.get(setting) == 'mine "{}"'
        engine.merge(spark, config(table))
    finally:
        spark.conf.unset(setting)
    engine.merge(spark, config(table))
    recorded, plain, bare = (info(commit).get("userMetadata") for commit in commits(table)[1:])
    assert json.loads(recorded)["user_metadata"] == 'mine "{}"'
    assert (plain, bare) == ('mine "{}"', None)
    assert CommitRecord.from_user_metadata(recorded) is not None


def test_session_transaction_still_works(spark: SparkSession, table: Path) -> None:
    spark.conf.set("spark.databricks.delta.write.txnAppId", "session")
    spark.conf.set("spark.databricks.delta.write.txnVersion", "5")
    try:
        assert engine.merge(spark, config(table)).version == 1
        assert engine.merge(spark, config(table)).version is None
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")


def test_record_that_was_cleaned_up(spark: SparkSession, table: Path) -> None:
    engine.merge(spark, config(table), identity=me())
    engine.merge(spark, config(table, "2"))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(table)).checkpoint()
    for version in (0, 1):
        for file in (table / "_delta_log").glob(f"*{version:020}.*"):
            file.unlink()
    result = engine.merge(spark, config(table), identity=me())
    assert result.already_committed
    assert result.version is None
    assert "its record is not in the table's log" in result.executor_reason
    assert total(spark, table) == 2


def test_commit_of_the_generation_without_a_record(spark: SparkSession, table: Path) -> None:
    rows = spark.sql("SELECT 1L AS part, 11L AS id, 0L AS n")
    rows.write.format("delta").mode("append").option("txnAppId", "me").option("txnVersion", 7).save(str(table))
    result = engine.merge(spark, config(table), identity=me(7))
    assert (result.already_committed, result.version) == (True, None)
    assert total(spark, table) == 0


def test_clear_of_another_task_is_no_new_execution(spark: SparkSession, table: Path) -> None:
    who = TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r")
    start = 1_700_000_000_000 * 1_000_000
    engine.merge(spark, config(table), identity=me(start + 1_002, task_instance=who))
    assert engine.merge(spark, config(table), identity=me(start + 2_002, task_instance=who)).already_committed
    assert engine.merge(spark, config(table), identity=me(start + 2, task_instance=who)).already_committed
    assert not engine.merge(spark, config(table), identity=me(start + 3_003, task_instance=who)).already_committed
    assert total(spark, table) == 2


def test_restore_keeps_the_record(spark: SparkSession, table: Path) -> None:
    first = engine.merge(spark, config(table), identity=me(7))
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 0").collect()
    again = engine.merge(spark, config(table), identity=me(7))
    assert (again.already_committed, again.version, total(spark, table)) == (True, first.version, 0)
    assert not engine.merge(spark, config(table), identity=me(8)).already_committed
    assert total(spark, table) == 1


def test_an_error_after_the_commit_is_a_warning(
    spark: SparkSession, table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Delta then says that the commit succeeded. Another try without an identity would merge again."""
    spark.sql(
        f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.compatibility.symlinkFormatManifest.enabled' = 'true')"
    )
    manifest = table / "_symlink_format_manifest"
    shutil.rmtree(manifest, ignore_errors=True)
    manifest.write_text("in the way")
    with caplog.at_level("WARNING", "airflow_delta_merge"):
        result = engine.merge(spark, config(table))
    assert (result.version, total(spark, table)) == (2, 1)
    assert "committed as version 2, but an error followed" in caplog.text
    assert "DELTA_POST_COMMIT_HOOK_FAILED" in caplog.text


# Other writers


@pytest.fixture
def interfere(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have something done right before the next commits of this engine, as another writer would by chance."""
    from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction

    original = MergeTransaction.commit

    def before_commits(action: Callable[[], Any], times: int = 1) -> None:
        left = [times]

        def commit(transaction: MergeTransaction, *arguments: Any, **named: Any) -> int | None:
            if left[0] > 0 and threading.current_thread() is threading.main_thread():
                left[0] -= 1
                other = threading.Thread(target=action)  # a thread has its own active transaction
                other.start()
                other.join()
            return original(transaction, *arguments, **named)

        monkeypatch.setattr(MergeTransaction, "commit", commit)
        monkeypatch.setattr("airflow_delta_merge.engine.exactly_once._FIRST_WAIT_SECONDS", 0.01)

    return before_commits


def test_conflict_is_tried_again_from_the_start(spark: SparkSession, table: Path, interfere: Any) -> None:
    interfere(lambda: engine.merge(spark, config(table, "3")), times=2)
    result = engine.merge(spark, config(table, "1"), identity=me())
    assert (result.version, result.version_read, result.num_commit_attempts) == (3, 2, 3)
    assert total(spark, table) == 3
    again = engine.merge(spark, config(table, "1"), identity=me())
    assert (again.num_commit_attempts, again.already_committed) == (3, True)
    # The files of the failed attempts are gone: all that is there was part of the table once.
    assert data_files(table) == set.union(
        *[{table / a["add"]["path"] for a in c if "add" in a} for c in commits(table)]
    )


def test_writers_of_other_files_do_not_conflict(spark: SparkSession, table: Path, interfere: Any) -> None:
    by_part = replace(config(table, "1"), on="target.id = source.id AND target.part = 1 AND source.part = 1")
    interfere(lambda: engine.merge(spark, replace(config(table, "2"), on="target.id = source.id AND target.part = 0")))
    assert engine.merge(spark, by_part).num_commit_attempts == 1
    assert total(spark, table) == 2


def test_syncs_of_other_partitions_do_not_conflict(spark: SparkSession, table: Path, interfere: Any) -> None:
    gone = when_not_matched_by_source_delete(condition="target.part = 1 AND target.id IN (7, 9)")
    synced = replace(config(table, "1"), on="target.part = 1 AND target.id = source.id", clauses=[*COUNT_UP, gone])
    interfere(lambda: engine.merge(spark, replace(config(table, "2"), on="target.id = source.id AND target.part = 0")))
    result = engine.merge(spark, synced)
    assert (result.num_commit_attempts, result.num_deleted_rows) == (1, 2)
    assert total(spark, table) == 2


def test_attempts_are_bounded(spark: SparkSession, table: Path, interfere: Any) -> None:
    interfere(lambda: engine.merge(spark, config(table, "3")), times=2)
    with pytest.raises(
        MergeConflictError, match=r"attempt 2 of 2\. Run fewer writers .* max_commit_attempts"
    ) as caught:
        engine.merge(spark, config(table, "1"), max_commit_attempts=2)
    assert str(caught.value.condition).startswith("DELTA_CONCURRENT_")
    assert total(spark, table) == 2
    assert isinstance(caught.value, MergeExecutionError)


def test_two_attempts_of_one_generation(spark: SparkSession, table: Path, interfere: Any) -> None:
    other: list[MergeResult] = []
    interfere(lambda: other.append(engine.merge(spark, config(table, "1"), identity=me())))
    mine = engine.merge(spark, config(table, "1"), identity=me())
    assert (other[0].already_committed, mine.already_committed) == (False, True)
    assert (mine.version, other[0].version) == (1, 1)
    assert total(spark, table) == 1
    assert live_files(table) <= data_files(table)


def test_zombie_that_is_overtaken_while_it_merges(spark: SparkSession, table: Path, interfere: Any) -> None:
    # Disjoint files, so that only the application id can tell that the two have to do with each other.
    interfere(lambda: engine.merge(spark, config(table, "2"), identity=me(8)))
    with pytest.raises(StaleMergeError):
        engine.merge(spark, config(table, "1"), identity=me(7))
    assert total(spark, table) == 1


def test_conflict_on_a_session_transaction_keeps_it(spark: SparkSession, table: Path, interfere: Any) -> None:
    interfere(lambda: other.sql(config(table, "3").to_sql()))
    other = spark.newSession()
    spark.conf.set("spark.databricks.delta.write.txnAppId", "session")
    spark.conf.set("spark.databricks.delta.write.txnVersion", "5")
    spark.conf.set("spark.databricks.delta.write.txnVersion.autoReset.enabled", "true")
    try:
        assert engine.merge(spark, config(table, "1")).num_commit_attempts == 2
    finally:
        for name in ("txnAppId", "txnVersion", "txnVersion.autoReset.enabled"):
            spark.conf.unset(f"spark.databricks.delta.write.{name}")
    assert [action["txn"]["version"] for action in commits(table)[-1] if "txn" in action] == [5]
