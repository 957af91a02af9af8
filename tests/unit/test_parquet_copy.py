"""Copies of Parquet files without some of their rows: the rest as it was, and statistics that hold."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_delta_merge.engine.data_files.arrow_statistics import GatheredStatistics, Leaf
from airflow_delta_merge.engine.data_files.delta_statistics import StatisticsPlan
from airflow_delta_merge.engine.data_files.parquet_copy import FileToCopy, copy_file, reason_not_to_copy

UTC_MOMENTS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC))
PAIRS = st.tuples(st.text(max_size=3), st.none() | st.integers(0, 9))
#: Of each type values that writers get wrong now and then; the name is Spark's, empty for one without bounds.
TYPES: dict[str, tuple[pa.DataType, str, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), "long", st.integers(-(2**63), 2**63 - 1)),
    "byte": (pa.int8(), "byte", st.integers(-128, 127)),
    "float": (pa.float32(), "float", st.floats(width=32)),
    "double": (pa.float64(), "double", st.floats()),
    "text": (pa.string(), "string", st.text(max_size=40)),
    "binary": (pa.binary(), "", st.binary(max_size=5)),
    "flag": (pa.bool_(), "", st.booleans()),
    "date": (pa.date32(), "date", st.dates()),
    "moment": (pa.timestamp("us", tz="UTC"), "timestamp", UTC_MOMENTS),
    "local": (pa.timestamp("us"), "timestamp_ntz", st.datetimes()),
    "small decimal": (pa.decimal128(9, 2), "decimal(9,2)", st.decimals(-(10**6), 10**6, places=2)),
    "decimal": (pa.decimal128(38, 18), "decimal(38,18)", st.decimals(-(10**15), 10**15, places=18)),
    "list": (pa.list_(pa.int32()), "", st.lists(st.none() | st.integers(0, 9), max_size=3)),
    "map": (pa.map_(pa.string(), pa.int64()), "", st.lists(PAIRS, max_size=2)),
    "odd ` ; name'\"é": (pa.int32(), "integer", st.integers(-5, 5)),
}  # fmt: skip
STRUCT = pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string())]))])
IN_STRUCT = st.fixed_dictionaries(
    {
        "x": st.none() | st.integers(-9, 9),
        "deep": st.none() | st.fixed_dictionaries({"y": st.none() | st.text(max_size=3)}),
    }
)
SCHEMA = pa.schema([*((name, type_) for name, (type_, _, _) in TYPES.items()), ("struct", STRUCT)])


def as_java_writes(number: float, type_: str) -> str:
    """Any text of the number: what Java's is, test_native_copies.py shows."""
    return str(pa.scalar(number, pa.float32() if type_ == "float" else pa.float64()).as_py())


ALL_KINDS = ("minValues", "maxValues", "nullCount")
PLAN = StatisticsPlan(
    (
        *(Leaf((name,), type_name) for name, (_, type_name, _) in TYPES.items()),
        Leaf(("struct", "x"), "long"),
        Leaf(("struct", "deep", "y"), "string"),
    ),
    ALL_KINDS,
    prefix_length=32,
    cut_above=str,
    as_java_writes=as_java_writes,
    tight_bounds=False,
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 12))
    drawn = {**{name: values for name, (_, _, values) in TYPES.items()}, "struct": IN_STRUCT}
    columns = {name: draw(st.lists(st.none() | each, min_size=count, max_size=count)) for name, each in drawn.items()}
    return pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}, SCHEMA)


def _copied(
    folder: Path, rows: pa.Table, taken: list[int], most_bytes: int = 2**20, **writing: Any
) -> tuple[pa.Table | None, pa.Table | None, str]:
    """The rows that stay and those that were taken, as they are read again, and the statistics."""
    file = FileToCopy(str(folder / "old"), str(folder / "new"), pa.array(taken, pa.int64()), str(folder / "taken"))
    for path in (file.copy, str(file.taken_rows)):
        Path(path).unlink(missing_ok=True)
    pq.write_table(rows, file.path, **{"store_schema": False, **writing})
    copy = copy_file(file, codec="snappy", leaves=PLAN.leaves, most_bytes=most_bytes)
    kept, gone = (pq.read_table(path) if Path(path).exists() else None for path in (file.copy, str(file.taken_rows)))
    assert copy.num_rows == (kept.num_rows if kept else 0)
    return kept, gone, PLAN.to_json(copy.num_rows, copy.statistics)


