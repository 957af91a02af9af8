"""Tables whose logs other writers wrote: made by Spark, then edited; merged by each of our ways and by the built-in."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.engine import merge_sql
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

UPSERT = "MERGE INTO {t} t USING ({s}) s ON {on} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
INSERT = "MERGE INTO {t} t USING ({s}) s ON {on} WHEN NOT MATCHED THEN INSERT *"

_ALWAYS = {"spark.deltaMerge.smallMergeBytes": "0"}
#: The ways by which files and rows are chosen.
WAYS = {
    "from a list": _ALWAYS,
    "by Delta's job": {**_ALWAYS, "spark.deltaMerge.shortcuts.enabled": "false"},
    "by Delta's job, filtered": {
        **_ALWAYS,
        "spark.deltaMerge.shortcuts.enabled": "false",
        "spark.deltaMerge.keyFilterFromRows": "0",
    },
}


def make_table(
    spark: SparkSession,
    path: Path,
    columns: str,
    query: str,
    *,
    options: str = "",
    edit: Callable[[dict[str, Any]], Any] | None = None,
) -> Path:
    """A table of one file for each row, in the order of the column ``v``, without checksum files.

    :param columns: of ``CREATE TABLE``, ``v`` among them.
    :param query: its rows.
    :param options: what else ``CREATE TABLE`` says.
    :param edit: changes each file's ``add`` action, in place.
    """
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {options}")
    rows = spark.sql(query)
    rows.repartitionByRange(rows.count(), "v").write.format("delta").mode("append").save(str(path))
    edit_log(path, edit or (lambda add: None))
    return path


def edit_log(path: Path, edit: Callable[[dict[str, Any]], Any], *, action: str = "add") -> None:
    """Change actions of the log in place, and take away the checksum files, as few writers leave any."""
    log = path / "_delta_log"
    for commit in log.glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for each in actions:
            if action in each:
                edit(each[action])
        commit.write_text("".join(json.dumps(each) + "\n" for each in actions))
    for checksum in log.glob("*.crc"):
        checksum.unlink()


def with_statistics(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    """An edit of ``add`` actions that changes their statistics in place."""

    def edit(add: dict[str, Any]) -> None:
        statistics = json.loads(add["stats"])
        change(statistics)
        add["stats"] = json.dumps(statistics)

    return edit


def check_ways(
    spark: SparkSession,
    table: Path,
    tmp_path: Path,
    *,
    source: str,
    on: str = "t.k = s.k",
    statement: str = UPSERT,
    settings: Mapping[str, str] | None = None,
    ways: Collection[str] = tuple(WAYS),
) -> dict[str, int]:
    """Merge by the built-in and by several ways of ours, and compare the rows.

    :param settings: of the session, for both.
    :param ways: the names of those ways.
    :return: how many files ours searched, by the way.
    """
    merge = statement.replace("{s}", source).replace("{on}", on)
    with session_settings(spark, settings or {}):
        expected, _ = _rows_after(spark, table, tmp_path / "built-in", merge, _merge_by_builtin)
        found = {}
        for way in ways:
            with session_settings(spark, WAYS[way]):
                found[way] = _rows_after(spark, table, tmp_path / way, merge, merge_sql)
    assert {way: rows for way, (rows, _) in found.items()} == dict.fromkeys(ways, expected)
    return {way: result.num_candidate_files for way, (_, result) in found.items()}


def _merge_by_builtin(spark: SparkSession, statement: str) -> None:
    spark.sql(statement).collect()


def _rows_after(
    spark: SparkSession, table: Path, copy: Path, merge: str, run: Callable[[SparkSession, str], Any]
) -> tuple[Counter[Row], Any]:
    """The rows after a merge into a copy of the table, texts as their bytes, and what the merge gave."""
    shutil.copytree(table, copy)
    result = run(spark, merge.replace("{t}", f"delta.`{copy}`"))
    rows = spark.read.format("delta").load(str(copy))
    shown = [f"hex({name}) AS {name}" if type_ == "string" else name for name, type_ in rows.dtypes]
    return Counter(rows.selectExpr(*shown).collect()), result
