"""Which files are searched: only those that the source's keys can be in, and never one too few."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.engine.delta_jvm import table_files
from airflow_delta_merge.engine.pruning import by_keys as pruning
from airflow_delta_merge.engine.pruning.key_clusters import key_clusters, with_widest_gaps
from tests.differential.both_engines import merged_as_by_the_builtin, rows_by_the_builtin
from tests.differential.session_settings import session_settings
from tests.readable_ids import readable
from tests.turns import InTurn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.engine.data_files.file_statistics import Range
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
    from airflow_delta_merge.engine.pruning.source_keys import SourceKey
    from airflow_delta_merge.engine.source.materialized import MaterializedSource

FILES, ROWS_A_FILE = 16, 100
COLUMNS = """
    id, CAST(id AS INT) AS small, CAST(id / 4 AS DECIMAL(12, 2)) AS price,
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

    @property
    def merge(self) -> str:
        return MERGE.replace("{s}", self.source).replace("{on}", self.on)


def ids(*values: str) -> str:
    ranges = " UNION ALL ".join(f"SELECT id FROM range({value})" for value in values)
    return f"SELECT {COLUMNS} FROM ({ranges})"


CASES = [
    Prune("one range", ids("250, 260"), "t.id = s.id", 1),
    Prune("over the edge of a file", ids("290, 310"), "t.id = s.id", 2),
    Prune("two clusters", ids("5, 15", "1505, 1515"), "t.id = s.id", 2),
    Prune("a stray key far away", ids("5, 15", "100000, 100001"), "t.id = s.id", 1),
    Prune("a stray key below zero", ids("5, 15", "-100000, -99999"), "t.id = s.id", 1),
    Prune(
        "stray keys on both sides, and two clusters",
        ids("-9, -5", "5, 15", "1505, 1515", "1700, 1701"),
        "t.id = s.id",
        2,
    ),
    Prune("stray days on both sides", ids("-9, -5", "5, 15", "5000, 5001"), "t.day = s.day", 1),
    Prune(
        "stray texts on both sides",
        f"{ids('5, 15')} UNION ALL SELECT 1, 1, 1, DATE'2000-01-01', "
        "TIMESTAMP'2000-01-01', 1, v, 1 FROM VALUES (''), ('00'), ('zz') AS s(v)",
        "t.code = s.code",
        1,
    ),
    Prune("keys all over", ids("0, 1600, 10"), "t.id = s.id", 16),
    Prune("keys in no file", ids("5000, 5100"), "t.id = s.id", 0),
    Prune("the least and the greatest key", ids("0, 1", "1599, 1600"), "t.id = s.id", 2),
    Prune("a narrower target", ids("5, 15", "1505, 1515"), "t.small = s.id", 2),
    Prune("dates", ids("5, 15", "1505, 1515"), "t.day = s.day", 2),
    Prune("timestamps", ids("5, 15", "1505, 1515"), "t.at = s.at", 2),
    Prune("decimals have one range", ids("5, 15", "205, 215"), "t.price = s.price", 3),
    Prune("texts", ids("5, 15", "205, 215"), "t.code = s.code", 2),
    Prune("texts all over", ids("0, 1600, 10"), "t.code = s.code", 16),
    Prune(
        "more clusters than rows are compared with",
        ids(*(f"{first}, {first + 3}" for first in range(5, 1500, 150))),
        "t.id = s.id",
        10,
    ),
    Prune("two clusters with many rows", ids("0, 600", "1000, 1600"), "t.id = s.id", 12),
    Prune("the source on the left", ids("250, 260"), "s.id = t.id", 1),
    Prune("two keys", ids("5, 15", "1505, 1515"), "t.id = s.id AND t.day = s.day", 2),
    Prune("new keys beside one old key", ids("5, 6", "1600, 1700"), "t.id = s.id", 1),
    Prune(
        "two keys, each in another file, beside new ones",
        ids("5, 6", "805, 806", "1600, 1700"),
        "t.id = s.id AND t.day = s.day",
        2,
    ),
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


#: Who tells the files' statistics.
BY = {
    "the checksum file": {},
    "the log": {"spark.deltaMerge.useChecksum.enabled": "false"},
    "Delta's job": {"spark.deltaMerge.useChecksum.enabled": "false", "spark.deltaMerge.shortcuts.enabled": "false"},
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_candidate_files(case: Prune, spark: SparkSession, table: Path, tmp_path: Path, in_turn: InTurn) -> None:
    """Whoever tells the statistics."""
    builtin = rows_by_the_builtin(spark, table, tmp_path, case.merge)
    for by in in_turn(BY):
        with session_settings(spark, BY[by]):
            check(case, spark, table, tmp_path / by, builtin)


def check(case: Prune, spark: SparkSession, table: Path, tmp_path: Path, builtin: Counter[str] | None = None) -> None:
    result = merged_as_by_the_builtin(spark, table, tmp_path, case.merge, builtin)
    assert (result.num_files_before_skipping, result.num_candidate_files) == (FILES, case.files)


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("t.id >= 1550", 1),
        ("1550 <= t.id AND t.v = 1551", 1),
        ("t.id BETWEEN 1195 AND 1205", 2),
        ("t.id <=> 1550 AND t.id % 2 = 0", 1),
        ("t.id IN (1550, 1560)", 1),
        (f"t.id IN ({', '.join(map(str, range(1550, 1570)))})", 1),
        ("t.small >= 1550", 1),
        ("t.small < 5000000000", 16),
        ("t.price > 399.00", 1),
        ("t.price IN (CAST(399.00 AS DECIMAL(12, 2)), NULL)", 1),
        ("t.day >= '2028-05-12'", 1),
        ("t.at < TIMESTAMP'1970-01-01 02:00:00'", 1),
        ("t.code > '001580'", 1),
        ("t.code = '001580' AND t.code IS NOT NULL", 1),
        ("t.gap IS NULL", 16),
        ("t.id + 1 > 1550", 16),
        ("NOT t.id < 1550", 1),
        ("t.id = NULL", 16),
        ("(t.id = 5 OR t.id = 1550)", 16),
    ],
)
def test_files_for_a_condition_of_a_by_source_clause(
    condition: str, files: int, spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    """Those beside the one file that the source's only row can be in."""
    clause = f"WHEN NOT MATCHED BY SOURCE AND {condition} THEN UPDATE SET v = -1"
    merge = f"MERGE INTO {{t}} t USING ({ids('250, 251')}) s ON t.id = s.id {clause}"
    result = merged_as_by_the_builtin(spark, table, tmp_path, merge)
    assert result.num_candidate_files == min(FILES, files + 1)


@pytest.mark.parametrize(
    ("most", "ranges"),
    [
        (5, [(1, 2), (5, 5), (7, 9), (20, 21)]),
        (4, [(1, 2), (5, 5), (7, 9), (20, 21)]),
        (3, [(1, 2), (5, 9), (20, 21)]),
        (2, [(1, 9), (20, 21)]),
        (1, [(1, 21)]),
    ],
    ids=readable,
)
def test_the_widest_gaps_between_clusters_stay(most: int, ranges: list[Range]) -> None:
    assert with_widest_gaps([(1, 2), (5, 5), (7, 9), (20, 21)], most=most) == ranges


def searches_for_clusters(
    monkeypatch: pytest.MonkeyPatch, record: Callable[[MaterializedSource, Sequence[SourceKey]], Any]
) -> list[Any]:
    """What ``record`` makes of each search for clusters from now on."""
    found = []

    def telling(source: MaterializedSource, keys: Sequence[SourceKey]) -> dict[str, list[Range]]:
        found.append(record(source, keys))
        return key_clusters(source, keys)

    monkeypatch.setattr(pruning, "key_clusters", telling)
    return found


@pytest.mark.parametrize(
    ("source", "files", "looked_at"),
    [
        # Forty of 160 rows are in more than twelve of the files.
        (
            "SELECT {columns} FROM (SELECT id FROM range(1600) WHERE id % 10 = 3 ORDER BY hash(id) LIMIT 1000)",
            16,
            [40],
        ),
        # The first forty are in four of the files, but so are the forty after them in others.
        ("SELECT {columns} FROM range(0, 1600, 10)", 16, [40]),
        # All are in three of sixteen files, and some of them know no better.
        (ids("5, 105", "1505, 1605"), 3, [40, 200]),
        ("SELECT {columns} FROM range(5, 15)", 1, []),
    ],
    ids=[
        "a sample of the rows is in most files",
        "a sample of neighbours is in most files",
        "a sample is in few files: all rows are looked at",
        "too few rows for a sample",
    ],
)
def test_a_sample_of_rows_decides_whether_to_look_for_clusters(
    source: str,
    files: int,
    looked_at: list[int],
    spark: SparkSession,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = searches_for_clusters(monkeypatch, lambda source, _: source.frame.count())
    monkeypatch.setattr(pruning, "_SAMPLED_ROWS", 40)
    monkeypatch.setattr("airflow_delta_merge.engine.source.materialized._MANY_TIMES", 1)
    check(Prune("", source.replace("{columns}", COLUMNS), "t.code = s.code", files), spark, table, tmp_path)
    assert found == looked_at


def test_scattered_keys_are_not_searched_for_clusters(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    spark.range(0, 800, 1, 8).selectExpr("id * 7 % 800 AS anywhere", "id", "0 AS v").write.format("delta").save(
        str(table)
    )

    looked_at = searches_for_clusters(monkeypatch, lambda _, keys: [key.target_name for key in keys])
    on = "t.anywhere = s.anywhere AND t.id = s.id"
    source = "(SELECT id * 7 % 800 AS anywhere, id FROM VALUES (3), (790) AS (id))"
    merge = f"MERGE INTO {{t}} t USING {source} s ON {on} WHEN MATCHED THEN UPDATE SET v = 1"
    with session_settings(spark, {"spark.deltaMerge.smallMergeBytes": "0"}):
        result = merged_as_by_the_builtin(spark, table, tmp_path / "merged", merge)
    assert looked_at == [["id"]]
    assert (result.num_candidate_files, result.num_touched_files) == (2, 2)


@pytest.mark.parametrize(
    ("source", "stray", "looked_at", "files"),
    [
        # Some rows in each 64th of the range.
        (ids("0, 1600, 20"), [], [[]], 16),
        (ids("0, 700, 20", "900, 1600, 20"), [], [["id"]], 14),
        # All that the table has but for one row is in one 64th of its range.
        (ids("5, 15", "1505, 1515"), [1_000_000], [["id"]], 2),
    ],
    ids=[
        "keys in each part of the range",
        "a gap in the range",
        "a stray key in the table",
    ],
)
def test_keys_that_fill_their_range_are_not_searched_for_clusters(
    source: str,
    stray: list[int],
    looked_at: list[list[str]],
    files: int,
    spark: SparkSession,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(table, copy)
    if stray:
        spark.createDataFrame([(id_,) for id_ in stray], "id BIGINT").write.format("delta").mode("append").save(
            str(copy)
        )
    found = searches_for_clusters(monkeypatch, lambda _, keys: [key.target_name for key in keys])
    merge = MERGE.replace("{s}", source).replace("{on}", "t.id = s.id")
    result = merged_as_by_the_builtin(spark, copy, tmp_path / "merged", merge)
    assert found == looked_at
    assert result.num_candidate_files == files


# Tables whose statistics tell less, or tell it by other names: three files of ten ids each, twenty bytes of text before
# what tells the texts apart, or forty.
ODD = {
    "few columns with statistics": ({"delta.dataSkippingNumIndexedCols": "1"}, "t.id = s.id", 1),
    "a column without statistics": ({"delta.dataSkippingNumIndexedCols": "1"}, "t.short = s.short", 3),
    "columns by other names": ({"delta.columnMapping.mode": "name"}, "t.id = s.id", 1),
    "texts": ({}, "t.short = s.short", 1),
    "texts that are cut off": ({}, "t.long = s.long", 3),
    "texts by other names": ({"delta.columnMapping.mode": "name"}, "t.short = s.short", 1),
    "deletion vectors": ({"delta.enableDeletionVectors": "true"}, "t.id = s.id", 1),
}


@pytest.mark.parametrize("name", ODD)
def test_checksum_file_and_log_tell_what_deltas_job_does(
    name: str, spark: SparkSession, tmp_path: Path, in_turn: InTurn
) -> None:
    properties, on, files = ODD[name]
    table = f"delta.`{tmp_path / 't'}`"
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(
        f"CREATE TABLE {table} (id INT, short STRING, long STRING) USING delta TBLPROPERTIES ({listed or 'a = 1'})"
    )
    columns = "CAST(id AS INT) AS id, concat(repeat('x', 20), lpad(id, 3, '0')) AS short, " \
        "concat(repeat('x', 40), lpad(id, 3, '0')) AS long"  # fmt: skip
    spark.sql(f"INSERT INTO {table} SELECT {columns} FROM range(0, 30, 1, 3)")
    spark.sql(f"DELETE FROM {table} WHERE id = 13")
    merge = f"MERGE INTO {{t}} t USING (SELECT {columns} FROM range(14, 16)) s ON {on} WHEN MATCHED AND s.id = 14 " \
        "THEN UPDATE SET short = 'new'"  # fmt: skip
    for by in in_turn(BY):
        shutil.copytree(tmp_path / "t", tmp_path / by)
        with session_settings(spark, {"spark.deltaMerge.smallMergeBytes": "0", **BY[by]}):
            result = merge_sql(spark, merge.format(t=f"delta.`{tmp_path / by}`"))
        assert (result.num_candidate_files, result.num_updated_rows) == (files, 1), by


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_files_with_large_statistics_are_chosen_by_deltas_job(
    vectors: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log says of two files is more than shall be handed over, of one it isn't."""
    table = tmp_path / "t"
    spark.range(0, 30, 1, 3).selectExpr("id", "id AS v").write.format("delta").option(
        "delta.enableDeletionVectors", vectors
    ).save(str(table))
    source = "(SELECT explode(array({ids})) AS id)"
    merge = f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = -1"
    handed_over: list[int] = []
    files_of = table_files.files_of

    def counting(gateway: Gateway, adds: Sequence[str]) -> JavaObject:
        handed_over.append(len(adds))
        return files_of(gateway, adds)

    monkeypatch.setattr(table_files, "files_of", counting)
    monkeypatch.setattr(table_files, "_MOST_CHARACTERS", 400)
    with session_settings(spark, {"spark.deltaMerge.smallMergeBytes": "0", **BY["the log"]}):
        for ids, files in (("3, 4", 1), ("3, 14", 2)):
            result = merged_as_by_the_builtin(spark, table, tmp_path / ids, merge.replace("{ids}", ids))
            assert result.num_candidate_files == files
    assert handed_over == [1]


# In the order of their bytes, four to a file. Two share the first byte of a character only.
TEXTS = sorted(
    ["", "\0", "\0\0", "a", "a\0", "a\0b", "aa", "ab", "abcdefgh", "abcdefgha", "abcdefghb", "b", "z", "zz", "zzz", "{",
     "~", "\x7f", "\x80", "é", "è", "ée", "èe", "ż", "中", "中文", "日本", "\ufffd", "😀", "😀😀", "😁", "\U0010ffff"],
    key=str.encode,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_texts_of_all_kinds_are_found(seed: int, spark: SparkSession, texts: Path, tmp_path: Path) -> None:
    """Also where a session makes texts of concatenated bytes."""
    wanted = random.Random(seed).sample(TEXTS, 2 + seed)
    spark.createDataFrame([(text, "new") for text in wanted], "t STRING, v STRING").createOrReplaceTempView("wanted")
    merge = "MERGE INTO {t} t USING wanted s ON t.t = s.t WHEN MATCHED THEN UPDATE SET v = s.v"
    settings = {
        "spark.deltaMerge.smallMergeBytes": "0",
        "spark.sql.function.concatBinaryAsString": str(seed % 2 == 1),
    }
    with session_settings(spark, settings):
        result = merged_as_by_the_builtin(spark, texts, tmp_path, merge)
    assert result.num_updated_rows == len(wanted)


@pytest.fixture(scope="module")
def texts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "table"
    for first in range(0, len(TEXTS), 4):
        rows = [(text, "old") for text in TEXTS[first : first + 4]]
        spark.createDataFrame(rows, "t STRING, v STRING").coalesce(1).write.format("delta").mode("append").save(
            str(path)
        )
    return path


def test_all_files_are_searched_when_stats_skipping_is_off(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    shutil.copytree(table, tmp_path / "t")
    statement = MERGE.format(t=f"delta.`{tmp_path / 't'}`", s=ids("250, 260"), on="t.id = s.id")
    with session_settings(spark, {"spark.databricks.delta.stats.skipping": "false"}):
        assert merge_sql(spark, statement).num_candidate_files == FILES
