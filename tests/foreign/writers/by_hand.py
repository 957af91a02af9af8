"""Tables as other writers lay them out, put together by hand: files by pyarrow, logs line by line.

usage: python by_hand.py FOLDER TABLE ...: makes FOLDER/TABLE of each; tables are the functions below.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.foreign.rows import FILES, TYPES, file_of_columns
from tests.foreign.writers.arrow import arrow_file
from tests.foreign.writers.logs import TIME, commit, created

Statistics = dict[str, Any]
WithoutNtz = [name for name in TYPES if name != "at_ntz"]


# --- statistics -------------------------------------------------------------------------------------------------------


def _comparable(value: Any) -> bool:
    return value is not None and value == value


def statistics(held: Mapping[str, Sequence[Any]], bound: Callable[[Any, bool], Any]) -> Statistics:
    """Bounds of each column, as ``bound`` writes a value; it is asked whether the value is the upper one."""
    lower, upper = {}, {}
    for name, values in held.items():
        known = [value for value in values if _comparable(value)]
        if known and not isinstance(known[0], bytes):
            lower[name], upper[name] = bound(min(known), False), bound(max(known), True)
    nulls = {name: sum(value is None for value in values) for name, values in held.items()}
    rows = len(next(iter(held.values())))
    return {"numRecords": rows, "minValues": lower, "maxValues": upper, "nullCount": nulls}


def _iso(value: dt.datetime, timespec: str) -> str:
    return value.replace(tzinfo=None).isoformat("T", timespec) + ("Z" if value.tzinfo else "")


def exact(value: Any, upper: bool) -> Any:
    """Each value in full, decimals as texts."""
    if isinstance(value, dt.datetime):
        return _iso(value, "microseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else value


def like_trino(value: Any, upper: bool) -> Any:
    """Trino: decimals as texts, timestamps cut to milliseconds, which is all that its own files have; zero for -0.0."""
    if isinstance(value, dt.datetime):
        return _iso(value, "milliseconds")
    if isinstance(value, float) and value == 0:
        return 0.0
    return exact(value, upper)


def like_databricks(value: Any, upper: bool) -> Any:
    """Databricks: decimals as numbers, timestamps cut to milliseconds, texts to 32 characters with a tie-breaker."""
    if isinstance(value, dt.datetime):
        return _iso(value, "milliseconds")
    if isinstance(value, str) and len(value) > 32:
        return value[:32] + ("\U0010ffff" if upper else "")
    return float(value) if isinstance(value, Decimal) and value.adjusted() < 15 else exact(value, upper)


def as_doubles(value: Any, upper: bool) -> Any:
    return float(value) if isinstance(value, Decimal) else exact(value, upper)


def to_minutes(value: Any, upper: bool) -> Any:
    """Delta 3.2 in Asia/Kolkata, +05:53:28 until 1906: without the seconds of the offset it is another instant."""
    if not isinstance(value, dt.datetime) or not 1800 < value.year < 1906:
        return exact(value, upper)
    local = value.replace(tzinfo=None) + dt.timedelta(hours=5, minutes=53, seconds=28)
    return local.isoformat("T", "milliseconds") + "+05:53"


# --- files ------------------------------------------------------------------------------------------------------------


def add(path: Path, name: str, table: pa.Table, **fields: Any) -> dict[str, Any]:
    """Write a file and tell what the log says of it; ``fields`` are those that differ."""
    file = path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file, **fields.pop("parquet", {}))
    told = {"path": quote(name), "partitionValues": {}, "size": file.stat().st_size, "modificationTime": TIME}
    return {"add": {**told, "dataChange": True, **fields}}


def write(
    path: Path,
    names: Sequence[str] = tuple(TYPES),
    *,
    bound: Callable[[Any, bool], Any] | None = exact,
    name_of: Callable[[int], str] = "part-{:05}.parquet".format,
    change: Callable[[dict[str, Any], int], None] = lambda action, number: None,
    info: Mapping[str, Any] | None = None,
    parquet: Mapping[str, Any] | None = None,
    rename: Mapping[str, str] | None = None,
) -> None:
    """A commit a file.

    :param bound: how bounds are written; None for no statistics.
    :param name_of: the files' names.
    :param change: changes an add action, given the file's number.
    :param info: the commits' ``commitInfo``; None for none.
    :param parquet: options of pyarrow's writer.
    :param rename: columns with other names.
    """
    told = [] if info is None else [{"commitInfo": {"timestamp": TIME, **info}}]
    commit(path, 0, [*told, *created(names, rename=rename)])
    for number in range(FILES):
        table = arrow_file(number, [*names]).rename_columns([(rename or {}).get(n, n) for n in (*names, "note")])
        action = add(path, name_of(number), table, parquet=dict(parquet or {}))
        if bound is not None:
            held = {(rename or {}).get(n, n): values for n, values in file_of_columns(number, [*names]).items()}
            action["add"]["stats"] = json.dumps(statistics(held, bound), ensure_ascii=False)
        change(action["add"], number)
        commit(path, number + 1, [*told, action])


# --- tables -----------------------------------------------------------------------------------------------------------


def trino(path: Path) -> None:
    write(path, WithoutNtz, bound=like_trino, info={"operation": "WRITE", "engineInfo": "Trino 474", "userId": "u"})


def databricks(path: Path) -> None:
    def change(action: dict[str, Any], number: int) -> None:
        times = {name: str(TIME * 1000 + number) for name in ("INSERTION_TIME", "MIN_INSERTION_TIME")}
        action["tags"] = {**times, "OPTIMIZE_TARGET_SIZE": "268435456"}
        action["stats"] = action["stats"][:-1] + ',"tightBounds":true}'

    info = {"operation": "WRITE", "engineInfo": "Databricks-Runtime/15.4.x-scala2.12", "tags": {"noRowsCopied": "true"}}
    write(path, bound=like_databricks, change=change, info=info, parquet={"use_deprecated_int96_timestamps": True})


def fabric(path: Path) -> None:
    def change(action: dict[str, Any], number: int) -> None:
        action["tags"] = {"VORDER": "true"}

    write(path, WithoutNtz, bound=None, change=change, info={"operation": "WRITE", "engineInfo": "Microsoft.Fabric"})


def flink(path: Path) -> None:
    """Delta's connector for Flink: no statistics, and every field that a file may have is null."""

    def change(action: dict[str, Any], number: int) -> None:
        action.update(stats=None, tags=None)

    info = {
        "operation": "STREAMING UPDATE",
        "engineInfo": "flink-engine/1.16 flink-delta-connector/3.2",
        "userId": None,
    }
    write(path, WithoutNtz, bound=None, change=change, info=info, parquet={"use_deprecated_int96_timestamps": True})


