"""A log may be of any writer: what can't be read tells nothing, and no bare Python error leaves a merge."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import MergeConfig, MergeSource, MergeTarget, when_matched_update_all
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.engine import merge, merge_sql, plan, read_once
from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError
from tests.differential.both_engines import merged_as_by_the_builtin
from tests.differential.foreign_tables import WAYS, check_ways, make_table
from tests.differential.session_settings import session_settings
from tests.turns import InTurn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "k BIGINT, v STRING"
SOURCE = "SELECT id AS k, 'new' AS v FROM range(0, 100, 3)"
UPSERT = (
    f"MERGE INTO {{t}} t USING ({SOURCE}) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)

#: Read by Delta's classes on the driver, with nothing about the key.
READABLE = [
    None,
    "",
    "{}",
    '{"numRecords":1,"tightBounds":false,"minValues":null,"maxValues":null,"nullCount":null}',
    '{"numRecords":1,"minValues":[1],"maxValues":"9","nullCount":0}',
    '{"numRecords":1,"minValues":{"k":"99"},"maxValues":{"k":true},"nullCount":{"k":null}}',
    '{"numRecords":1,"minValues":{"k":99.5},"maxValues":{"k":1e300},"nullCount":{"k":-1}}',
    '{"numRecords":1,"minValues":{"k":null},"maxValues":{"k":null},"nullCount":{"k":0}}',
]
#: Read by no one.
UNREADABLE = [
    '{"numRecords":1,"minVal',
    "no JSON",
    "[1,2]",
    "7",
    '"text"',
    '{"numRecords":null}',
    '{"numRecords":"many"}',
    '{"numRecords":1,"minValues":{"k":99,"k":99},"maxValues":{"k":100}}',
]


def rows(count: int) -> str:
    return f"SELECT id AS k, concat('old', id) AS v FROM range({count})"


@pytest.mark.parametrize("vectors", ["false", "true"], ids=["files are rewritten", "rows are marked"])
@pytest.mark.parametrize("forms", [READABLE, UNREADABLE], ids=["readable", "unreadable"])
def test_statistics_that_tell_nothing(
    forms: list[str | None], vectors: str, spark: SparkSession, tmp_path: Path, in_turn: InTurn
) -> None:
    left = iter(forms)

    def odd(add: dict[str, Any]) -> None:
        add["stats"] = next(left)

    options = f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
    table = make_table(spark, tmp_path / "t", COLUMNS, rows(len(forms)), options=options, edit=odd)
    searched = check_ways(spark, table, tmp_path, source=SOURCE, ways=in_turn(WAYS))
    assert searched == dict.fromkeys(searched, len(forms))


def test_tags_and_other_fields_that_nobody_knows(spark: SparkSession, tmp_path: Path, in_turn: InTurn) -> None:
    def odd(add: dict[str, Any]) -> None:
        add.update(tags={"": "", "a": None}, unheard={"of": [1]}, size=add["size"])

    table = make_table(spark, tmp_path / "t", COLUMNS, rows(4), edit=odd)
    check_ways(spark, table, tmp_path, source=SOURCE, ways=in_turn(WAYS))


# --- checksum files ---


def taken_back(table: Path, version: int, actions: list[dict[str, Any]]) -> None:
    """A version whose commit was taken back and written anew by a writer that leaves no checksum file."""
    commit = table / "_delta_log" / f"{version:020}.json"
    assert commit.with_suffix(".crc").exists()
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)


FOREIGN_COMMIT: dict[str, Any] = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}}


@pytest.mark.parametrize(
    "then", ["", "INSERT INTO {t} VALUES (1000, 'later')"], ids=["at once", "after another commit"]
)
@pytest.mark.parametrize("transaction", [None, "5bd43c5c-8a8e-4b0e-b6a5-6e6f3f4ee6a1"], ids=["none", "another"])
def test_the_checksum_file_of_a_commit_that_was_taken_back(
    transaction: str | None, then: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The old commit deleted a row, the new one did not; its checksum file lacks the file that holds it."""
    table = taken_back_delete(spark, tmp_path / "made", transaction)
    shutil.copytree(table, tmp_path / "t")  # another path than the one that Delta remembers
    if then:
        spark.sql(then.replace("{t}", f"delta.`{tmp_path / 't'}`"))
    check_against_builtin(spark, tmp_path)


def test_a_compacted_log_file_counts_as_many_commits(spark: SparkSession, tmp_path: Path) -> None:
    """It hides how many commits the checksum file of the last version was derived over."""
    table = tmp_path / "t"
    shutil.copytree(taken_back_delete(spark, tmp_path / "made", None), table)
    for key in (1000, 1001, 1002):
        spark.sql(f"INSERT INTO delta.`{table}` VALUES ({key}, 'later')")
    log = table / "_delta_log"
    lines = [line for version in range(5) for line in (log / f"{version:020}.json").read_text().splitlines()]
    (log / f"{0:020}.{4:020}.compacted.json").write_text("".join(f"{x}\n" for x in lines if "commitInfo" not in x))
    check_against_builtin(spark, tmp_path)


