"""Bounds as other writers write them leave no file out that holds a match: each by all ways, against the built-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.differential.foreign_tables import (
    INSERT,
    UPSERT,
    WAYS,
    check_ways,
    edit_log,
    make_table,
    with_statistics,
)
from tests.differential.session_settings import session_settings
from tests.turns import InTurn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Statistics = dict[str, Any]
FILES = 6


class Foreign(NamedTuple):
    """A table of six files, ``old0`` to ``old5``, of which the source meets one, and what its writer did.

    :param name: what it shows.
    :param type: of the key.
    :param key: the key of the file numbered ``id``, as SQL.
    :param written: changes a file's statistics in place.
    :param source: the keys of the source, as SQL.
    :param on: the condition.
    :param statement: the merge.
    :param settings: of the session.
    :param prunes: whether files can be left out all the same.
    """

    name: str
    type: str
    key: str
    written: Callable[[Statistics], Any]
    source: tuple[str, ...]
    on: str = "t.k = s.k"
    statement: str = UPSERT
    settings: Mapping[str, str] = {}
    prunes: bool = True

    def __str__(self) -> str:
        return self.name


def both(change: Callable[[Any], Any]) -> Callable[[Statistics], Any]:
    """The same done to both bounds of the key."""

    def edit(statistics: Statistics) -> None:
        for bound in ("minValues", "maxValues"):
            if "k" in statistics[bound]:
                statistics[bound]["k"] = change(statistics[bound]["k"])

    return edit


def bounds(low: Any, high: Any, of: str) -> Callable[[Statistics], Any]:
    """Other bounds, of the file with this value of ``v``."""

    def edit(statistics: Statistics) -> None:
        if statistics["minValues"]["v"] == of:
            statistics["minValues"]["k"], statistics["maxValues"]["k"] = low, high

    return edit


def no_nulls(statistics: Statistics) -> None:
    statistics["nullCount"]["k"] = 0


def in_tokyo_without_zone(moment: str) -> str:
    """What stands there for Tokyo as an early deltalake wrote it: in UTC, without saying so."""
    assert moment.endswith("T09:00:00.000+09:00")
    return moment.replace("T09:00:00.000+09:00", "T00:00:00")


CASES = [
    Foreign(
        "decimals of delta-rs, cut at the longest integer",
        "DECIMAL(38,0)",
        "CAST('1000000000000000000000000000000' AS DECIMAL(38,0)) + id",
        both(lambda _: 2**63 - 1),
        ("CAST('1000000000000000000000000000003' AS DECIMAL(38,0))",),
        prunes=False,
    ),
    Foreign(
        "decimals of delta-rs, as doubles",
        "DECIMAL(38,18)",
        "CAST('1234567890.123456789012345670' AS DECIMAL(38,18)) + CAST(id AS DECIMAL(1,0)) / 1000000000000000000",
        both(float),
        ("CAST('1234567890.123456789012345673' AS DECIMAL(38,18))",),
        prunes=False,
    ),
    Foreign(
        "decimals of fifteen digits, as doubles",
        "DECIMAL(15,2)",
        "CAST('9999999999990.07' AS DECIMAL(15,2)) + id",
        both(lambda bound: round(float(bound) * 100) * 0.01),
        ("CAST('9999999999993.07' AS DECIMAL(15,2))",),
    ),
    Foreign(
        "whole numbers through doubles",
        "BIGINT",
        "9007199254740993 + id * 1000",
        both(lambda bound: int(float(bound))),
        ("9007199254743993L",),
    ),
    Foreign(
        "whole numbers through doubles, inserted",
        "BIGINT",
        "9007199254740993 + id * 1000",
        both(lambda bound: int(float(bound))),
        ("9007199254743993L", "9007199254843993L"),
        statement=INSERT,
    ),
    Foreign(
        "days by the Julian calendar",
        "DATE",
        "DATE'1500-06-01' + CAST(id AS INT)",
        bounds("1500-06-14", "1500-06-14", of="old3"),
        ("DATE'1500-06-04'",),
        prunes=False,
    ),
    Foreign(
        "zones cut to minutes",
        "TIMESTAMP",
        "TIMESTAMP'1850-01-01 01:01:01' + make_dt_interval(CAST(id AS INT))",
        both(lambda bound: bound.replace("+05:53:28", "+05:53")),
        ("TIMESTAMP'1850-01-04 01:01:01'",),
        settings={"spark.sql.session.timeZone": "Asia/Kolkata"},
        prunes=False,
    ),
    Foreign(
        "moments half a minute off",
        "TIMESTAMP",
        "TIMESTAMP'1950-01-01 01:01:01' + make_dt_interval(CAST(id AS INT))",
        both(lambda bound: bound.replace("01:01:01", "01:01:31")),
        ("TIMESTAMP'1950-01-04 01:01:01'",),
    ),
    Foreign(
        "moments without a zone",
        "TIMESTAMP",
        "TIMESTAMP'2024-01-01 09:00:00' + make_dt_interval(CAST(id AS INT) * 3)",
        both(in_tokyo_without_zone),
        ("TIMESTAMP'2024-01-10 09:00:00'",),
        settings={"spark.sql.session.timeZone": "Asia/Tokyo"},
    ),
    Foreign(
        "moments of no zone in UTC",
        "TIMESTAMP_NTZ",
        "TIMESTAMP_NTZ'2024-01-01 01:00:00.123999' + make_dt_interval(CAST(id AS INT))",
        both(lambda bound: bound[:23] + "Z"),
        ("TIMESTAMP_NTZ'2024-01-04 01:00:00.123999'",),
        settings={"spark.sql.session.timeZone": "America/New_York"},
        prunes=False,
    ),
    Foreign(
        "moments of no zone",
        "TIMESTAMP_NTZ",
        "TIMESTAMP_NTZ'2024-03-08 02:30:00.123999' + make_dt_interval(CAST(id AS INT) * 2)",
        lambda statistics: None,
        ("TIMESTAMP_NTZ'2024-03-10 02:30:00.123999'",),
        settings={"spark.sql.session.timeZone": "America/New_York"},  # which has no such time of that day
    ),
    Foreign(
        "texts that are no UTF-8",
        "STRING",
        "CAST(unhex(concat('636166E9', hex(CAST(id AS STRING)))) AS STRING)",
        lambda statistics: None,
        ("CAST(X'636166E933' AS STRING)",),
        prunes=False,
    ),
    Foreign(
        "texts that are no UTF-8, among others in the source",
        "STRING",
        "CAST(unhex(concat('636166E9', hex(CAST(id AS STRING)))) AS STRING)",
        lambda statistics: None,
        ("CAST(X'636166E933' AS STRING)", "'a'", "'zebra'", "CAST(X'FF' AS STRING)", "CAST(X'80' AS STRING)"),
        prunes=False,
    ),
    Foreign(
        "texts that are no UTF-8, inserted",
        "STRING",
        "CAST(unhex(concat('636166E9', hex(CAST(id AS STRING)))) AS STRING)",
        lambda statistics: None,
        ("CAST(X'636166E933' AS STRING)", "CAST(X'636166E939' AS STRING)"),
        statement=INSERT,
        prunes=False,
    ),
    Foreign(
        "texts that are no UTF-8 in one file",
        "STRING",
        "CASE WHEN id = 3 THEN CAST(X'7880' AS STRING) ELSE concat('xé', id) END",
        lambda statistics: None,
        ("CAST(X'7880' AS STRING)",),
        prunes=False,
    ),
    Foreign(
        "a text above which stands for bytes below",
        "STRING",
        "CASE WHEN id = 3 THEN 'é' ELSE concat('é', id) END",
        bounds("\ufffd", "\ufffd\ufffd", of="old3"),
        ("'é'",),
        prunes=False,
    ),
    Foreign(
        "texts in the order of UTF-16",
        "STRING",
        "concat('x', CASE WHEN id = 3 THEN '\ufb01' ELSE concat('\ufb01', id) END)",
        bounds("x\U0001f600", "x\ufb01", of="old3"),
        ("'x\ufb01'",),
        prunes=False,
    ),
    Foreign(
        "texts that are cut, with nothing behind them",
        "STRING",
        "concat(repeat('x', 31), id, 'tail')",
        both(lambda bound: bound.rstrip("\ufffd\U0010ffff\x7f")[:32]),
        ("concat(repeat('x', 31), '3tail')",),
    ),
    Foreign(
        "keys in several clusters",
        "STRING",
        "concat('k', id * 1000)",
        lambda statistics: None,
        ("'k0'", "'k2000'"),
    ),
    Foreign(
        "NULLs that nobody counted",
        "BIGINT",
        "CASE WHEN id <> 3 THEN id END",
        no_nulls,
        ("CAST(NULL AS BIGINT)", "4L"),
        on="t.k <=> s.k",
        prunes=False,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bounds_of_other_writers(case: Foreign, spark: SparkSession, tmp_path: Path, in_turn: InTurn) -> None:
    table = _table_of(case, spark, tmp_path)
    # Spark compares constants of a source with Parquet's own bounds, which is wrong for texts that are no UTF-8.
    source = "SELECT col1 AS k, 'new' AS v FROM VALUES " + ", ".join(f"({key})" for key in case.source)
    searched = check_ways(
        spark,
        table,
        tmp_path,
        source=source,
        on=case.on,
        statement=case.statement,
        settings=case.settings,
        ways=in_turn(WAYS),
    )
    left_out = {way: FILES - count for way, count in searched.items()}
    if case.prunes:
        assert min(left_out.values()) > 0, left_out
    elif case.name.startswith(("decimals", "days", "zones", "NULLs")):
        assert not any(left_out.values()), left_out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bounds_of_other_writers_and_conditions_of_by_source_clauses(
    case: Foreign, spark: SparkSession, tmp_path: Path
) -> None:
    """The built-in reads all files for such a clause, whatever bounds say."""
    key = case.source[0]
    condition = "t.k IS NULL" if "NULL" in key else f"t.k >= {key} AND t.k <= {key}"
    searched = check_ways(
        spark,
        _table_of(case, spark, tmp_path),
        tmp_path,
        source="SELECT * FROM VALUES ('of', 'no file') AS (v, w)",
        on="t.v = s.w",
        statement="MERGE INTO {t} t USING ({s}) s ON {on} WHEN NOT MATCHED BY SOURCE AND "
        f"{condition} THEN UPDATE SET v = 'found'",
        settings=case.settings,
        ways=["by Delta's job"],  # which always chooses the files for such clauses
    )
    if case.prunes:
        assert searched["by Delta's job"] < FILES


def _table_of(case: Foreign, spark: SparkSession, tmp_path: Path) -> Path:
    with session_settings(spark, case.settings):
        return make_table(
            spark,
            tmp_path / "table",
            f"k {case.type}, v STRING",
            f"SELECT CAST({case.key} AS {case.type}) AS k, concat('old', id) AS v FROM range({FILES})",
            edit=with_statistics(case.written),
        )


def test_char_values_without_their_blanks(spark: SparkSession, tmp_path: Path) -> None:
    """Writers that know no CHAR neither fill values nor bounds. A filled key, Spark's default, no MERGE resolves."""
    table = make_table(
        spark,
        tmp_path / "table",
        "k STRING, v STRING",
        f"SELECT concat('k', id) k, concat('old', id) v FROM range({FILES})",
    )

    def as_char(metadata: dict[str, Any]) -> None:
        key = '"name":"k","type":"string","nullable":true,"metadata":{}'
        assert key in metadata["schemaString"]
        metadata["schemaString"] = metadata["schemaString"].replace(
            key, key.replace("{}", '{"__CHAR_VARCHAR_TYPE_STRING":"char(5)"}')
        )

    edit_log(table, as_char, action="metaData")
    searched = check_ways(
        spark,
        table,
        tmp_path,
        source="SELECT col1 k, 'new' v FROM VALUES ('k3'), ('k4   ')",
        settings={"spark.sql.readSideCharPadding": "false"},
    )
    assert searched["from a list"] < FILES


