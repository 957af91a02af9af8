"""Feeds as they come: broken JSON lines, short and long CSV rows, quotes, files that grow, are empty or cut off."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import MergeConfig, MergeGuards
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity
from airflow_delta_merge.engine import merge, plan
from airflow_delta_merge.engine.source.view import source_relation
from airflow_delta_merge.exceptions import (
    BadRowsError,
    EmptySourceError,
    MergeExecutionError,
    NullKeysError,
)
from airflow_delta_merge.patterns import InsertNew, Upsert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN_JSON = '{"id": 1, "v": "a"}\n{"id": 2, "v":\nnot json\n[7]\n{"id": 3, "v": "c"}\n'
UNEVEN_CSV = "id,v,w\n1,a,b\n2,short\n3,c,d,too long\n4,e,f\n"


class Feed:
    """A file that is merged into a table made for it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.target = str(folder / "target")

    def file(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def config(self, path: str, pattern: Any = None, **source: Any) -> MergeConfig:
        options = {"header": True} if ".csv" in path else {}
        given = {"path": path, "options": options, **source}
        return (pattern or InsertNew(keys=["id"])).to_config(target=self.target, source=given, create_table=True)

    def rows(self, columns: str = "id, v") -> list[tuple[Any, ...]]:
        return [
            tuple(row) for row in self.spark.sql(f"SELECT {columns} FROM delta.`{self.target}` ORDER BY 1").collect()
        ]

    def columns(self) -> list[str]:
        return self.spark.read.format("delta").load(self.target).columns


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path)


def test_broken_json_lines_fail_the_merge_and_make_no_table(feed: Feed) -> None:
    path = feed.file("a.json", BROKEN_JSON)
    with pytest.raises(BadRowsError, match="3 of the source's 5 rows are bad"):
        merge(feed.spark, feed.config(path))
    assert not Path(feed.target).exists()


def test_skipped_json_lines_are_counted_and_leave_no_column(feed: Feed) -> None:
    path = feed.file("a.json", BROKEN_JSON)
    result = merge(feed.spark, feed.config(path, bad_rows="skip"))
    assert (result.num_bad_rows, result.num_inserted_rows) == (3, 2)
    assert feed.columns() == ["id", "v"]
    assert merge(feed.spark, feed.config(path, bad_rows="skip")).num_affected_rows == 0


def test_kept_rows_are_written_once_however_often_a_merge_is_tried(feed: Feed) -> None:
    path, kept = feed.file("a.json", BROKEN_JSON), str(feed.folder / "kept")
    config = feed.config(path, bad_rows="keep", bad_rows_path=kept)
    identity = MergeIdentity(application_id="a", generation=1)
    results = [merge(feed.spark, config, identity=identity) for _ in range(2)]
    assert [result.num_bad_rows for result in results] == [3, 3]
    assert results[1].already_committed
    rows = feed.spark.read.format("delta").load(kept).orderBy("record").collect()
    assert [row.record for row in rows] == ["[7]", "not json", '{"id": 2, "v":']
    assert {(row.file.endswith("/a.json"), row.merge, row.generation) for row in rows} == {(True, "a", 1)}
    assert all(row.reason.startswith("no JSON object") and row.target and row.kept_at for row in rows)
    merge(feed.spark, config, identity=MergeIdentity(application_id="a", generation=2))
    assert feed.spark.read.format("delta").load(kept).count() == 6


@pytest.mark.parametrize(("generation", "num_kept"), [(1_001_002, 3), (1_001_003, 6), (2_000_002, 6)])
def test_kept_rows_are_written_once_for_an_execution_even_if_its_generation_grows(
    feed: Feed, generation: int, num_kept: int
) -> None:
    """As it does when *another* task of the run is cleared between two tries, of which the first was not committed."""
    path, kept = feed.file("a.json", BROKEN_JSON), str(feed.folder / "kept")
    config = feed.config(path, bad_rows="keep", bad_rows_path=kept)
    task = TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r")
    first, second = (
        MergeIdentity(application_id="a", generation=each, task_instance=task) for each in (1_000_002, generation)
    )
    failing = MergeConfig.from_dict(
        {**config.to_dict(), "guards": MergeGuards(fail_if=["num_source_rows > 1"]).to_dict()}
    )
    with pytest.raises(MergeExecutionError, match="guard"):
        merge(feed.spark, failing, identity=first)
    assert feed.spark.read.format("delta").load(kept).count() == 3
    assert not merge(feed.spark, config, identity=second).already_committed
    assert feed.spark.read.format("delta").load(kept).count() == num_kept