def taken_back_delete(spark: SparkSession, table: Path, transaction: str | None) -> Path:
    """A table whose checksum file of version 2 lacks the file that holds row 3."""
    spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta")
    spark.sql(rows(6)).repartitionByRange(6, "k").write.format("delta").mode("append").save(str(table))
    spark.sql(f"DELETE FROM delta.`{table}` WHERE k = 3")
    info = {"commitInfo": {**FOREIGN_COMMIT["commitInfo"], **({} if transaction is None else {"txnId": transaction})}}
    taken_back(table, 2, [info])
    return table


def check_against_builtin(spark: SparkSession, folder: Path) -> None:
    """Merge into copies of the folder's table ``t``; row 3 must be found."""
    with session_settings(spark, {"spark.deltaMerge.smallMergeBytes": "0"}):
        merged_as_by_the_builtin(spark, folder / "t", folder, UPSERT)
    left = spark.read.format("delta").load(str(folder / "ours"))
    assert [tuple(row) for row in left.where("k = 3").collect()] == [(3, "new")]


def test_the_checksum_file_of_the_commit_itself_is_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_delta_merge.engine.delta_jvm import table_files

    table = tmp_path / "t"
    spark.sql(rows(6)).repartitionByRange(6, "k").write.format("delta").save(str(table))

    def listed_anew(*_: object) -> list[str]:
        raise AssertionError("the checksum file has the list")

    monkeypatch.setattr(table_files, "list_state", listed_anew)
    result = merge_sql(spark, UPSERT.replace("{t}", f"delta.`{table}`"))
    assert result.num_files_before_skipping == 6


# --- commits ---

ODD_COMMITS: list[dict[str, Any]] = [
    {"commitInfo": {"timestamp": 1_700_000_000_000}},
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationMetrics": {"num_added_rows": 5, "none": None}}},
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationMetrics": {"files": {"avg": 1.5}}}},
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": None, "userMetadata": 7}},
    {"txn": {"appId": "someone", "version": 1, "lastUpdated": None}},
]


def test_the_recorded_result_is_found_behind_odd_commits(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    spark.sql(rows(6)).write.format("delta").save(str(table))
    identity = MergeIdentity(application_id="odd commits", generation=1)
    statement = UPSERT.replace("{t}", f"delta.`{table}`")
    first = merge_sql(spark, statement, identity=identity)
    assert first.version is not None
    for number, action in enumerate(ODD_COMMITS, start=first.version + 1):
        (table / "_delta_log" / f"{number:020}.json").write_text(json.dumps(action) + "\n")
    again = merge_sql(spark, statement, identity=identity)
    assert again.already_committed
    assert (again.version, again.num_updated_rows) == (first.version, first.num_updated_rows)


# --- errors ---

BARE = [AttributeError("a"), TypeError("b"), KeyError("c"), ValueError("d"), AssertionError("e"), RecursionError("f")]


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("errors") / "t"
    spark.sql(rows(2)).write.format("delta").save(str(path))
    return str(path)


def config_of(path: str) -> MergeConfig:
    return MergeConfig(
        target=MergeTarget(path=path),
        source=MergeSource(query=SOURCE),
        on="target.k = source.k",
        clauses=[when_matched_update_all()],
    )


@pytest.mark.parametrize("error", BARE, ids=lambda error: type(error).__name__)
def test_no_bare_error_leaves_the_engine(
    error: Exception, spark: SparkSession, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(read_once, "keys_to_prune_by", fail)
    calls: list[Callable[[], Any]] = [
        lambda: merge_sql(spark, UPSERT.replace("{t}", f"delta.`{small}`")),
        lambda: merge(spark, config_of(small)),
        lambda: plan(spark, config_of(small)),
    ]
    for call in calls:
        with pytest.raises(MergeExecutionError) as raised:
            call()
        assert raised.value.__cause__ is error
        message = str(raised.value)
        assert small in message
        assert "choose the target's files" in message
        assert f"{type(error).__name__}: " in message
        assert "Nothing was committed." in message
        assert 'engine="builtin"' in message


def test_an_error_while_committing_leaves_open_whether_it_did(
    spark: SparkSession, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction

    def fail(*_: object, **__: object) -> None:
        raise TypeError("x")

    monkeypatch.setattr(MergeTransaction, "commit", fail)
    with pytest.raises(MergeExecutionError, match="Check the table's history to see whether it committed"):
        merge_sql(spark, UPSERT.replace("{t}", f"delta.`{small}`"))


def test_errors_of_this_package_and_of_spark_stay_what_they_are(spark: SparkSession, small: str) -> None:
    with pytest.raises(MergeConfigError):
        merge_sql(spark, "SELECT 1")
    with pytest.raises(MergeExecutionError) as raised:
        merge_sql(spark, UPSERT.replace("{t}", f"delta.`{small}`").replace("t.k", "t.nothing"))
    assert raised.value.condition is not None
    assert "unexpected" not in str(raised.value)


def test_a_table_property_that_is_neither_true_nor_false(spark: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING delta TBLPROPERTIES ('{PROPERTY}' = 'no')")
    with pytest.raises(MergeConfigError, match=rf"The table property {PROPERTY} is 'no': set it to true or false\."):
        merge_sql(spark, UPSERT.replace("{t}", table))


PROPERTY = "deltaMerge.pruneBySource.enabled"
