"""Which files are searched: only those that the source's keys can be in, and never one too few."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from airflow_delta_merge.engine import merge_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS_A_FILE = 16, 100
COLUMNS = """
    id, CAST(id AS INT) AS small, CAST(id AS DECIMAL(12, 2)) / 4 AS price,
    date_add(DATE'2024-01-01', CAST(id AS INT)) AS day,
    timestamp_seconds(id * 3600) AS at, CASE WHEN id % 100 <> 7 THEN id END AS gap, lpad(id, 6, '0') AS code, id AS v
"""


class Prune(NamedTuple):
    """A merge on one key of a table whose 16 files hold 100 consecutive ids each.

    :param name: what it shows.
    :param source: the ids of the source, as a query with the columns of the table.
    :param on: the condition.
    :param files: the files that can hold a match, as counted by hand from the ids.
    """

    name: str
    source: str
    on: str
    files: int

    def __str__(self) -> str:
        return self.name


def ids(*values: str) -> str:
    ranges = " UNION ALL ".join(f"SELECT id FROM range({value})" for value in values)
    return f"SELECT {COLUMNS} FROM ({ranges})"


CASES = [
    Prune("one range", ids("250, 260"), "t.id = s.id", 1),
    Prune("over the edge of a file", ids("290, 310"), "t.id = s.id", 2),
    Prune("two clusters", ids("5, 15", "1505, 1515"), "t.id = s.id", 2),
    Prune("a stray key far away", ids("5, 15", "100000, 100001"), "t.id = s.id", 1),
    Prune("a stray key below zero", ids("5, 15", "-100000, -99999"), "t.id = s.id", 1),
    Prune("keys all over", ids("0, 1600, 10"), "t.id = s.id", 16),
    Prune("keys in no file", ids("5000, 5100"), "t.id = s.id", 0),
    Prune("the least and the greatest key", ids("0, 1", "1599, 1600"), "t.id = s.id", 2),
    Prune("a narrower target", ids("5, 15", "1505, 1515"), "t.small = s.id", 2),
    Prune("dates", ids("5, 15", "1505, 1515"), "t.day = s.day", 2),
    Prune("timestamps", ids("5, 15", "1505, 1515"), "t.at = s.at", 2),
    Prune("decimals have one range", ids("5, 15", "205, 215"), "t.price = s.price", 3),
    Prune("texts have one range", ids("5, 15", "205, 215"), "t.code = s.code", 3),
    Prune("the source on the left", ids("250, 260"), "s.id = t.id", 1),
    Prune("two keys", ids("5, 15", "1505, 1515"), "t.id = s.id AND t.day = s.day", 2),
    Prune("NULL never equals", ids("5, 10"), "t.gap = s.gap", 1),
    Prune("NULL is NULL", ids("5, 10"), "t.gap <=> s.gap", 16),
    Prune("an expression tells nothing", ids("250, 260"), "t.id = s.id + 1 - 1", 16),
    Prune("no equality tells nothing", ids("250, 251"), "t.id > s.id AND t.id < s.id + 3", 16),
    Prune("a part of the target's own", ids("0, 1600, 10"), "t.id = s.id AND t.id < 300", 3),
]
MERGE = """
    MERGE INTO {t} t USING ({s}) s ON {on}
    WHEN MATCHED AND s.v % 2 = 0 THEN UPDATE SET v = -t.v WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *
"""


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pruning") / "table"
    rows = spark.range(0, FILES * ROWS_A_FILE, 1, FILES).selectExpr(*_split(COLUMNS))
    rows.write.format("delta").save(str(path))
    return path


def _split(columns: str) -> list[str]:
    """The column expressions, split at commas outside parentheses."""
    parts, depth = [""], 0
    for character in columns.strip():
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


@pytest.mark.parametrize("case", CASES, ids=str)
def test_candidate_files(case: Prune, spark: SparkSession, table: Path, tmp_path: Path) -> None:
    bags = {}
    for engine in ("ours", "builtin"):
        copy = tmp_path / engine
        shutil.copytree(table, copy)
        statement = MERGE.format(t=f"delta.`{copy}`", s=case.source, on=case.on)
        if engine == "ours":
            result = merge_sql(spark, statement)
        else:
            spark.sql(statement).collect()
        bags[engine] = Counter(spark.read.format("delta").load(str(copy)).collect())
    assert bags["ours"] == bags["builtin"]
    assert (result.num_files_before_skipping, result.num_candidate_files) == (FILES, case.files)