def test_a_dry_run_counts_bad_rows_and_keeps_none(feed: Feed) -> None:
    path, kept = feed.file("a.json", BROKEN_JSON), feed.folder / "kept"
    config = feed.config(path, bad_rows="keep", bad_rows_path=str(kept))
    feed.spark.sql(f"CREATE TABLE delta.`{feed.target}` (id BIGINT, v STRING) USING delta")
    assert plan(feed.spark, config).num_bad_rows == 3
    assert not kept.exists()


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
@pytest.mark.parametrize("bad_rows", ["fail", "skip"])
def test_a_dry_run_of_good_rows_counts_them(feed: Feed, name: str, bad_rows: str) -> None:
    """Of rows that are only counted Spark would read nothing but the text of bad ones, which it refuses."""
    path = feed.file(name, "id,v\n1,a\n2,b\n" if name == "a.csv" else '{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    feed.spark.sql(f"CREATE TABLE delta.`{feed.target}` (id BIGINT, v STRING) USING delta")
    planned = plan(feed.spark, feed.config(path, bad_rows=bad_rows))
    assert (planned.num_inserted_rows, planned.num_bad_rows) == (2, 0)


@pytest.mark.parametrize(("most", "is_allowed"), [(3, True), (2, False), (0.6, True), (0.5, False), (0, False)])
def test_the_bound_is_a_count_or_a_fraction(feed: Feed, most: float, is_allowed: bool) -> None:
    config = feed.config(feed.file("a.json", BROKEN_JSON), bad_rows="skip", max_bad_rows=most)
    if is_allowed:
        assert merge(feed.spark, config).num_bad_rows == 3
    else:
        with pytest.raises(BadRowsError, match=f"more than max_bad_rows={most} allows"):
            merge(feed.spark, config)


@pytest.mark.parametrize("engine", ["delta_merge", "builtin"])
def test_short_and_long_csv_rows_fail_the_merge(feed: Feed, engine: str) -> None:
    path = feed.file("a.csv", UNEVEN_CSV)
    config = Upsert(keys=["id"]).to_config(
        target=feed.target, source={"path": path, "options": {"header": True}}, create_table=True, engine=engine
    )
    with pytest.raises(BadRowsError, match="2 of the source's 4 rows are bad"):
        merge(feed.spark, config)
    assert feed.rows("id") == []


def test_short_and_long_csv_rows_are_kept_as_they_stand(feed: Feed) -> None:
    path, kept = feed.file("a.csv", UNEVEN_CSV), str(feed.folder / "kept")
    options = {"header": True, "inferSchema": True}
    select = "SELECT id * 10 AS id, v FROM source"
    config = feed.config(path, options=options, select=select, bad_rows="keep", bad_rows_path=kept)
    assert merge(feed.spark, config).num_bad_rows == 2
    assert feed.rows() == [(10, "a"), (40, "e")]
    records = feed.spark.read.format("delta").load(kept).select("record").orderBy("record").collect()
    assert [record for (record,) in records] == ["2,short", "3,c,d,too long"]


def test_bad_rows_are_found_in_each_of_several_files(feed: Feed) -> None:
    first, second = feed.file("a.csv", UNEVEN_CSV), feed.file("b.csv", "id,v,w\n5,only\n6,g,h\n")
    config = InsertNew(keys=["id"]).to_config(
        target=feed.target,
        source={"paths": [first, second], "options": {"header": True}, "bad_rows": "skip"},
        create_table=True,
    )
    assert merge(feed.spark, config).num_bad_rows == 3
    assert feed.rows("id") == [("1",), ("4",), ("6",)]


@pytest.mark.parametrize("bad_rows", ["fail", "skip"])
def test_csv_files_whose_headers_differ_fail_the_merge(feed: Feed, bad_rows: str) -> None:
    paths = [feed.file("a.csv", "id,v\n1,a\n"), feed.file("b.csv", "v,id\nb,2\n")]

    def config(**options: Any) -> MergeConfig:
        source = {"paths": paths, "options": {"header": True, **options}, "bad_rows": bad_rows}
        return InsertNew(keys=["id"]).to_config(
            target=feed.target, source=source, create_table={"columns": "id STRING, v STRING"}
        )

    with pytest.raises(
        BadRowsError, match=r"headers of the source's CSV files differ, e\.g\. that of file:\S+/[ab]\.csv"
    ):
        merge(feed.spark, config())
    assert not Path(feed.target).exists() or feed.rows() == []
    merge(feed.spark, config(enforceSchema=True))
    assert len(feed.rows()) == 2


def test_tsv_files_are_separated_by_tabs(feed: Feed) -> None:
    merge(feed.spark, feed.config(feed.file("a.tsv", "id\tv\n1\ta,b\n"), options={"header": True}))
    assert feed.rows() == [("1", "a,b")]


def test_quotes_within_quotes_are_doubled_as_in_rfc_4180(feed: Feed) -> None:
    merge(feed.spark, feed.config(feed.file("a.csv", 'id,v\n1,"say ""hi"", she said"\n')))
    assert feed.rows() == [("1", 'say "hi", she said')]


def test_a_users_own_escape_stands(feed: Feed) -> None:
    options = {"header": True, "Escape": "\\"}
    merge(feed.spark, feed.config(feed.file("a.csv", 'id,v\n1,"say \\"hi\\""\n'), options=options))
    assert feed.rows() == [("1", 'say "hi"')]


def test_a_users_own_mode_stands(feed: Feed) -> None:
    config = feed.config(feed.file("a.csv", UNEVEN_CSV), options={"header": True, "mode": "PERMISSIVE"})
    assert merge(feed.spark, config).num_inserted_rows == 4


def test_a_line_that_is_being_written_is_not_merged(feed: Feed) -> None:
    path = feed.file("a.json", '{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    config = feed.config(path, bad_rows="skip")
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
    from airflow_delta_merge.engine.progress import Progress

    with source_relation(Gateway(feed.spark, Progress()), config, None) as (relation, _):
        with open(path, "a") as file:
            file.write('{"id": 3, "v')
        assert [row.id for row in feed.spark.sql(f"SELECT id FROM {relation} ORDER BY 1").collect()] == [1, 2]
    with pytest.raises(BadRowsError, match="1 of the source's 3 rows"):
        merge(feed.spark, feed.config(path))


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_an_empty_file_is_reported_as_empty(feed: Feed, name: str) -> None:
    config = feed.config(feed.file(name, ""))
    with pytest.raises(MergeExecutionError, match="no rows and no columns"):
        merge(feed.spark, config)
    skipping = MergeConfig.from_dict({**config.to_dict(), "guards": MergeGuards(on_empty_source="skip").to_dict()})
    with pytest.raises(EmptySourceError):
        merge(feed.spark, skipping)


def test_a_csv_with_a_header_only_has_no_rows(feed: Feed) -> None:
    assert merge(feed.spark, feed.config(feed.file("a.csv", "id,v\n"))).num_inserted_rows == 0


@pytest.mark.parametrize("bad_rows", ["fail", "skip"])
def test_a_gzip_that_is_cut_off_fails_the_merge(feed: Feed, bad_rows: str) -> None:
    lines = "".join(json.dumps({"id": i, "v": str(i * 7919 % 100_003)}) + "\n" for i in range(20_000))
    packed = gzip.compress(lines.encode())
    config = feed.config(feed.file("a.json.gz", packed[: len(packed) // 2]), bad_rows=bad_rows)
    with pytest.raises(MergeExecutionError, match=r"a\.json\.gz"):
        merge(feed.spark, config)


@pytest.mark.parametrize("has_rows", [False, True])
@pytest.mark.parametrize("engine", ["delta_merge", "builtin"])
def test_patterns_refuse_rows_without_a_key(feed: Feed, engine: str, has_rows: bool) -> None:
    feed.spark.sql(f"CREATE TABLE delta.`{feed.target}` (id INT, v STRING) USING delta")
    if has_rows:
        feed.spark.sql(f"INSERT INTO delta.`{feed.target}` VALUES (1, 'a')")
    before = feed.rows()
    source = "VALUES (1, 'b'), (NULL, 'c'), (NULL, 'd') AS s(id, v)"
    config = Upsert(keys=["id"]).to_config(target=feed.target, source=f"SELECT * FROM {source}", engine=engine)
    with pytest.raises(NullKeysError, match="Such a row matches nothing on id"):
        merge(feed.spark, config)
    assert feed.rows() == before
    if engine == "delta_merge":
        assert plan(feed.spark, config).num_inserted_rows == 3 - len(before)


def test_null_keys_are_counted(feed: Feed) -> None:
    feed.spark.sql(f"CREATE TABLE delta.`{feed.target}` (id INT, v STRING) USING delta")
    feed.spark.sql(f"INSERT INTO delta.`{feed.target}` VALUES (1, 'a')")
    source = "SELECT * FROM VALUES (1, 'b'), (NULL, 'c'), (NULL, 'd') AS s(id, v)"
    with pytest.raises(NullKeysError, match="2 of the source's 3 rows have a NULL key"):
        merge(feed.spark, Upsert(keys=["id"]).to_config(target=feed.target, source=source))
    result = merge(feed.spark, Upsert(keys=["id"], null_keys="allow").to_config(target=feed.target, source=source))
    assert (result.num_null_keys, result.num_inserted_rows) == (2, 2)
