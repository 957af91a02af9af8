"""Tables whose touched files were copied natively: other engines read them, and merges that fail leave no copies."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import pytest
from deltalake import DeltaTable

from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.engine.delta_jvm import copies
from airflow_delta_merge.engine.delta_jvm.store_files import StoreFiles
from airflow_delta_merge.engine.old_rows import native, on_executors
from airflow_delta_merge.exceptions import MergeConflictError, MergeExecutionError
from airflow_delta_merge.runtime.jars import delta_jars
from tests.differential.both_engines import merged_as_by_the_builtin
from tests.differential.conftest import MadeOnce
from tests.differential.delta_log import DeltaTableLog
from tests.differential.foreign_tables import edit_log
from tests.differential.meanwhile import Meanwhile
from tests.differential.session_settings import session_settings
from tests.session import COPIED_WHATEVER_THE_SIZE, SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPIED = "which are copied without these rows"
REWRITTEN = "which are rewritten"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
COLUMNS = (
    "id",
    "IF(id % 5 = 0, NULL, concat('name é ', id)) AS name",
    "CAST(id / 7 AS DECIMAL(9, 3)) AS price",
    "CAST(id / 7 AS DECIMAL(30, 3)) AS total",
    "CASE id % 4 WHEN 0 THEN CAST('NaN' AS DOUBLE) WHEN 1 THEN -0.0D ELSE id / 3 END AS weight",
    "timestamp_seconds(1700000000 + id) AS at",
    "CAST(timestamp_seconds(id) AS TIMESTAMP_NTZ) AS local_time",
    "DATE_ADD(DATE'2024-01-01', CAST(id AS INT)) AS day",
    "CAST(CAST(id AS STRING) AS BINARY) AS raw",
    "id % 3 = 0 AS flag",
    "array(id, NULL, id + 1) AS list",
    "named_struct('a', id, 'b', array(named_struct('c', concat('x', id)))) AS nested",
    "map(concat('k', id), id) AS pairs",
)


@pytest.fixture(autouse=True)
def copied_whatever_the_size(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, COPIED_WHATEVER_THE_SIZE):
        yield


@pytest.fixture
def table(made_once: MadeOnce, tmp_path: Path) -> Path:
    return made_once(tmp_path / "t", made)


def made(spark: SparkSession, path: Path) -> None:
    """Two files of 50 rows."""
    spark.range(0, 100, 1, 2).selectExpr(*COLUMNS).write.format("delta").save(str(path))


def data_files(table: Path) -> set[str]:
    return {str(file.relative_to(table)) for file in table.rglob("*.parquet") if "_delta_log" not in file.parts}


def upsert(table: Path | str) -> str:
    new = ", ".join(COLUMNS).replace("concat('name é ', id)", "'new'")
    source = f"SELECT {new} FROM VALUES (7L), (60L), (150L) AS s(id)"
    target = table if isinstance(table, str) else f"delta.`{table}`"
    return f"MERGE INTO {target} t USING ({source}) s ON t.id = s.id {UPSERT}"


@pytest.mark.parametrize("reader", ["delta-rs", "DuckDB"])
def test_other_engines_read_the_same_rows(spark: SparkSession, table: Path, reader: str) -> None:
    assert COPIED in merge_sql(spark, upsert(table)).executor_reason
    # No engine has Spark's maps and times zones alike, so these are compared as texts and numbers.
    plain = ("id", "name", "CAST(price AS STRING)", "CAST(total AS STRING)", "weight", "day", "flag", "nested.b[0].c")
    expected = [tuple(row) for row in spark.read.format("delta").load(str(table)).selectExpr(*plain).collect()]
    delta_table = DeltaTable(str(table))
    if reader == "delta-rs":
        found = [_plain(row) for row in delta_table.to_pyarrow_table().to_pylist()]
    else:
        # Its extension for Delta can't be had offline, so it gets the files' names from delta-rs.
        query = "SELECT * FROM read_parquet(?)"
        rows = duckdb.execute(query, [delta_table.file_uris()]).fetch_arrow_table().to_pylist()
        found = [_plain(row) for row in rows]
    assert len(found) == 101
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    texts = (None if row[name] is None else str(row[name]) for name in ("price", "total"))
    return (row["id"], row["name"], *texts, row["weight"], row["day"], row["flag"], row["nested"]["b"][0]["c"])


def test_files_by_delta_rs_are_copied(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = pa.table({"id": list(range(40)), "v": [f"old {number}" for number in range(40)]})
    path = tmp_path / "by_delta_rs"
    write_deltalake(str(path), rows.slice(0, 20))
    write_deltalake(str(path), rows.slice(20), mode="append")
    merge = (
        "MERGE INTO {t} t USING (SELECT id, 'new' AS v FROM VALUES (3L), (30L), (99L) AS s(id)) s ON t.id = s.id "
        f"{UPSERT}"
    )
    assert COPIED in merged_as_by_the_builtin(spark, path, tmp_path, merge).executor_reason


def test_files_with_an_empty_row_group_are_copied(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow's writer makes such a row group of each table without rows that it is given."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import write_deltalake

    path = tmp_path / "t"
    rows = pa.table({"id": list(range(100)), "v": [f"old {number}" for number in range(100)]})
    write_deltalake(str(path), rows)
    (name,) = data_files(path)
    with pq.ParquetWriter(path / name, rows.schema) as writer:
        for part in (rows.slice(0, 0), rows.slice(0, 50), rows.slice(50, 0), rows.slice(50)):
            writer.write_table(part)
    assert [pq.read_metadata(path / name).row_group(number).num_rows for number in range(4)] == [0, 50, 0, 50]
    edit_log(path, lambda add: add.update(size=(path / name).stat().st_size))
    merge = (
        "MERGE INTO {t} t USING (SELECT id, 'new' AS v FROM VALUES (3L), (30L), (999L) AS s(id)) s ON t.id = s.id "
        f"{UPSERT}"
    )
    assert COPIED in merged_as_by_the_builtin(spark, path, tmp_path, merge).executor_reason


def test_an_empty_value_of_a_partition_becomes_null_as_by_the_builtin(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """delta-rs writes such values; Delta reads them as they are and writes NULL."""

    def edit(add: dict[str, Any]) -> None:
        add["partitionValues"]["p"] = ""

    path = tmp_path / "t"
    rows = spark.range(0, 3, 1, 1).selectExpr("X'61' AS p", "id")
    rows.write.format("delta").partitionBy("p").save(str(path))
    edit_log(path, edit)
    merge = "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    with caplog.at_level("INFO", "airflow_delta_merge"):
        result = merged_as_by_the_builtin(spark, path, tmp_path, merge)
    assert "its partition has an empty value" in caplog.text
    assert REWRITTEN in result.executor_reason


def test_statistics_of_copies_have_numbers_as_delta_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    """Java before 19 writes some numbers with more digits than they need: of 2E23 as a double seventeen."""
    path = tmp_path / "t"
    numbers = (
        "1.7976931348623157E308D, -1.0E7D, 12345678.9D, 9999999.5D, 0.001D, -0.0001234D, 1.0E-300D, -0.0D, 100.0D, "
        "2.0E23D, 4.9E-324D, -6.853802E8D, 7.175E-43D, 0.106815696D, 1.0D / 3, 33554436.0D, 1.0E10D, 3.4E38D, -1.0E-3D"
    )
    rows = f"SELECT id, n, CAST(d AS FLOAT) AS f, d FROM range(2) LATERAL VIEW posexplode(array({numbers})) AS n, d"
    # A file for each number, so that each is a bound.
    spark.sql(rows).repartition(1).write.format("delta").partitionBy("n").save(str(path))
    merge = "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert COPIED in merged_as_by_the_builtin(spark, path, tmp_path, merge).executor_reason
    builtin, ours = (DeltaTableLog.read(tmp_path / name).actions("add", since=0) for name in ("builtin", "ours"))
    assert len(builtin) == len(numbers.split(","))
    by_partition = [{add["partitionValues"]["n"]: add["stats"] for add in adds} for adds in (builtin, ours)]
    assert by_partition[1] == by_partition[0]


@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
def test_readers_of_a_copy_find_nan(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    """Spark takes NaN for the greatest number, and Arrow leaves it out of a row group's bounds."""
    path = tmp_path / "t"
    number = f"CAST(IF(id = 3, 'NaN', '1') AS {type_})"
    rows = spark.range(0, 10, 1, 1).selectExpr("id", f"{number} AS n", f"named_struct('a.b', {number}) AS s")
    rows.write.format("delta").save(str(path))
    merge = f"MERGE INTO delta.`{path}` t USING (SELECT 5L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert COPIED in merge_sql(spark, merge).executor_reason
    copied = spark.read.format("delta").load(str(path))
    for condition in ("n > 5", "n <> 1", f"n = {type_}('NaN')", "s.`a.b` > 5"):
        assert [row.id for row in copied.where(condition).collect()] == [3], condition


