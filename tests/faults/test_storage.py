"""Storage that fails under a merge, at each step that writes: the table is as it was or has the merge, once.

Full disks are made by the kernel: the JVM may write no file beyond a size, so its write fails in the middle (with
EFBIG where a full disk says ENOSPC). Answers that get lost are made by a log store. Nothing of either is in the
package.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_delta_merge import engine
from airflow_delta_merge.config import MergeConfig, when_matched_update, when_not_matched_insert_all
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.engine.delta_jvm import commit
from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.meanwhile import Meanwhile
from tests.differential.session_settings import session_settings
from tests.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_STORE, FILE_SYSTEM = (
    Path(__file__).parent / "seam" / f"{name}.java" for name in ("FaultyLogStore", "KeepingFiles")
)
pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")


@pytest.fixture(scope="module")
def fault(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Have the log store of the tables of this module fail at its next commit."""
    conf = spark.sparkContext._jsc.sc().conf()
    # Tasks need it, too: some read the log.
    with java_classes(spark, LOG_STORE, jar=tmp_path_factory.mktemp("log_store") / "log_store.jar"):
        conf.set("spark.delta.logStore.file.impl", "FaultyLogStore")
        yield lambda name: spark._jvm.java.lang.System.setProperty("airflow_delta_merge.fault", name)
        conf.remove("spark.delta.logStore.file.impl")


@pytest.fixture
def table(spark: SparkSession, fault: object, tmp_path: Path) -> Path:
    """Rows 0 to 9 with n = 0, and a checkpoint at each commit."""
    path = tmp_path / "table"
    rows = spark.range(10).selectExpr("id", "0L AS n")
    rows.write.format("delta").option("delta.checkpointInterval", "1").save(str(path))
    return path


def merge(spark: SparkSession, table: Path) -> MergeResult:
    """Adds 1 to one row and inserts one, the same execution at each call."""
    config = MergeConfig(
        target=str(table),
        source="SELECT id, 1L AS n FROM VALUES (1L), (100L) AS t(id)",
        on=["id"],
        clauses=[when_matched_update(set={"n": "target.n + source.n"}), when_not_matched_insert_all()],
    )
    return engine.merge(spark, config, identity=MergeIdentity(application_id="me", generation=7))


@contextmanager
def disk_full_at(spark: SparkSession, size: int) -> Iterator[None]:
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def fill_disk(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, step: str, size: int) -> None:
    original = getattr(MergeTransaction, step)

    def without_space(transaction: MergeTransaction, *arguments: Any, **named: Any) -> Any:
        with disk_full_at(spark, size):
            return original(transaction, *arguments, **named)

    monkeypatch.setattr(MergeTransaction, step, without_space)


def sum_of(spark: SparkSession, table: Path) -> int:
    """By a session that has no memory of the table."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    return int(spark.read.format("delta").load(str(table)).selectExpr("sum(n)").first()[0])


def check_untouched(spark: SparkSession, table: Path) -> None:
    assert DeltaTable(str(table)).version() == 0
    assert sorted(path.name for path in (table / "_delta_log").glob("[0-9]*")) == [f"{0:020}.crc", f"{0:020}.json"]
    assert sum_of(spark, table) == 0


def check_merged_once(spark: SparkSession, table: Path, result: MergeResult) -> None:
    assert (result.version, result.num_updated_rows, result.num_inserted_rows) == (1, 1, 1)
    assert DeltaTable(str(table)).version() == 1
    assert sum_of(spark, table) == 2
    assert all(Path(file).exists() for file in DeltaTable(str(table)).file_uris())


@pytest.mark.parametrize(("step", "size"), [("write_files", 300), ("commit", 600)])
def test_disk_full(spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch, step: str, size: int) -> None:
    with monkeypatch.context() as patch:
        fill_disk(patch, spark, step, size)
        with pytest.raises(MergeExecutionError, match="File too large"):
            merge(spark, table)
    check_untouched(spark, table)
    again = merge(spark, table)
    assert not again.already_committed
    check_merged_once(spark, table, again)


def test_disk_full_after_the_commit(spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fill_disk(patch, spark, "commit", 8_000)  # room for the commit file, none for the checkpoint
        result = merge(spark, table)
    assert not list((table / "_delta_log").glob(f"{1:020}.checkpoint*"))
    check_merged_once(spark, table, result)
    assert merge(spark, table).already_committed


def test_storage_refuses_the_commit(spark: SparkSession, table: Path, fault: Callable[[str], Any]) -> None:
    fault("refused")
    with pytest.raises(MergeExecutionError, match="the storage refused the write"):
        merge(spark, table)
    check_untouched(spark, table)
    check_merged_once(spark, table, merge(spark, table))


@pytest.mark.parametrize("answer", ["unheard", "repeated", "blind"])
def test_a_commit_reported_as_an_error(
    spark: SparkSession, table: Path, fault: Callable[[str], Any], answer: str
) -> None:
    """The commit is there, so it is found by its transaction's id: the merge has succeeded, and its files stay."""
    fault(answer)
    result = merge(spark, table)
    assert (result.num_commit_attempts, result.already_committed) == (1, False)
    check_merged_once(spark, table, result)
    again = merge(spark, table)
    assert again.already_committed
    check_merged_once(spark, table, again)
    commit = [json.loads(line) for line in (table / "_delta_log" / f"{1:020}.json").read_text().splitlines()]
    assert [action["txn"]["version"] for action in commit if "txn" in action] == [7]


def test_a_commit_that_cannot_be_looked_up_again(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an object store each commit is looked up, in case that another writer's has taken its place."""

    def unavailable(*_: object) -> int:
        raise MergeExecutionError("The store does not answer.")

    monkeypatch.setattr(commit, "is_object_store", lambda _: True)
    monkeypatch.setattr(commit, "_landed_version", unavailable)
    check_merged_once(spark, table, merge(spark, table))


def test_a_conflict_is_tried_again_where_files_must_not_be_deleted(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt's files stay for VACUUM."""
    table, hadoop = tmp_path / "table", spark.sparkContext._jsc.hadoopConfiguration()
    spark.range(10).selectExpr("id", "0L AS n").write.format("delta").save(str(table))
    spark.sparkContext._jsc.sc().conf().set("spark.delta.logStore.kept.impl", "io.delta.storage.LocalLogStore")
    loader = hadoop.getClassLoader()
    settings = {"fs.kept.impl": "KeepingFiles", "fs.kept.impl.disable.cache": "true"}
    other = [f"UPDATE delta.`{table}` SET n = 5 WHERE id = 1"]
    with (
        java_classes(spark, FILE_SYSTEM, jar=tmp_path / "files.jar"),
        session_settings(spark, settings),
        Meanwhile(spark, table, other) as meanwhile,
        caplog.at_level("WARNING", "airflow_delta_merge"),
    ):
        hadoop.setClassLoader(spark._jvm.java.lang.Thread.currentThread().getContextClassLoader())
        try:
            result = engine.merge_sql(
                spark,
                f"MERGE INTO delta.`kept://{table}` t USING {meanwhile.pausing('(SELECT 1L AS id)')} s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET n = t.n + 1",
            )
        finally:
            hadoop.setClassLoader(loader)
    assert (result.num_commit_attempts, sum_of(spark, table)) == (2, 6)
    assert "could not be deleted: java.nio.file.AccessDeniedException" in caplog.text
