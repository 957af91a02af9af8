"""The source that a rewrite joins: rows outside of what the touched files hold are left out, and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta_merge.config import MergeStatement
from airflow_delta_merge.engine import plan
from tests.differential.cases import Case, Table
from tests.differential.harness import Harness
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Where the source is broadcast, too; the way "ours_as_large", in which all cases run, shuffles it.
FORCED = {"spark.deltaMerge.narrowSourceFromRows": "0", "spark.deltaMerge.joinOnceBytes": "0"}
UPSERT = "WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)"

# Two files; of the source one row changes the greatest key of the first file and one matches the second in vain: one
# file is touched, whose bounds its last row has. One row is new, one has no key.
KEYS = [
    ("INT", "BIGINT", ("(1), (2), (NULL)", "(4), (5)"), "(2, 1), (4, 0), (4294967298, 1), (NULL, 1)"),
    ("BIGINT", "SMALLINT", ("(-3L), (2L)", "(4L), (5L)"), "(-3, 1), (2, 1), (4, 0), (99, 1)"),
    ("TINYINT", "INT", ("(-128Y), (127Y)", "(4Y)"), "(127, 1), (-128, 1), (4, 0), (-129, 1)"),
    ("DATE", "DATE", ("(DATE'1969-12-31'), (DATE'1582-10-04')", "(DATE'2024-02-29')"),
     "('1969-12-31', 1), ('1582-10-04', 1), ('2024-02-29', 0), ('1970-01-01', 1)"),
    ("DATE", "DATE", ("(DATE'2024-01-01'), (DATE'9999-12-31')", "(DATE'2025-01-01')"),
     "('9999-12-31', 1), ('2025-01-01', 0), ('2023-01-01', 1)"),
    ("STRING", "STRING", ("('a'), ('ab'), ('')", "('x')"), "('ab', 1), ('', 1), ('x', 0), ('abc', 1)"),
    # Of these Delta keeps the first 32 characters, and something greater.
    ("STRING", "STRING", ("(repeat('\U0001f600', 40)), (repeat('z', 40) || 'b')", "('x')"),
     "(repeat('\U0001f600', 40), 1), (repeat('z', 40) || 'b', 1), ('x', 0), (repeat('z', 40) || 'a', 1)"),
    # Their order is another one than Delta's statistics tell: nothing is left out.
    ("DOUBLE", "DOUBLE", ("(-0.0D), (DOUBLE('NaN'))", "(4D)"), "('0', 1), ('NaN', 1), ('4', 0), ('7', 1)"),
    ("TIMESTAMP", "TIMESTAMP", ("(TIMESTAMP'2024-03-31 02:30:00.123456')", "(TIMESTAMP'2025-01-01 00:00:00')"),
     "('2024-03-31 02:30:00.123456', 1), ('2025-01-01 00:00:00', 0), ('2024-03-31 02:30:00.123457', 1)"),
]  # fmt: skip


def _of_key(key: tuple[str, str, tuple[str, str], str], clauses: str = UPSERT, **more: object) -> Case:
    target, source, files, rows = key
    commits = tuple(f"SELECT CAST(col1 AS {target}), 0 FROM VALUES {each}" for each in files)
    return Case(
        f"source of touched files: {target} and {source}, {files[0]}",
        clauses,
        does="update, insert" if clauses == UPSERT else "update, delete",
        table=Table(f"k {target}, v INT", commits, **more),  # type: ignore[arg-type]
        source=f"SELECT CAST(col1 AS {source}) AS k, col2 AS v FROM VALUES {rows}",
        on="t.k = s.k",
    )


INTEGERS = KEYS[0]
NULL_SAFE = Case(
    "source of touched files: NULL equals NULL", "WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v", does="update",
    table=Table("k INT, v INT", ("(1, 0), (NULL, 0)", "(4, 0)")),
    source="VALUES (CAST(NULL AS INT), 1), (4, 0) AS s(k, v)", on="t.k <=> s.k",
)  # fmt: skip
#: Whose statistics are listed, as the second key chooses files by them.
NULL_SAFE_BESIDE = Case(
    "source of touched files: NULL equals NULL, beside another key", "WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v",
    does="update", table=Table("k INT, j INT, v INT", ("(1, 1, 0), (NULL, 1, 0)", "(4, 4, 0)")),
    source="VALUES (CAST(NULL AS INT), 1, 1), (4, 4, 0) AS s(k, j, v)", on="t.k <=> s.k AND t.j = s.j",
)  # fmt: skip
PARTITIONS = Case(
    "source of touched files: a partition without a value beside one with", UPSERT, does="update, insert",
    table=Table("k INT, p STRING, v INT", ("(1, 'a', 0), (1, NULL, 0)", "(2, 'b c', 0)"), partitioned_by="p"),
    source="VALUES (1, 'a', 1), (2, 'b c', 0), (1, 'b c', 2), (1, NULL, 3) AS s(k, p, v)", on="t.k = s.k AND t.p = s.p",
)  # fmt: skip
CASES = [
    *map(_of_key, KEYS),
    _of_key(INTEGERS, properties={"delta.enableDeletionVectors": "true"}),
    _of_key(INTEGERS, properties={"delta.enableChangeDataFeed": "true"}),
    _of_key(INTEGERS, properties={"delta.columnMapping.mode": "name"}),
    _of_key(INTEGERS, properties={"delta.dataSkippingNumIndexedCols": "0"}),
    _of_key(INTEGERS, "WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED BY SOURCE AND t.k = 1 THEN DELETE"),
    NULL_SAFE,
    NULL_SAFE_BESIDE,
    PARTITIONS,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_match_is_left_out(case: Case, engines: Harness) -> None:
    engines.check(replace(case, confs=FORCED))


@pytest.mark.parametrize(
    ("rows", "settings", "narrowed"),
    [
        (20, {"narrowSourceFromRows": "0"}, True),
        (20, {"narrowSourceFromRows": "20"}, True),
        (20, {"narrowSourceFromRows": "21"}, False),
        (20, {}, False),
        (20, {"narrowSourceFromRows": "0", "pruneBySource.enabled": "false"}, False),
        # Rows of two of three files change: most of the source is needed.
        (30, {"narrowSourceFromRows": "20"}, False),
    ], ids=[
        "forced",
        "as many rows as the setting asks for",
        "a row less than the setting asks for",
        "too few rows by default",
        "forced, pruning by the source off",
        "most files are touched",
    ]
)  # fmt: skip
def test_the_source_is_narrowed_where_it_is_worth_it(
    spark: SparkSession, tmp_path: Path, rows: int, settings: dict[str, str], narrowed: bool
) -> None:
    """Four files of ten rows, of which those that hold 7 and 27 can change."""
    spark.range(0, 40, 1, 4).selectExpr("id", "id AS v").write.format("delta").save(str(tmp_path))
    merge = (
        f"MERGE INTO delta.`{tmp_path}` t USING (SELECT id, -1L AS v FROM range({rows})) s ON t.id = s.id "
        "WHEN MATCHED AND s.id % 20 = 7 THEN UPDATE SET v = s.v"
    )
    confs = {"joinOnceBytes": "0", "pruneFromBytes": "0", **settings}
    with session_settings(spark, {f"spark.deltaMerge.{name}": value for name, value in confs.items()}):
        found = plan(spark, MergeStatement(sql=merge), explain=True)
    assert found.num_touched_files == (1 if rows == 20 else 2)
    assert ("<= 9)" in found.spark_plans["rewritten rows"]) is narrowed