def delta_go(path: Path) -> None:
    """rivian/delta-go: null for maps of bounds that it has not."""
    text = '{"numRecords":%d,"tightBounds":false,"minValues":null,"maxValues":null,"nullCount":null}'

    def change(action: dict[str, Any], number: int) -> None:
        action.update(stats=text % (3 if number == 3 else 2), tags=None, deletionVector=None)

    write(path, bound=None, change=change, info={"operation": "delta-go.Write", "engineInfo": "delta-go.0.1"})


def decimals_as_doubles(path: Path) -> None:
    write(path, bound=as_doubles)


def offset_cut_to_minutes(path: Path) -> None:
    write(path, WithoutNtz, bound=to_minutes)


def no_statistics(path: Path) -> None:
    write(path, bound=None)


def int96(path: Path) -> None:
    write(path, WithoutNtz, parquet={"use_deprecated_int96_timestamps": True})


def registered(path: Path) -> None:
    """Files by pyarrow that a script put into a log: no statistics, absolute paths, times of change zero."""

    def change(action: dict[str, Any], number: int) -> None:
        action.update(path="file://{table}/" + action["path"], modificationTime=0)

    write(path, bound=None, name_of="data/{}.parquet".format, change=change)


def odd_paths(path: Path) -> None:
    """Names of files with all that must be escaped."""
    names = ("a b/ü.parquet", "100%.parquet", "a+b&c=d.parquet", "%41.parquet", "#x?.parquet", "😀,;'.parquet")
    write(path, ["id", "big", "text"], name_of=names.__getitem__)