def test_statistics_of_copies_have_times_from_files_with_milliseconds(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    moment = "timestamp_millis(1700000000123 + id)"
    with session_settings(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}):
        rows = spark.range(0, 10, 1, 1).selectExpr("id", f"{moment} AS at", f"CAST({moment} AS TIMESTAMP_NTZ) AS ntz")
        rows.write.format("delta").save(str(path))
    merge = "MERGE INTO {t} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    with session_settings(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        assert COPIED in merged_as_by_the_builtin(spark, path, tmp_path, merge).executor_reason
    builtin, ours = (DeltaTableLog.read(tmp_path / name).actions("add", since=0) for name in ("builtin", "ours"))
    assert [add["stats"] for add in ours] == [add["stats"] for add in builtin]


def test_times_that_spark_converts_when_it_reads_them_are_not_copied(spark: SparkSession, tmp_path: Path) -> None:
    """Other writers' times of 96 bits count as those of the session's zone then; a copy's have 64."""
    import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t"
    path.mkdir()
    at = [datetime.datetime(2024, 1, 1, hour, tzinfo=datetime.UTC) for hour in range(3)]
    rows = pa.table({"id": [1, 2, 3], "at": pa.array(at, pa.timestamp("us", "UTC"))})
    pq.write_table(rows, path / "file.parquet", use_deprecated_int96_timestamps=True)
    spark.sql(f"CONVERT TO DELTA parquet.`{path}`")
    merge = "MERGE INTO {t} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    with session_settings(
        spark, {"spark.sql.parquet.int96TimestampConversion": "true", "spark.sql.session.timeZone": "Asia/Tokyo"}
    ):
        assert REWRITTEN in merged_as_by_the_builtin(spark, path, tmp_path, merge).executor_reason