@pytest.mark.parametrize(
    ("type_", "texts", "key"),
    [
        ("INT", ["007", " 8", "+9", "10 "], "7"),
        ("DATE", ["2024-1-5", "2024-01-06", "2024", "2024-01"], "DATE'2024-01-05'"),
        ("STRING", ["é", "Zürich ", "日本", "\U0001f600"], "'é'"),
        (
            "DECIMAL(38,18)",
            ["1.5", "1.500000000000000001", "2", "1e1"],
            "CAST('1.500000000000000001' AS DECIMAL(38,18))",
        ),
        (
            "TIMESTAMP",
            ["2024-01-01 00:00:00", "2024-01-02T00:00:00Z", "2024-01-03", "2024-01-04"],
            "TIMESTAMP'2024-01-02'",
        ),
    ],
    ids=["INT", "DATE", "STRING", "DECIMAL", "TIMESTAMP"],
)
def test_partition_values_in_other_forms(
    type_: str, texts: list[str], key: str, spark: SparkSession, tmp_path: Path, in_turn: InTurn
) -> None:
    """Spark takes a row's value from the text in the log, so what it makes of that is its value."""
    left = iter(texts)

    def other_text(add: dict[str, Any]) -> None:
        add["partitionValues"]["k"] = next(left)

    values = {"INT": "CAST(id AS INT)", "DATE": "DATE'2024-01-01' + CAST(id AS INT)", "STRING": "concat('p', id)"}
    value = values.get(type_, f"CAST({'timestamp_seconds(id)' if type_ == 'TIMESTAMP' else 'id'} AS {type_})")
    table = make_table(
        spark,
        tmp_path / "table",
        f"k {type_}, v STRING",
        f"SELECT {value} AS k, concat('old', id) AS v FROM range({len(texts)})",
        options="PARTITIONED BY (k)",
        edit=other_text,
    )
    source = f"SELECT {key} AS k, 'new' AS v"
    check_ways(spark, table, tmp_path, source=source, settings=NOT_ANSI, ways=in_turn(WAYS))


#: Where a text that is none of its type is NULL.
NOT_ANSI = {"spark.sql.ansi.enabled": "false"}


def test_a_table_property_switches_pruning_off(spark: SparkSession, tmp_path: Path) -> None:
    """With bounds that no rule could know to be wrong."""
    table = make_table(
        spark,
        tmp_path / "table",
        "k BIGINT, v STRING",
        f"SELECT id AS k, concat('old', id) AS v FROM range({FILES})",
        options="TBLPROPERTIES ('deltaMerge.pruneBySource.enabled' = 'false')",
        edit=with_statistics(bounds(100, 100, of="old3")),
    )
    searched = check_ways(spark, table, tmp_path, source="SELECT 3L AS k, 'new' AS v")
    assert searched == dict.fromkeys(WAYS, FILES)