def odd_names(path: Path) -> None:
    """Columns with names that SQL must quote, and files where they are as they are."""
    rename = {"id": "x.y", "big": "select", "text": "ü", "dec38": "a`b", "real": "A-1", "at": "_metadata"}
    write(path, [*rename], rename=rename)


def names_in_other_case(path: Path) -> None:
    """The files' columns are in capitals; Spark finds them all the same. Bounds are named as the log's columns."""
    names = ["id", "big", "text", "dec20"]
    commit(path, 0, created(names))
    for number in range(FILES):
        table = arrow_file(number, names)
        action = add(path, f"{number}.parquet", table.rename_columns([n.upper() for n in table.column_names]))
        action["add"]["stats"] = json.dumps(statistics(file_of_columns(number, names), exact))
        commit(path, number + 1, [action])


def other_order(path: Path) -> None:
    """Files with columns in another order, with one more, and without those that are all null."""
    names = ["id", "big", "text", "day", "dec8"]
    commit(path, 0, created(names))
    for number in range(FILES):
        table = arrow_file(number, names).append_column("extra", pa.array([1] * (3 if number == 3 else 2)))
        table = table.select([*reversed(table.column_names)])
        action = add(path, f"{number}.parquet", table)
        action["add"]["stats"] = json.dumps({"extra": 1, **statistics(file_of_columns(number, names), exact)})
        commit(path, number + 1, [action])


def null_actions(path: Path) -> None:
    """Every line names all kinds of actions, null but one; blank lines and unknown actions between."""
    write(path, ["id", "big", "text", "at", "dec38"])
    kinds = ("txn", "add", "remove", "metaData", "protocol", "commitInfo", "cdc", "domainMetadata")
    for file in (path / "_delta_log").glob("*.json"):
        lines = [{**dict.fromkeys(kinds), **json.loads(line)} for line in file.read_text("utf-8").splitlines()]
        text = "\n\n".join(json.dumps(line) for line in [{"somethingNew": {"a": 1}}, *lines])
        file.write_text(text, "utf-8")


def added_twice(path: Path) -> None:
    """Files added again, with other statistics, as who computes them later does; one removed and back."""
    write(path, ["id", "big", "text", "at", "dec38"], bound=None)
    log = path / "_delta_log"
    again = []
    for number in range(FILES):
        action = json.loads((log / f"{number + 1:020}.json").read_text("utf-8").splitlines()[-1])
        told = json.dumps(statistics(file_of_columns(number, ["id", "big", "text", "at", "dec38"]), exact))
        action["add"].update(stats=told, dataChange=False)
        again.append(action)
    commit(path, FILES + 1, again[:4])
    remove = {"path": again[0]["add"]["path"], "deletionTimestamp": TIME, "dataChange": True}
    commit(path, FILES + 2, [{"remove": remove}])
    commit(path, FILES + 3, [again[0]])


def _partitioned(path: Path, by: str, texts: Mapping[int, Sequence[str | None]], folder: bool = True) -> None:
    """A file for each row, with the partition value that ``texts`` has for a place."""
    names = ["id", "big"]
    commit(path, 0, created([*names, by], by=[by]))
    for version, (number, values) in enumerate(texts.items(), start=1):
        actions = []
        table = arrow_file(number, names)
        for row, text in enumerate(values):
            name = f"{by}={quote(text or '', safe='')}/{number}-{row}.parquet" if folder else f"{number}-{row}.parquet"
            held = {n: v[row : row + 1] for n, v in file_of_columns(number, names).items()}
            told = json.dumps(statistics(held, exact))
            actions.append(add(path, name, table.slice(row, 1), partitionValues={by: text}, stats=told))
        commit(path, version, actions)


def partitions_of_text(path: Path) -> None:
    """NULL as null, "" and Hive's name for it; texts with blanks and escapes."""
    _partitioned(
        path, "text", {0: ["", " a"], 1: ["B", "a"], 3: [None, "", "__HIVE_DEFAULT_PARTITION__"], 4: ["a%20", "ü/="]}
    )