@pytest.mark.parametrize("version", ["2.4.8", "3.0.3"])
def test_dates_and_times_by_an_old_spark_are_not_copied(spark: SparkSession, tmp_path: Path, version: str) -> None:
    """Spark reads them in the old calendar, but an INT64 timestamp that Spark 3.0 wrote in the new one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t"
    path.mkdir()
    microseconds = [(day - 719_162) * 86_400_000_000 for day in range(5)]
    rows = pa.table({"id": list(range(5)), "at": pa.array(microseconds, pa.timestamp("us"))})
    with pq.ParquetWriter(path / "file.parquet", rows.schema, use_deprecated_int96_timestamps=True) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"org.apache.spark.version": version})
    spark.sql(f"CONVERT TO DELTA parquet.`{path}`")
    merge = "MERGE INTO {t} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert REWRITTEN in merged_as_by_the_builtin(spark, path, tmp_path, merge).executor_reason


@pytest.mark.parametrize("name", ["parquet.bloom.filter.enabled", "parquet.bloom.filter.enabled#id"])
def test_files_with_bloom_filters_are_not_copied(spark: SparkSession, table: Path, name: str) -> None:
    """Arrow would write none."""
    with session_settings(spark, {name: "true"}):
        assert REWRITTEN in merge_sql(spark, upsert(table)).executor_reason


def test_files_of_a_table_with_bloom_filters_are_not_copied(spark: SparkSession, table: Path) -> None:
    """Delta's writer passes the table's properties on to Parquet's."""
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('parquet.bloom.filter.enabled#id' = 'true')")
    assert REWRITTEN in merge_sql(spark, upsert(table)).executor_reason