def _as_text(rows: pa.Table) -> list[str]:
    """Rows in which NaN is like NaN."""
    return [repr(row) for row in rows.to_pylist()]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=tables(),
    group=st.integers(1, 5),
    integers=st.booleans(),
    most_bytes=st.sampled_from([1, 500, 2**20]),
    drawn=st.data(),
)
def test_what_stays_stays_as_it_was(
    tmp_path: Path,
    rows: pa.Table,
    group: int,
    integers: bool,
    most_bytes: int,
    drawn: st.DataObject,
) -> None:
    taken = sorted(drawn.draw(st.sets(st.integers(0, rows.num_rows - 1))))
    kept, gone, statistics = _copied(
        tmp_path,
        rows,
        taken,
        most_bytes,
        row_group_size=group,
        store_decimal_as_integer=integers,
        use_dictionary=bool(group % 2),
    )
    before = pq.read_table(tmp_path / "old")
    stay = [number for number in range(rows.num_rows) if number not in taken]
    assert _as_text(before.take(pa.array(taken, pa.int64()))) == (_as_text(gone) if gone else [])
    assert _as_text(before.take(pa.array(stay, pa.int64()))) == (_as_text(kept) if kept else [])
    if kept:
        _assert_bounds_hold(kept, json.loads(statistics, parse_float=Decimal))


def _assert_bounds_hold(kept: pa.Table, stats: dict[str, Any]) -> None:
    assert stats["numRecords"] == kept.num_rows
    for name, (_, type_, _) in TYPES.items():
        values = [value for value in kept.column(name).to_pylist() if value is not None]
        assert stats["nullCount"][name] == kept.num_rows - len(values)
        if not type_ or not values:
            assert name not in stats["minValues"]
            continue
        low, high = stats["minValues"].get(name), stats["maxValues"].get(name)
        if type_.startswith("decimal") or type_ in ("long", "byte", "integer"):
            assert (low, high) == (min(values), max(values))
        elif type_ in ("float", "double"):
            numbers = [value for value in values if not math.isnan(value)]
            assert high == "NaN" if len(numbers) < len(values) else _as(type_, high) == max(numbers)
            assert low == "NaN" if not numbers else _as(type_, low) == min(numbers)
        elif type_ == "string":
            ordered = sorted(values, key=str.encode)
            assert low == ordered[0][:32]
            assert high.encode() >= ordered[-1].encode()
        elif type_ == "date":
            assert (low, high) == (min(values).isoformat(), max(values).isoformat())
        else:
            assert _moment(low) <= min(values) < _moment(low) + datetime.timedelta(milliseconds=1)
            assert _moment(high) <= max(values)


def _as(type_: str, number: Any) -> Any:
    """A number as one of the type: in Delta's log a float has no more digits than it needs."""
    return pa.scalar(float(number), pa.float32() if type_ == "float" else pa.float64()).as_py()


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(1 / 3)
def test_a_float_has_no_more_digits_than_it_needs(number: float) -> None:
    plan = StatisticsPlan((Leaf(("f",), "float"),), ALL_KINDS, 32, str, as_java_writes, tight_bounds=True)
    statistics = GatheredStatistics(plan.leaves)
    statistics.add(pa.table({"f": pa.array([number], pa.float32())}))
    stats = json.loads(plan.to_json(statistics.num_rows, statistics.of_leaves))
    assert pa.scalar(stats["minValues"]["f"], pa.float32()).as_py() == pa.scalar(number, pa.float32()).as_py()
    assert len(f"{stats['minValues']['f']!r}") <= len(repr(pa.scalar(number, pa.float32()).as_py()))
    assert stats["tightBounds"] is True


def test_texts_that_are_no_utf8_have_no_bounds(tmp_path: Path) -> None:
    latin = pa.Array.from_buffers(pa.string(), 2, pa.array([b"caf\xe9", b"a"]).buffers())
    plan = StatisticsPlan((Leaf(("t",), "string"),), ALL_KINDS, 32, str, as_java_writes, tight_bounds=False)
    statistics = GatheredStatistics(plan.leaves)
    statistics.add(pa.table({"t": latin}))
    assert json.loads(plan.to_json(statistics.num_rows, statistics.of_leaves)) == {
        "numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"t": 0}
    }  # fmt: skip


