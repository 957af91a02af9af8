"""What a JDBC source may say, when it is refused, and how it survives its road to Spark."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from airflow_delta_merge.config import JdbcSource, MergeConfig, MergeSource, when_not_matched_insert_all
from airflow_delta_merge.config.jdbc_access import JdbcAccess
from airflow_delta_merge.exceptions import MergeConfigError
from tests.readable_ids import readable

TABLE = {"format": "jdbc", "conn_id": "shop", "table": "public.orders"}
PARTS = {"partition_column": "id", "num_partitions": 4}
WHOLE = {
    **TABLE,
    **PARTS,
    "lower_bound": 0,
    "upper_bound": 100,
    "fetch_size": 10,
    "options": {"customSchema": "id INT", "querytimeout": "5"},
}


@pytest.mark.parametrize(
    "source",
    [
        TABLE,
        WHOLE,
        {**TABLE, "format": "JDBC"},
        {**TABLE, **PARTS},
        {"format": "jdbc", "conn_id": "shop", "query": "SELECT * FROM orders"},
        {**TABLE, "select": "SELECT id FROM source"},
    ],
    ids=readable,
)
def test_a_jdbc_source_survives_its_dict(source: dict[str, Any]) -> None:
    built = MergeSource.of(source)
    assert built.to_dict() == {**source, "format": "jdbc"}
    assert MergeSource.of(built.to_dict()) == built
    assert built.needs_view


def test_a_query_is_a_relation_whatever_ends_it() -> None:
    source = JdbcSource(conn_id="shop", query="SELECT 1 -- one;\n")
    assert source.relation == "(SELECT 1 -- one\n) source_rows"


@pytest.mark.parametrize(
    "table", ["orders", "public.orders", '"My Schema"."Orders"', "[dbo].[Order Lines]", "`a`.b", "SYS$x.T#1"]
)
def test_a_name_of_a_table_is_one_in_any_database(table: str) -> None:
    assert JdbcSource(conn_id="shop", table=table).relation == table


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"table": None}, "either a table or a query"),
        ({"query": "SELECT 1"}, "either a table or a query"),
        ({"table": "(SELECT 1) x"}, "Use query for a statement"),
        ({"table": "orders; DROP TABLE orders"}, "Use query for a statement"),
        ({"conn_id": ""}, "a JDBC source's conn_id"),
        ({"path": "/in"}, "has no path. Set conn_id"),
        ({"bad_rows": "skip"}, "unknown keys: bad_rows"),
        (
            {"options": {"URL": "jdbc:postgresql://elsewhere/"}},
            "URL can't be an option of a JDBC source: the connection sets it",
        ),
        ({"options": {"password": "x"}}, "password can't be an option of a JDBC source: the connection sets it"),
        ({"options": {"dbtable": "x"}}, "dbtable can't be an option of a JDBC source: use table or query"),
        ({"options": {"numPartitions": 2}}, "numPartitions can't be an option of a JDBC source: use num_partitions"),
        ({"options": {"serverName": "elsewhere"}}, "serverName can't be an option .* in jdbc_options, in the extra"),
        (
            {"options": {"socketFactory": "x.Y"}},
            "socketFactory can't be an option of a JDBC source: Spark's reader has",
        ),
        ({"num_partitions": 4}, "num_partitions can't be set without partition_column"),
        ({"lower_bound": 0, "upper_bound": 4}, "lower_bound and upper_bound can't be set without partition_column"),
        ({"partition_column": "id"}, "partition_column needs num_partitions, the number of parts"),
        ({**PARTS, "lower_bound": 0}, "lower_bound is set alone"),
        ({**PARTS, "upper_bound": 0}, "upper_bound is set alone"),
        ({**PARTS, "lower_bound": 2, "upper_bound": 1}, "is above upper_bound"),
        ({**PARTS, "lower_bound": "2026-01-02", "upper_bound": "2026-01-01"}, "is above upper_bound"),
        (
            {**PARTS, "lower_bound": 1.5, "upper_bound": 2},
            "lower_bound must be a whole number, a date or a timestamp, got 1.5",
        ),
        ({**PARTS, "num_partitions": 0}, "num_partitions must be a whole number ≥ 1, got 0"),
        ({**PARTS, "num_partitions": "some"}, "num_partitions must be a whole number ≥ 1, got 'some'"),
        ({"fetch_size": True}, "fetch_size must be a whole number ≥ 1, got True"),
    ],
    ids=readable,
)
def test_what_can_not_be_meant_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(MergeConfigError, match=reason):
        MergeSource.of({name: value for name, value in {**TABLE, **changes}.items() if value is not None})


def test_a_source_of_the_format_jdbc_needs_a_connection() -> None:
    with pytest.raises(MergeConfigError, match="lacks: conn_id"):
        MergeSource.of({"format": "jdbc", "table": "orders"})


def test_bounds_are_numbers_dates_or_timestamps_also_as_texts() -> None:
    def bounds(low: Any, high: Any) -> tuple[Any, Any]:
        source = JdbcSource.of(
            {"conn_id": "shop", "table": "t", **PARTS, "lower_bound": low, "upper_bound": high, "num_partitions": "3"}
        )
        assert source.num_partitions == 3
        return source.lower_bound, source.upper_bound

    assert bounds("0", "-0010".replace("-", "")) == (0, 10)
    assert bounds(date(2026, 1, 1), "2026-02-01") == ("2026-01-01", "2026-02-01")
    assert bounds(datetime(2026, 1, 1, 5), "2026-02-01 00:00:00") == ("2026-01-01 05:00:00", "2026-02-01 00:00:00")


def test_the_statement_names_the_connection_and_what_is_read() -> None:
    config = MergeConfig(target="a", source=TABLE, on=["id"], clauses=[when_not_matched_insert_all()])
    assert "USING jdbc.`shop` /* public.orders */ AS `source`" in config.to_sql()
    sly = {"format": "jdbc", "conn_id": "shop", "query": "SELECT 1 */ DROP"}
    assert MergeSource.of(sly).to_sql() == "jdbc.`shop` /* SELECT 1 * / DROP */"


def test_access_survives_its_property_and_hides_its_secrets() -> None:
    access = JdbcAccess(
        url="jdbc:x://h/?password=pa55", user="ada", password='pa"ss\\ö', properties={"sslpassword": "s", "a": "plain"}
    )
    assert JdbcAccess.from_json(access.to_json()) == access
    assert repr(access) == "JdbcAccess(driver=None, package=None, user='ada')"
    assert access.hidden_in('by jdbc:x://h/?password=pa55 and pa"ss\\ö, plain') == "by *** and ***, plain"
