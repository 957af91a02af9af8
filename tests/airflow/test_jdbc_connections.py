"""Databases by Airflow's own connections: their URLs and drivers, what is refused, and where secrets go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, MergeStatement, to_json, when_not_matched_insert_all
from airflow_delta_merge.connections.jdbc import access_of, databases_of
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import JdbcConnectionError, MergeConfigError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.staging import staged
from airflow_delta_merge.lineage.naming import dataset_of_jdbc
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.canary import CANARY
from tests.readable_ids import readable

SOURCE: dict[str, Any] = {"format": "jdbc", "conn_id": "shop", "table": "public.orders"}
MERGE: dict[str, Any] = {"target": "/lake/t", "on": ["id"], "clauses": [when_not_matched_insert_all()]}


def define(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(parts))


@pytest.mark.parametrize(
    ("parts", "url", "driver"),
    [
        (
            {"conn_type": "postgres", "host": "db", "schema": "shop"},
            "jdbc:postgresql://db:5432/shop",
            "org.postgresql.Driver",
        ),
        (
            {"conn_type": "postgres", "host": "::1", "port": 6000, "schema": "a/b"},
            "jdbc:postgresql://[::1]:6000/a%2Fb",
            "org.postgresql.Driver",
        ),
        (
            {"conn_type": "mysql", "host": "db", "schema": "shop"},
            "jdbc:mysql://db:3306/shop",
            "com.mysql.cj.jdbc.Driver",
        ),
        (
            {"conn_type": "mssql", "host": "db", "schema": "shop"},
            "jdbc:sqlserver://db:1433;databaseName={shop}",
            "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        ),
        (
            {"conn_type": "oracle", "host": "db", "extra": {"service_name": "xe"}},
            "jdbc:oracle:thin:@//db:1521/xe",
            "oracle.jdbc.OracleDriver",
        ),
        (
            {"conn_type": "oracle", "host": "db", "port": 1, "extra": {"sid": "xe"}},
            "jdbc:oracle:thin:@db:1:xe",
            "oracle.jdbc.OracleDriver",
        ),
        (
            {"conn_type": "mssql", "host": "db", "schema": "a};encrypt=false;x={b"},
            "jdbc:sqlserver://db:1433;databaseName={a}};encrypt=false;x={b}",
            "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        ),
        (
            {"conn_type": "jdbc", "host": "jdbc:postgresql://db/shop?ssl=true"},
            "jdbc:postgresql://db/shop?ssl=true",
            "org.postgresql.Driver",
        ),
        (
            {
                "conn_type": "jdbc",
                "host": "jdbc:db2://db:50000/shop",
                "extra": {"driver_class": "com.ibm.db2.jcc.DB2Driver"},
            },
            "jdbc:db2://db:50000/shop",
            "com.ibm.db2.jcc.DB2Driver",
        ),
        ({"conn_type": "jdbc", "host": "jdbc:db2://db:50000/shop"}, "jdbc:db2://db:50000/shop", None),
    ],
    ids=readable,
)
def test_the_url_and_the_driver(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], url: str, driver: str | None
) -> None:
    define(monkeypatch, **parts)
    access = access_of("shop")
    assert (access.url, access.driver) == (url, driver)


def test_properties_of_the_driver_come_from_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"sslmode": "require", "cursor": "dictcursor", "jdbc_options": {"tcpKeepAlive": True}}
    define(monkeypatch, conn_type="postgres", host="db", extra=extra)
    assert access_of("shop").properties == {"sslmode": "require", "tcpKeepAlive": "true"}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (
            {"conn_type": "sqlite", "host": "/db"},
            "not for a database. Use type postgres, mysql, mssql, oracle, or jdbc",
        ),
        ({"conn_type": "jdbc", "host": "db"}, "has no JDBC URL"),
        ({"conn_type": "postgres"}, "has no host"),
        ({"conn_type": "postgres", "host": "db", "extra": {"jdbc_options": "x"}}, "not a JSON object"),
    ],
    ids=readable,
)
def test_what_gives_no_url_is_refused(monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], reason: str) -> None:
    define(monkeypatch, **parts)
    with pytest.raises(JdbcConnectionError, match=reason):
        access_of("shop")


def test_a_missing_connection_fails_before_spark_starts() -> None:
    with pytest.raises(
        DeltaMergeException, match=r"Airflow connection 'shop'\. Create it, or correct the source's conn_id"
    ):
        DeltaMergeHook().merge(MergeConfig(source=SOURCE, **MERGE))


def test_secrets_go_into_the_private_properties_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, conn_type="postgres", host="db", login="ada", password=CANARY)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    config, hook = MergeConfig(source=SOURCE, **MERGE), DeltaMergeHook()
    assert CANARY not in to_json(config)
    with staged() as staging:
        submit = hook.preparation.for_merge(staging, JobRequest(merges=config))
        holding = [
            path.name for path in staging.folder.iterdir() if path.is_file() and CANARY in path.read_text("latin-1")
        ]
        assert holding == ["spark.properties"]
        assert "spark.deltaMerge.jdbc.shop.secret=" in staging.properties.read_text()
        assert staging.properties.stat().st_mode & 0o777 == 0o600
        assert CANARY not in " ".join(submit.command(str(staging.application)))
        assert all(CANARY not in value for name, value in submit.environment().items() if "AIRFLOW_CONN" not in name)


def test_each_connection_is_read_once_for_several_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, conn_type="postgres", host="db")
    merges = [MergeConfig(source=SOURCE, **MERGE), MergeConfig(source="other", **MERGE)]
    assert list(databases_of([*merges, merges[0], MergeStatement(sql="MERGE INTO t")])) == ["shop"]


def operator(**source: Any) -> DeltaMergeOperator:
    return DeltaMergeOperator(task_id="merge", name="merge", source={**SOURCE, **source}, **MERGE)


def test_a_source_is_checked_when_the_dag_is_parsed() -> None:
    with pytest.raises(MergeConfigError, match="lower_bound is set alone"):
        operator(partition_column="id", num_partitions=2, lower_bound=1)
    with pytest.raises(MergeConfigError, match="must be a table's name"):
        operator(table="a b")


@pytest.mark.parametrize(
    "source",
    [
        {"table": "{{ params.table }}"},
        {"table": None, "query": "SELECT * FROM orders WHERE day = '{{ ds }}'"},
        {"partition_column": "{{ params.by }}", "num_partitions": "{{ params.parts }}", "fetch_size": "{{ params.n }}"},
        {"partition_column": "id", "num_partitions": 2, "lower_bound": "{{ ds }}", "upper_bound": 5},
        {"conn_id": "{{ params.shop }}"},
    ],
    ids=readable,
)
def test_templates_are_let_through(source: dict[str, Any]) -> None:
    given = {name: value for name, value in {**SOURCE, **source}.items() if value is not None}
    DeltaMergeOperator(task_id="merge", source=given, **MERGE)


def test_templates_are_rendered() -> None:
    merge = operator(table="orders_{{ ds_nodash }}", partition_column="id", num_partitions="{{ n }}")
    merge.render_template_fields({"ds_nodash": "20260102", "n": 3})
    source = merge._merge_config().source.jdbc
    assert source is not None
    assert (source.table, source.num_partitions) == ("orders_20260102", 3)


@pytest.mark.parametrize(
    ("url", "table", "dataset"),
    [
        ("jdbc:postgresql://db:6000/shop?ssl=true", "orders", ("postgres://db:6000", "shop.public.orders")),
        ("jdbc:postgresql://db/shop", '"My".orders', ("postgres://db:5432", "shop.My.orders")),
        ("jdbc:mysql://db/shop", "`orders`", ("mysql://db:3306", "shop.orders")),
        ("jdbc:sqlserver://db:1433;databaseName={shop}", "orders", ("mssql://db:1433", "shop.dbo.orders")),
        ("jdbc:oracle:thin:@//db:1521/xe", "ADA.ORDERS", ("oracle://db:1521", "xe.ADA.ORDERS")),
        ("jdbc:oracle:thin:@db:1521:xe", "ADA.ORDERS", ("oracle://db:1521", "xe.ADA.ORDERS")),
        ("jdbc:db2://db/shop", "orders", None),
    ],
    ids=readable,
)
def test_tables_of_databases_are_called_as_openlineage_does(
    url: str, table: str, dataset: tuple[str, str] | None
) -> None:
    assert dataset_of_jdbc(url, table) == dataset


@pytest.mark.parametrize(
    "source", [{"table": "public.orders"}, {"table": None, "query": "SELECT * FROM public.orders WHERE id > 1"}]
)
def test_lineage_names_the_tables_of_the_database(monkeypatch: pytest.MonkeyPatch, source: dict[str, Any]) -> None:
    from airflow_delta_merge.lineage.openlineage import lineage_of_merges

    define(monkeypatch, conn_type="postgres", host="db", schema="shop")
    given = {name: value for name, value in {**SOURCE, **source}.items() if value is not None}
    lineage = lineage_of_merges([MergeConfig(source=given, **MERGE)], {}, {})
    assert [(each.namespace, each.name) for each in lineage.inputs] == [("postgres://db:5432", "shop.public.orders")]


def test_the_log_says_what_is_read(tmp_path: Path) -> None:
    from airflow_delta_merge.operators.description import announce

    config = MergeConfig(source=SOURCE, **MERGE)
    assert "  from  public.orders, through the connection shop" in announce([config])