def test_files_of_a_table_of_parquet_2_are_not_copied(spark: SparkSession, table: Path) -> None:
    """Arrow would write the pages and encodings of Parquet 1."""
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.parquet.format.version' = '2.12.0')")
    assert REWRITTEN in merge_sql(spark, upsert(table)).executor_reason


def test_files_are_not_copied_where_the_session_writes_parquet_2(spark: SparkSession, table: Path) -> None:
    with session_settings(spark, {"parquet.writer.version": "PARQUET_2_0"}):
        assert REWRITTEN in merge_sql(spark, upsert(table)).executor_reason


def test_delta_itself_refuses_a_length_of_bounds_that_is_no_number(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    """No statement sets one, but other writers may."""
    path = shutil.copytree(table, tmp_path / "edited")
    length = {"delta.dataSkippingStringPrefixLength": "long"}
    edit_log(path, lambda metadata: metadata["configuration"].update(length), action="metaData")
    with pytest.raises(MergeExecutionError, match=r'^For input string: "long"'):
        merge_sql(spark, upsert(path))


@pytest.mark.parametrize(("first", "how"), [("false", REWRITTEN), ("true", COPIED)])
def test_copies_have_the_partition_columns_that_the_table_wants_in_files(
    spark: SparkSession, tmp_path: Path, first: str, how: str
) -> None:
    """Its earlier files may lack them."""
    import pyarrow.parquet as pq

    path = tmp_path / "t"
    rows = spark.range(0, 10, 1, 1).selectExpr("1 AS p", "id", "2 AS q")
    written = rows.write.format("delta").partitionBy("q", "p").option("delta.writePartitionColumnsToParquet", first)
    written.save(str(path))
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableMaterializePartitionColumnsFeature' = 'true')"
    )
    merge = "MERGE INTO {t} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert how in merged_as_by_the_builtin(spark, path, tmp_path, merge).executor_reason
    (file,) = DeltaTable(str(tmp_path / "ours")).file_uris()
    assert pq.read_schema(file).names == ["id", "q", "p"]


def test_a_merge_that_fails_leaves_no_copy(spark: SparkSession, table: Path) -> None:
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT named CHECK (name IS NULL OR name <> 'new')")
    before = data_files(table)
    with pytest.raises(MergeExecutionError, match="named"):
        merge_sql(spark, upsert(table))
    # What Spark had written of new rows stays for VACUUM, as after a failed built-in MERGE.
    assert {file for file in data_files(table) - before if ".c000." in file} == set()


def test_a_merge_in_conflict_deletes_its_copies(spark: SparkSession, table: Path) -> None:
    with Meanwhile(spark, table, [f"UPDATE delta.`{table}` SET name = 'other' WHERE id = 7"]) as meanwhile:
        merge = (
            f"MERGE INTO delta.`{table}` t USING {meanwhile.pausing('(SELECT 7L AS id)')} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET name = 'new'"
        )
        with pytest.raises(MergeConflictError, match=r"files that this attempt wrote .* were deleted"):
            merge_sql(spark, merge, max_commit_attempts=1)
    live = {Path(uri).name for uri in DeltaTable(str(table), version=0).file_uris()}
    live |= {Path(uri).name for uri in DeltaTable(str(table)).file_uris()}
    assert data_files(table) == live


def test_spark_rewrites_what_arrow_fails_to_copy(
    spark: SparkSession, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: Any, **_: Any) -> None:
        Path(file.copy).write_bytes(b"half of it")
        raise OSError("as if the disk were full")

    monkeypatch.setattr(native, "copy_file", fails)
    before = data_files(table)
    result = merged_as_by_the_builtin(spark, table, tmp_path, upsert("{t}"))
    left = data_files(tmp_path / "ours")
    live = {Path(uri).name for uri in DeltaTable(str(tmp_path / "ours")).file_uris()}
    assert left == before | live, "neither half copies nor what Spark wrote beside them is left"
    assert (result.num_updated_rows, result.num_inserted_rows) == (2, 1)
    assert REWRITTEN in result.executor_reason


