"""A Bloom filter of the source's keys: where it is used, and that it never drops a match."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import MergeStatement
from airflow_delta_merge.engine import plan
from airflow_delta_merge.engine.strategies import insert_only
from tests.differential.both_engines import merged_as_by_the_builtin
from tests.differential.cases import Case, Table
from tests.differential.harness import Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The way "ours_as_large" shuffles; here it is forced on where the source is broadcast, too.
FORCED = {"spark.deltaMerge.keyFilterFromRows": "0", "spark.deltaMerge.smallMergeBytes": "0"}
UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)"
DELETE = "WHEN MATCHED THEN DELETE"
USED = "might_contain"

# At least two rows match, one on either side doesn't. Of further types there are cases in the other modules, which run
# with the filter where the source is shuffled.
KEYS = [
    ("INT", "BIGINT", "(1), (2), (NULL), (-7)", "(2), (-7), (NULL), (4294967298)"),
    ("TINYINT", "INT", "(1Y), (2Y), (NULL), (-7Y)", "(2), (-7), (NULL), (258)"),
    ("BIGINT", "SMALLINT", "(1L), (2L), (-7L), (4294967298L)", "(2S), (-7S), (99S)"),
    ("TIMESTAMP", "TIMESTAMP", "(TIMESTAMP'2024-03-31 02:30:00'), (TIMESTAMP'1900-01-01 00:00:00'), (NULL)",
     "(TIMESTAMP'2024-03-31 02:30:00'), (TIMESTAMP'1900-01-01 00:00:00'), (TIMESTAMP'2024-03-31 02:30:01')"),
    ("STRING", "STRING", "('a'), (''), ('ä'), (NULL), ('A')", "(''), ('ä'), (NULL), ('b')"),
    ("BINARY", "BINARY", "(X'00'), (X''), (X'00FF'), (NULL)", "(X''), (X'00FF'), (NULL), (X'01')"),
]  # fmt: skip
# Equal values of these may have several hashes, so none is made of them.
OTHER_KEYS = [
    ("DOUBLE", "DOUBLE", "(-0.0D), (DOUBLE('NaN')), (1.5D)", "(0.0D), (DOUBLE('NaN')), (2.5D)"),
    ("DECIMAL(5, 2)", "DECIMAL(9, 4)", "(1.5), (2.25), (3)", "(1.5), (2.25), (4)"),
    ("STRING", "INT", "('01'), ('2'), ('3')", "(1), (2), (4)"),
]


def _case(name: str, on: str, types: tuple[str, str, str, str], clauses: str, **more: object) -> Case:
    target, source, rows, others = types
    table = Table(f"k {target}, v INT", f"SELECT CAST(col1 AS {target}), 0 FROM VALUES {rows}", files=2, **more)  # type: ignore[arg-type]
    return Case(
        f"{name}: {target} and {source}",
        clauses,
        does="delete" if clauses == DELETE else "update, insert",
        table=table,
        source=f"SELECT CAST(col1 AS {source}) AS k, CAST(row_number() OVER (ORDER BY col1) AS INT) AS v "
        f"FROM VALUES {others}",
        on=on,
    )


VECTORS = {"delta.enableDeletionVectors": "true"}
TWO_KEYS = Table(
    "k INT, name STRING, v INT",
    ("(1, 'a', 0), (2, NULL, 0), (NULL, 'c', 0)", "(4, 'd', 0), (5, 'e', 0)"),
    properties=VECTORS,
)
TWO_KEYS_SOURCE = "VALUES (1L, 'a', 1), (2L, NULL, 2), (NULL, 'c', 3), (4L, 'x', 4), (9L, 'd', 5) AS s(k, name, v)"
CASES = [
    *(_case("equal", "t.k = s.k", types, UPSERT) for types in (*KEYS, *OTHER_KEYS)),
    *(_case("null-safe", "t.k <=> s.k", types, DELETE, properties=VECTORS) for types in (KEYS[0], KEYS[-1])),
    Case("two keys", "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *", does="update, insert",
         table=TWO_KEYS, source=TWO_KEYS_SOURCE, on="t.k = s.k AND t.name = s.name"),
    Case("two keys, one null-safe", "WHEN MATCHED THEN UPDATE SET v = s.v", does="update",
         table=TWO_KEYS, source=TWO_KEYS_SOURCE, on="s.k = t.k AND t.name <=> s.name"),
    Case("a key and an expression", DELETE, does="delete",
         table=TWO_KEYS, source=TWO_KEYS_SOURCE, on="t.k = s.k AND upper(t.name) = upper(s.name)"),
    Case("a collation of the condition's own", DELETE, does="delete",
         table=TWO_KEYS, source="VALUES ('A'), ('c'), ('x') AS s(name)", on="t.name = s.name COLLATE UTF8_LCASE"),
    Case("one key twice", DELETE, does="delete",
         table=TWO_KEYS, source=TWO_KEYS_SOURCE, on="t.k = s.k AND t.k <=> s.v"),
    Case("rows not matched by source are not filtered", "WHEN MATCHED THEN UPDATE SET v = s.v "
         "WHEN NOT MATCHED BY SOURCE AND t.k > 3 THEN DELETE", does="update, delete",
         table=TWO_KEYS, source=TWO_KEYS_SOURCE, on="t.k = s.k"),
    Case("inserts alone", "WHEN NOT MATCHED THEN INSERT *", does="insert",
         table=TWO_KEYS, source=TWO_KEYS_SOURCE, on="t.k = s.k"),
    Case("ambiguous", "WHEN MATCHED THEN UPDATE SET v = s.v",
         fails="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
         table=TWO_KEYS, source="VALUES (1, 1), (1, 2) AS s(k, v)", on="t.k = s.k"),
    Case("change data", "WHEN MATCHED AND s.v > 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
         "WHEN NOT MATCHED THEN INSERT *", does="update, delete, insert",
         table=Table(TWO_KEYS.columns, TWO_KEYS.rows, properties={"delta.enableChangeDataFeed": "true"}),
         source=TWO_KEYS_SOURCE, on="t.k = s.k"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_match_is_dropped(case: Case, engines: Harness) -> None:
    engines.check(replace(case, confs=FORCED))


def _search_plan(spark: SparkSession, path: Path, on: str, settings: dict[str, str]) -> str:
    merge = f"MERGE INTO delta.`{path}` t USING (SELECT id, CAST(id AS DOUBLE) AS d FROM range(5)) s ON {on} {DELETE}"
    with session_settings(spark, {"spark.deltaMerge.smallMergeBytes": "0", **settings}):
        return plan(spark, MergeStatement(sql=merge), explain=True).spark_plans["matches"]


@pytest.mark.parametrize(
    ("on", "settings", "used"),
    [
        ("t.id = s.id", {"keyFilterFromRows": "0"}, True),
        ("t.id = s.id", {"keyFilterFromRows": "0", "pruneBySource.enabled": "false"}, False),
        ("t.d = s.d", {"keyFilterFromRows": "0"}, False),
        ("t.id < s.id - 3", {"keyFilterFromRows": "0"}, False),
        # 100 rows; a filter for a broadcast number takes four times as many for each core.
        ("t.id = s.id", {}, False),
        ("t.id = s.id", {"keyFilterFromRows": "{rows_of_a_core}"}, False),
        ("t.id = s.id", {"keyFilterFromRows": "{rows_of_a_core}", "broadcastBytes": "0"}, True),
        ("t.id = s.id", {"keyFilterFromRows": "{a_quarter}"}, True),
        ("t.id = s.id AND t.name = CAST(s.id AS STRING)", {"keyFilterFromRows": "{rows_of_a_core}"}, True),
    ], ids=[
        "forced",
        "forced, pruning by the source off",
        "forced, a floating-point key",
        "forced, no equality",
        "too few rows by default",
        "a broadcast number, as many rows as a core is worth",
        "a shuffled number, as many rows as a core is worth",
        "a broadcast number, four times as many rows",
        "a broadcast number and a text, as many rows as a core is worth",
    ]
)  # fmt: skip
def test_the_filter_is_used_where_it_is_worth_it(
    spark: SparkSession, tmp_path: Path, on: str, settings: dict[str, str], used: bool
) -> None:
    rows = spark.range(0, 100, 1, 1).selectExpr("id", "CAST(id AS DOUBLE) AS d", "CAST(id AS STRING) AS name")
    rows.write.format("delta").save(str(tmp_path))
    of_a_core = 100 // spark.sparkContext.defaultParallelism
    numbers = {"rows_of_a_core": of_a_core, "a_quarter": of_a_core // 4}
    confs = {f"spark.deltaMerge.{name}": value.format(**numbers) for name, value in settings.items()}
    assert (USED in _search_plan(spark, tmp_path, on, confs)) is used


@pytest.mark.parametrize(
    ("rows", "settings", "is_shuffled"),
    [
        (20, {}, True),
        (19, {}, False),
        (20, {"spark.deltaMerge.pruneBySource.enabled": "false"}, False),
    ],
    ids=[
        "many rows",
        "a row less",
        "many rows, pruning by the source off",
    ],
)
def test_many_rows_to_insert_are_joined_with_what_the_filter_leaves(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rows: int,
    settings: dict[str, str],
    is_shuffled: bool,
) -> None:
    monkeypatch.setattr(insert_only, "_MANY_ROWS", 20)
    spark.range(100).selectExpr("id", "concat('v', id) AS v").write.format("delta").save(str(tmp_path / "t"))
    source = f"(SELECT id * 8 AS id, concat('v', if(id % 2 = 0, 0, id * 8)) AS v FROM range({rows}))"
    merge = f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id AND t.v = s.v WHEN NOT MATCHED THEN INSERT *"
    with session_settings(spark, {**FORCED, **settings}):
        result = merged_as_by_the_builtin(spark, tmp_path / "t", tmp_path / "merged", merge)
    assert ("the source is joined with the candidate files" in result.executor_reason) is is_shuffled
    assert 0 < result.num_inserted_rows < rows
