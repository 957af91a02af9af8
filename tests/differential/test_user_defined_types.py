"""User-defined types whose Python class can't be imported: Spark's own where NumPy is missing, and those of Scala."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkValueError
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StructType, UserDefinedType

from airflow_delta_merge.config import (
    MergeConfig,
    MergeGuards,
    SourceExpectations,
    when_matched_delete,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.engine import merge, merge_sql
from airflow_delta_merge.exceptions import SourceExpectationError
from tests.differential.conftest import MadeOnce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


class Range(UserDefinedType):
    """Two numbers. Spark keeps the name of the class, but no Python finds it by that."""

    @classmethod
    def sqlType(cls) -> ArrayType:
        return ArrayType(LongType(), containsNull=False)

    @classmethod
    def module(cls) -> str:
        return "a_module_that_is_not_there"

    def serialize(self, obj: tuple[int, int]) -> list[int]:
        return list(obj)


COLUMNS = StructType().add("id", IntegerType()).add("r", Range()).add("several", ArrayType(Range()))
TARGET = [(1, (10, 19), [(1, 2), (3, 4)]), (2, (20, 29), None), (3, None, [])]
SOURCE = [(2, (21, 28), [(5, 6)]), (3, (30, 39), None), (4, None, [])]


@pytest.fixture
def table(spark: SparkSession, made_once: MadeOnce, tmp_path: Path) -> Callable[[str], Path]:
    """Makes copies of a small table; the view ``news`` holds what is merged."""
    spark.createDataFrame(SOURCE, COLUMNS, verifySchema=False).coalesce(1).createOrReplaceTempView("news")
    return lambda name: made_once(tmp_path / name, made)


def made(spark: SparkSession, path: Path) -> None:
    spark.createDataFrame(TARGET, COLUMNS, verifySchema=False).coalesce(1).write.format("delta").save(str(path))


def rows(spark: SparkSession, path: Path) -> Counter[str]:
    found = spark.read.format("delta").load(str(path)).select(F.to_json(F.struct("*")))
    return Counter(row[0] for row in found.collect())


def test_python_does_not_find_the_class(spark: SparkSession, table: Callable[[str], Path]) -> None:
    with pytest.raises(PySparkValueError, match="a_module_that_is_not_there"):
        _ = spark.read.format("delta").load(str(table("t"))).schema


@pytest.mark.parametrize(
    ("config", "clauses"),
    [
        ((when_matched_update_all(), when_not_matched_insert_all()), UPSERT),
        ((when_not_matched_insert_all(),), "WHEN NOT MATCHED THEN INSERT *"),
        ((when_matched_delete(),), "WHEN MATCHED THEN DELETE"),
        (
            (when_matched_update_all(except_columns=["several"]),),
            "WHEN MATCHED THEN UPDATE SET id = s.id, r = s.r",
        ),
    ],
    ids=["upsert", "insert", "delete", "update all except a column"],
)
def test_rows_are_as_by_the_builtin(
    spark: SparkSession, table: Callable[[str], Path], config: tuple[object, ...], clauses: str
) -> None:
    builtin, by_sql, by_config = table("builtin"), table("by_sql"), table("by_config")
    statement = f"MERGE INTO delta.`{{}}` AS t USING news AS s ON t.id = s.id {clauses}"
    spark.sql(statement.format(builtin)).collect()
    merge_sql(spark, statement.format(by_sql))
    merge(spark, MergeConfig(source="SELECT * FROM news", target=str(by_config), on=["id"], clauses=config))
    assert rows(spark, by_sql) == rows(spark, by_config) == rows(spark, builtin) != rows(spark, table("before"))


def test_the_source_is_checked(spark: SparkSession, table: Callable[[str], Path]) -> None:
    expected = SourceExpectations(columns={"r": "INT"})
    with pytest.raises(SourceExpectationError, match="r is array<bigint>, not INT"):
        merge(spark, upsert(table("t"), expected))


def test_rows_that_are_not_as_expected_are_shown(
    spark: SparkSession, table: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="airflow_delta_merge.engine")
    with pytest.raises(SourceExpectationError, match="r is NULL in 1 row"):
        merge(spark, upsert(table("t"), SourceExpectations(not_null=["r"], sample="rows")))
    assert any('"id": "4"' in message for message in caplog.messages)


def upsert(target: Path, expected: SourceExpectations) -> MergeConfig:
    return MergeConfig(
        source="SELECT * FROM news",
        target=str(target),
        on=["id"],
        clauses=(when_matched_update_all(), when_not_matched_insert_all()),
        guards=MergeGuards(expect_source=expected),
    )