CLAUSES = pytest.mark.parametrize(
    "clauses",
    [
        pytest.param(UPSERT, id="new rows from the source"),
        pytest.param("WHEN MATCHED THEN UPDATE SET price = t.price + s.price", id="new rows from old ones"),
        pytest.param("WHEN MATCHED THEN DELETE", id="no new rows"),
    ],
)


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """An address of the test's folder in another of Hadoop's file systems, from which files must be fetched."""
    name = f"store-{uuid.uuid4()}"  # each needs its own: Hadoop keeps what it has opened
    with session_settings(spark, {f"fs.viewfs.mounttable.{name}.link./lake": tmp_path.as_uri()}):
        yield f"viewfs://{name}/lake"


@CLAUSES
@pytest.mark.parametrize("partitioned_by", [pytest.param([], id="no partitions"), pytest.param(["p"], id="partitions")])
def test_files_in_a_store_are_copied(
    spark: SparkSession, tmp_path: Path, store: str, clauses: str, partitioned_by: list[str]
) -> None:
    ours, builtin = tmp_path / "o u%2Frs é", tmp_path / "builtin"
    rows = spark.range(0, 100, 1, 2).selectExpr(*COLUMNS, "IF(id % 2 = 0, 'a b/é:%#?', NULL) AS p")
    rows.write.format("delta").partitionBy(*partitioned_by).save(str(ours))
    shutil.copytree(ours, builtin)
    merge = upsert("{t}").replace(" FROM VALUES", ", 'a b/é:%#?' AS p FROM VALUES").replace(UPSERT, clauses)
    result = merge_sql(spark, merge.format(t=f"delta.`{store}/{ours.name}`"))
    spark.sql(merge.format(t=f"delta.`{builtin}`")).collect()
    left, right = (spark.read.format("delta").load(str(path)).collect() for path in (ours, builtin))
    assert sorted(map(repr, left)) == sorted(map(repr, right))
    assert COPIED in result.executor_reason
    adds = DeltaTableLog.read(ours).actions("add", since=0)
    files = [(add, ours / unquote(add["path"])) for add in adds if ".c000." in add["path"]]
    assert files
    for add, file in files:
        about = file.stat()
        assert (add["size"], add["modificationTime"]) == (about.st_size, int(about.st_mtime * 1000))