def partitions_of_timestamps(path: Path) -> None:
    """Timestamps in the forms that writers have for them."""
    _partitioned(
        path,
        "at",
        {
            1: ["1850-01-01 01:01:01.000001", "1850-01-01T01:01:30.999999Z"],
            2: ["1969-12-31 23:59:59.999999", "1970-01-01T00:00:00.000000Z"],
            3: ["2024-03-31 02:30:00.123456", "2024-03-31T04:30:00.123457+02:00", None],
        },
    )


def partitions_of_decimals(path: Path) -> None:
    """Decimals with fewer and more digits than the column, with signs and exponents."""
    _partitioned(
        path, "dec8", {1: ["-0.010", "0"], 2: [".01", "+0.05"], 3: ["1E-1", "1.1", None], 4: ["0123.45", "12345.670"]}
    )


def partitions_of_doubles(path: Path) -> None:
    _partitioned(
        path, "real", {0: ["-Infinity", "-1.50"], 1: ["-0", "1E-300"], 2: ["0.1", "0.30"], 5: ["Infinity", "NaN"]}
    )


def partitions_of_booleans(path: Path) -> None:
    _partitioned(path, "flag", {0: ["FALSE", "false"], 3: ["True", "true", None]})


def partitions_of_days(path: Path) -> None:
    _partitioned(
        path, "day", {1: ["1582-10-15", "1850-1-1"], 3: ["1969-12-31", "1970-01-01 00:00:00", ""]}, folder=False
    )


def partition_in_file(path: Path) -> None:
    """Files that have the partition column, too, with other values; the log's are those that count."""
    commit(path, 0, created(["id", "big", "flag"], by=["flag"]))
    for number in range(FILES):
        table = arrow_file(number, ["id", "big", "flag"])
        wrong = table.set_column(2, "flag", pc.invert(table["flag"]))
        told = json.dumps(statistics(file_of_columns(number, ["id", "big"]), exact))
        value = "false" if number < 3 else "true"
        commit(path, number + 1, [add(path, f"{number}.parquet", wrong, partitionValues={"flag": value}, stats=told)])


def row_groups(path: Path) -> None:
    """Files without Parquet's own statistics, a row group a row, dictionaries off."""
    write(
        path, parquet={"write_statistics": False, "row_group_size": 1, "use_dictionary": False, "compression": "zstd"}
    )


def page_indexes(path: Path) -> None:
    """Version 2 of Parquet's pages, with indexes of them, decimals as integers."""
    options = {"data_page_version": "2.0", "write_page_index": True, "store_decimal_as_integer": True}
    write(path, bound=None, parquet=options)


def latin1(path: Path) -> None:
    """Texts whose bytes are no UTF-8, as Hive and Impala take them from feeds in Latin-1."""
    names = ["id", "raw"]
    commit(path, 0, created(["id", "raw"]))
    for number in range(FILES):
        table = arrow_file(number, names)
        action = add(path, f"{number}.parquet", table)
        action["add"]["stats"] = json.dumps(statistics(file_of_columns(number, ["id"]), exact))
        commit(path, number + 1, [action])
    log = path / "_delta_log" / f"{0:020}.json"
    log.write_text(
        log.read_text("utf-8").replace('\\"raw\\", \\"type\\": \\"binary\\"', '\\"raw\\", \\"type\\": \\"string\\"')
    )


TABLES: dict[str, Callable[[Path], None]] = {
    table.__name__: table
    for table in (
        *(trino, databricks, fabric, flink, delta_go, decimals_as_doubles, offset_cut_to_minutes, no_statistics),
        *(int96, registered, odd_paths, odd_names, names_in_other_case, other_order, null_actions, added_twice),
        *(partitions_of_text, partitions_of_timestamps, partitions_of_decimals, partitions_of_doubles),
        *(partitions_of_booleans, partitions_of_days, partition_in_file, row_groups, page_indexes, latin1),
    )
}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        TABLES[name](Path(sys.argv[1]) / name)
