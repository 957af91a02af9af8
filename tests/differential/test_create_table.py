"""A target that the first merge makes: as asked for, once, and merged into like any other."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import CreateTable, MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.engine import create_table, merge, plan
from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError
from tests.differential.delta_log import DeltaTableLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "it's-ü"
SOURCE = f"SELECT 1 AS id, 'a' AS `{NAME}`, DATE'2024-01-02' AS day"


def config(target: Path | str, create_table: Any = True, source: str = SOURCE) -> MergeConfig:
    return MergeConfig(
        target=str(target),
        source=source,
        on=["id"],
        clauses=(when_matched_update_all(), when_not_matched_insert_all()),
        create_table=create_table,
    )


def columns(log: DeltaTableLog) -> list[tuple[str, str, bool]]:
    return [(c["name"], c["type"], c["nullable"]) for c in log.schema["fields"]]


def test_the_first_merge_makes_the_table_and_the_next_merges_into_it(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a `b` ; c"
    for version, inserted, updated in ((1, 1, 0), (2, 0, 1)):
        result = merge(spark, config(path))
        assert (result.version, result.num_inserted_rows, result.num_updated_rows) == (version, inserted, updated)
    expected = [("id", "integer", True), (NAME, "string", True), ("day", "date", True)]
    assert columns(DeltaTableLog.read(path)) == expected


def test_it_is_made_as_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    made = CreateTable(
        columns=f"id BIGINT NOT NULL COMMENT 'it''s the key', `{NAME}` STRING, day DATE",
        partitioned_by=("day",),
        properties={"delta.enableDeletionVectors": True, "owner's": "me; \\ 'you'"},  # type: ignore[arg-type]
    )
    merge(spark, config(tmp_path / "t", made))
    log = DeltaTableLog.read(tmp_path / "t")
    assert columns(log)[0] == ("id", "long", False)
    assert log.schema["fields"][0]["metadata"] == {"comment": "it's the key"}
    assert log.metadata["partitionColumns"] == ["day"]
    assert log.enabled("delta.enableDeletionVectors")
    assert log.metadata["configuration"]["owner's"] == "me; \\ 'you'"


def test_names_that_need_column_mapping_need_it_here_too(spark: SparkSession, tmp_path: Path) -> None:
    source = "SELECT 1 AS id, 'a' AS `a name; with 'all'`"
    with pytest.raises(MergeExecutionError, match="enable Column Mapping"):
        merge(spark, config(tmp_path / "t", source=source))
    merge(spark, config(tmp_path / "t", {"properties": {"delta.columnMapping.mode": "name"}}, source))
    assert columns(DeltaTableLog.read(tmp_path / "t"))[1] == ("a name; with 'all'", "string", True)


def test_a_named_table_is_made_in_its_catalog(spark: SparkSession) -> None:
    try:
        result = merge(spark, config("default.made_by_a_merge", {"cluster_by": ["id"]}))
        assert (result.table, result.num_inserted_rows) == ("spark_catalog.default.made_by_a_merge", 1)
        described = spark.sql("DESCRIBE DETAIL default.made_by_a_merge").head()
        assert described is not None
        assert described["clusteringColumns"] == ["id"]
    finally:
        spark.sql("DROP TABLE IF EXISTS default.made_by_a_merge")


def test_one_that_is_there_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` (id INT, `{NAME}` STRING, day DATE) USING delta").collect()
    merge(spark, config(tmp_path / "t", {"partitioned_by": ["day"]}))
    assert DeltaTableLog.read(tmp_path / "t").metadata["partitionColumns"] == []


def test_one_whose_making_another_began_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """Delta takes the log's folder for the table, though it's there before the first commit."""
    log, made = tmp_path / "t" / "_delta_log", tmp_path / "made"
    spark.sql(f"CREATE TABLE delta.`{made}` (id INT, `{NAME}` STRING, day DATE) USING delta").collect()
    log.mkdir(parents=True)
    later = threading.Timer(0.5, lambda: shutil.copytree(made, tmp_path / "t", dirs_exist_ok=True))
    later.start()
    assert merge(spark, config(tmp_path / "t")).num_inserted_rows == 1


def test_one_that_another_never_made_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_table, "_PAUSES_SECONDS", (0.1,))
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    with pytest.raises(MergeExecutionError, match="has a _delta_log without a commit"):
        merge(spark, config(tmp_path / "t"))


def test_none_is_made_inside_another(spark: SparkSession, tmp_path: Path) -> None:
    merge(spark, config(tmp_path / "t"))
    with pytest.raises(MergeExecutionError):
        merge(spark, config(tmp_path / "t" / "inner"))
    assert not (tmp_path / "t" / "inner").exists()


def test_without_being_asked_no_table_is_made(spark: SparkSession, tmp_path: Path) -> None:
    for attempt in (lambda: merge(spark, config(tmp_path / "t", False)), lambda: plan(spark, config(tmp_path / "t"))):
        with pytest.raises(MergeExecutionError):
            attempt()
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("text", ["id", "id INT) USING parquet --", "id INT; DROP TABLE x", "id NOTYPE"])
def test_what_are_no_columns_makes_no_table(spark: SparkSession, tmp_path: Path, text: str) -> None:
    with pytest.raises(MergeConfigError, match="in create_table are not valid"):
        merge(spark, config(tmp_path / "t", {"columns": text}))
    assert not (tmp_path / "t").exists()


def test_a_source_that_cannot_be_read_makes_no_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(MergeExecutionError, match="nowhere"):
        merge(spark, config(tmp_path / "t", source="SELECT nowhere AS id"))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("named", [False, True], ids=["path", "name"])
def test_several_merges_may_make_it_at_the_same_time(spark: SparkSession, tmp_path: Path, named: bool) -> None:
    """All but one failed, some of them without Airflow's retries."""
    for turn in range(3):
        target = f"made_at_once_{turn}" if named else tmp_path / f"t{turn}"
        begin = threading.Barrier(3)

        def merged(number: int) -> int:
            begin.wait()  # noqa: B023
            source = SOURCE.replace("1 AS id", f"{number} AS id")
            return merge(spark.newSession(), config(target, source=source), max_commit_attempts=9).num_inserted_rows  # noqa: B023

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(merged, range(3))) == [1, 1, 1]
        read = spark.table(str(target)) if named else spark.read.format("delta").load(str(target))
        assert read.count() == 3
        if named:
            spark.sql(f"DROP TABLE {target}")