def test_a_merge_that_fails_leaves_no_copy_in_a_store(
    spark: SparkSession, table: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT named CHECK (name IS NULL OR name <> 'new')")
    before = data_files(table)
    written: set[str] = set()

    def put(store: StoreFiles, local: str, path: str) -> tuple[int, int]:
        size_and_time = put_there(store, local, path)
        written.update(data_files(table) - before)
        return size_and_time

    put_there = StoreFiles.put
    monkeypatch.setattr(StoreFiles, "put", put)
    with pytest.raises(MergeExecutionError, match="named"):
        merge_sql(spark, upsert(f"delta.`{store}/{table.name}`"))
    assert {file for file in written if ".c000." in file}, "copies were there"
    assert {file for file in data_files(table) - before if ".c000." in file} == set()


def test_a_session_that_encrypts_its_temporary_files_fetches_none(spark: SparkSession, table: Path, store: str) -> None:
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.io.encryption.enabled", "true")
    try:
        assert REWRITTEN in merge_sql(spark, upsert(f"delta.`{store}/{table.name}`")).executor_reason
    finally:
        settings.remove("spark.io.encryption.enabled")


def test_spark_rewrites_files_in_a_store_that_arrow_would_write_differently(
    spark: SparkSession, tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    with session_settings(spark, {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}):
        rows = spark.range(0, 10, 1, 1).selectExpr("id", "DATE'1500-01-01' AS day")
        rows.write.format("delta").save(str(path))
    before = data_files(path)
    merge = f"MERGE INTO delta.`{store}/t` t USING (SELECT 3L AS id, DATE'2024-01-01' AS day) s ON t.id = s.id {UPSERT}"
    with caplog.at_level("INFO", "airflow_delta_merge"):
        assert REWRITTEN in merge_sql(spark, merge).executor_reason
    assert "it has dates of the old calendar" in caplog.text
    assert len(data_files(path) - before) == 1
    assert spark.read.format("delta").load(str(path)).where("day > '2000-01-01'").count() == 1


@pytest.fixture
def by_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are copied by a Spark job, as on a cluster, here in the Python workers of a local master."""

    def by_executors(*arguments: Any) -> copies.CopyTerms:
        return replace(copies.terms_of_copies(*arguments), by_executors=True)

    monkeypatch.setattr("airflow_delta_merge.engine.delta_jvm.transaction.terms_of_copies", by_executors)


@pytest.mark.usefixtures("by_executors")
@CLAUSES
def test_executors_copy_files(spark: SparkSession, table: Path, tmp_path: Path, clauses: str) -> None:
    # Spark reads the rows: copies turn INT96 timestamps into INT64 ones, which only Spark takes for the same.
    ours, builtin = (shutil.copytree(table, tmp_path / name) for name in ("ours", "builtin"))
    result = merge_sql(spark, upsert(ours).replace(UPSERT, clauses))
    spark.sql(upsert(builtin).replace(UPSERT, clauses)).collect()
    rows = [spark.read.format("delta").load(str(path)).collect() for path in (ours, builtin)]
    assert sorted(map(repr, rows[0])) == sorted(map(repr, rows[1]))
    assert COPIED in result.executor_reason
    live = [Path(uri).name for uri in DeltaTable(str(ours)).file_uris()]
    copies = [name for name in live if re.search(r"\.c\d+\.", name)]
    assert len(copies) == 2
    assert not any(".c000." in name for name in copies), "each has the number of the attempt that wrote it"


@pytest.mark.usefixtures("by_executors")
def test_spark_rewrites_files_if_executors_lack_pyarrow(
    spark: SparkSession, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(on_executors, "LEAST_ARROW", 9999)  # it travels with the code
    before = data_files(table)
    with caplog.at_level("INFO", "airflow_delta_merge"):
        result = merged_as_by_the_builtin(spark, table, tmp_path, upsert("{t}"))
    assert "is older than 9999" in caplog.text
    assert REWRITTEN in result.executor_reason
    live = {Path(uri).name for uri in DeltaTable(str(tmp_path / "ours")).file_uris()}
    assert data_files(tmp_path / "ours") == before | live


_KILLED = """
    import os, signal
    from pyspark.sql import SparkSession
    from airflow_delta_merge.engine import merge_sql
    from airflow_delta_merge.engine.old_rows import native

    def dies(file, **named):
        original(file, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    original, native.copy_file = native.copy_file, dies
    builder = SparkSession.builder.master("local[2]")
    for name, value in {settings!r}.items():
        builder = builder.config(name, value)
    merge_sql(builder.getOrCreate(), {merge!r})
"""


def test_a_merge_that_is_killed_while_copying_leaves_orphans_only(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    before = data_files(table)
    rows = sorted(map(repr, spark.read.format("delta").load(str(table)).collect()))
    settings = {
        **SESSION_SETTINGS,
        **COPIED_WHATEVER_THE_SIZE,
        "spark.jars": ",".join(delta_jars()),
        "spark.local.dir": str(tmp_path / "local"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(_KILLED).format(settings=settings, merge=upsert(table)))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.run([sys.executable, str(script)], env=environment, timeout=300, check=False)
    assert process.returncode == -signal.SIGKILL
    orphans = data_files(table) - before
    assert orphans, "it was killed after a copy was written"
    delta_table = DeltaTable(str(table))
    assert delta_table.version() == 0
    assert sorted(map(repr, spark.read.format("delta").load(str(table)).collect())) == rows
    delta_table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert data_files(table) == before