def test_moments_of_96_bits_become_those_of_64_of_utc(tmp_path: Path) -> None:
    rows = pa.table({"t": pa.array([0, 1_700_000_000_123_456, -4_000_000_000_000_000], pa.timestamp("us"))})
    plan = StatisticsPlan((Leaf(("t",), "timestamp"),), ALL_KINDS, 32, str, as_java_writes, tight_bounds=False)
    pq.write_table(rows, tmp_path / "old", use_deprecated_int96_timestamps=True, store_schema=False)
    file = FileToCopy(str(tmp_path / "old"), str(tmp_path / "new"), pa.array([0], pa.int64()))
    copy = copy_file(file, codec="zstd", leaves=plan.leaves, most_bytes=2**20, use_threads=True)
    kept = pq.read_table(tmp_path / "new")
    assert kept.schema.field("t").type == pa.timestamp("us", tz="UTC")
    assert kept.column("t").cast(pa.int64()).to_pylist() == [1_700_000_000_123_456, -4_000_000_000_000_000]
    assert json.loads(plan.to_json(copy.num_rows, copy.statistics))["minValues"] == {"t": "1843-03-31T16:53:20.000Z"}


def test_a_row_group_may_be_empty(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1, 2, 3], pa.int64())})
    with pq.ParquetWriter(tmp_path / "old", rows.schema, store_schema=False) as writer:
        for part in (rows[:0], rows, rows[:0]):
            writer.write_table(part)
    assert pq.read_metadata(tmp_path / "old").num_row_groups == 3
    file = FileToCopy(str(tmp_path / "old"), str(tmp_path / "new"), pa.array([1], pa.int64()))
    copy_file(file, codec="snappy", leaves=[Leaf(("a",), "long")], most_bytes=2**20)
    assert pq.read_table(tmp_path / "new").column("a").to_pylist() == [1, 3]


def _write_with_keys(path: Path, rows: pa.Table, keys: dict[str, str]) -> None:
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(keys)


def test_field_ids_and_keys_of_the_file_are_carried_over(tmp_path: Path) -> None:
    field = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"})
    _write_with_keys(tmp_path / "old", pa.table({"a": [1, 2, 3]}, pa.schema([field])), {"made by": "a test"})
    file = FileToCopy(str(tmp_path / "old"), str(tmp_path / "new"), pa.array([1], pa.int64()))
    copy_file(file, codec="uncompressed", leaves=[Leaf(("a",), "long")], most_bytes=2**20)
    schema = pq.read_schema(tmp_path / "new")
    assert schema.field("a").metadata == {b"PARQUET:field_id": b"7"}
    assert schema.metadata == {b"made by": b"a test"}
    assert pq.read_metadata(tmp_path / "new").row_group(0).column(0).compression == "UNCOMPRESSED"


@pytest.mark.parametrize(
    ("columns", "keys", "why"),
    [
        pytest.param(["a", "b"], {}, "", id="all columns"),
        pytest.param(["a", "b", "part"], {}, "", id="a partition's column besides"),
        pytest.param(["b", "a"], {}, "not those of the table", id="another order"),
        pytest.param(["a"], {}, "not those of the table", id="a column is missing"),
        pytest.param(["a", "b", "c"], {}, "not those of the table", id="a column that was dropped"),
        pytest.param(["a", "b"], {"org.apache.spark.legacyDateTime": ""}, "old calendar", id="old calendar"),
        pytest.param(["a", "b"], {"org.apache.spark.version": "2.4.8"}, "another calendar", id="Spark 2"),
        pytest.param(["a", "b"], {"org.apache.spark.version": "3.0.3"}, "another calendar", id="Spark 3.0"),
        pytest.param(["a", "b"], {"org.apache.spark.version": "3.1.0"}, "", id="Spark 3.1"),
    ],
)
def test_files_that_only_spark_can_copy(tmp_path: Path, columns: list[str], keys: dict[str, str], why: str) -> None:
    _write_with_keys(tmp_path / "file", pa.table({name: [1] for name in columns}), keys)
    reason = reason_not_to_copy(str(tmp_path / "file"), ("a", "b"), {"part"})
    assert (why in reason) if reason and why else reason is None and not why
