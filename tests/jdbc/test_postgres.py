"""Merges from a real Postgres: whole tables, queries, several parts, refusals, and where the password goes."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.config.jdbc_access import JdbcAccess
from airflow_delta_merge.engine import merge, plan
from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.task_exceptions import DeltaMergeException, DeltaMergeFailException
from tests.airflow.canary import CANARY, Watch
from tests.airflow.conftest import SPARK
from tests.jdbc.postgres import PASSWORD, USER, Postgres, driver_jar
from tests.readable_ids import readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLAUSES = [when_matched_update_all(), when_not_matched_insert_all()]


@pytest.fixture(scope="session")
def orders(server: Postgres) -> Postgres:
    """100 orders of ten days; the login may read no other table."""
    server.run(
        "CREATE TABLE orders AS SELECT id, 'order ' || id AS v, date '2026-01-01' + (id % 10)::int AS day,"
        " (id / 3.0)::numeric(10, 2) AS amount FROM generate_series(1, 100) AS ids(id);"
        f" GRANT SELECT ON orders TO {USER}; CREATE TABLE empty (id INT, v TEXT); GRANT SELECT ON empty TO {USER}"
    )
    return server


def access(server: Postgres, **changes: Any) -> JdbcAccess:
    parts = {
        "user": USER,
        "password": PASSWORD,
        "driver": "org.postgresql.Driver",
        "package": "org.postgresql:postgresql",
    }
    return JdbcAccess(**{"url": f"jdbc:postgresql://127.0.0.1:{server.port}/shop", **parts, **changes})


class Shop:
    """Merges from the database into a new table, in a session that has its driver."""

    def __init__(self, spark: SparkSession, server: Postgres, folder: Path) -> None:
        self.spark, self.server, self.target = spark, server, str(folder / "target")
        spark.sql(f"ADD JAR '{driver_jar()}'")
        self.reached_by(access(server))

    def reached_by(self, access: JdbcAccess) -> None:
        self.spark.conf.set(JdbcAccess.property_of("shop"), access.to_json())

    def config(self, **source: Any) -> MergeConfig:
        given = {"format": "jdbc", "conn_id": "shop", **source}
        return MergeConfig(target=self.target, source=given, on=["id"], clauses=CLAUSES, create_table=True)

    def merge(self, **source: Any) -> int:
        return merge(self.spark, self.config(**source)).num_inserted_rows

    def count(self) -> int:
        return self.spark.read.format("delta").load(self.target).count()


@pytest.fixture
def shop(spark: SparkSession, orders: Postgres, tmp_path: Path) -> Shop:
    return Shop(spark, orders, tmp_path)


def test_a_whole_table_is_merged_and_read_once(shop: Shop) -> None:
    before = len(shop.server.log)
    assert shop.merge(table="public.orders") == 100
    read = [line for line in shop.server.log[before:].splitlines() if "FROM public.orders" in line]
    assert len([line for line in read if "WHERE 1=0" not in line]) == 1
    shop.server.run("UPDATE orders SET v = 'changed' WHERE id = 1")
    result = merge(shop.spark, shop.config(table="orders"))
    assert (result.num_updated_rows, result.num_inserted_rows) == (100, 0)
    assert shop.spark.read.format("delta").load(shop.target).where("v = 'changed'").count() == 1


def test_types_of_the_database_arrive(shop: Shop) -> None:
    shop.merge(table="orders")
    types = dict(shop.spark.read.format("delta").load(shop.target).dtypes)
    assert types == {"id": "int", "v": "string", "day": "date", "amount": "decimal(10,2)"}


def test_a_query_and_a_select_are_merged(shop: Shop) -> None:
    query = "SELECT id, v FROM orders WHERE day = date '2026-01-03' -- ten of them"
    assert shop.merge(query=query, select="SELECT id, upper(v) AS v FROM source") == 10
    assert shop.spark.read.format("delta").load(shop.target).where("v LIKE 'ORDER %'").count() == 10


@pytest.mark.parametrize(
    "source",
    [
        {"partition_column": "id", "lower_bound": 1, "upper_bound": 100},
        {"partition_column": "ID"},
        {"partition_column": "amount"},
        {"partition_column": "day"},
        {"partition_column": "day", "lower_bound": "2026-01-01", "upper_bound": "2026-01-10"},
    ],
    ids=readable,
)
def test_several_parts_are_queries_of_their_own(shop: Shop, source: dict[str, Any]) -> None:
    before = len(shop.server.log)
    assert shop.merge(query="SELECT * FROM orders", num_partitions=4, **source) == 100
    assert shop.count() == 100
    parts = re.findall(r'WHERE +"\w+" (?:>=|<) ', shop.server.log[before:])
    assert len(parts) == 4


@pytest.mark.parametrize("parts", [{}, {"partition_column": "id", "num_partitions": 3}], ids=readable)
def test_an_empty_table_has_no_rows(shop: Shop, parts: dict[str, Any]) -> None:
    assert shop.merge(table="empty", **parts) == 0


def test_a_dry_run_counts_what_the_database_has(shop: Shop) -> None:
    shop.merge(query="SELECT * FROM orders WHERE id <= 40")
    planned = plan(shop.spark, shop.config(table="orders"))
    assert (planned.num_source_rows, planned.num_updated_rows, planned.num_inserted_rows) == (100, 40, 60)


@pytest.mark.parametrize(
    ("changes", "source", "said"),
    [
        (
            {"password": "wrong-password"},
            {"table": "orders"},
            "'shop' refused the login: FATAL: password auth",
        ),
        ({"url": "jdbc:postgresql://127.0.0.1:1/shop"}, {"table": "orders"}, "'shop' can't be reached"),
        ({}, {"table": "none"}, "'shop' has no such table: ERROR: relation \"none\" does not exist"),
        ({}, {"query": "SELECT nonsense FROM orders"}, "'shop' reported an error: ERROR: column"),
        (
            {"url": "jdbc:postgresql://127.0.0.1:x/shop?password=s3cret"},
            {"table": "orders"},
            "'shop'",
        ),
    ],
    ids=readable,
)
def test_what_the_database_refuses_is_said_in_a_sentence(
    shop: Shop, changes: dict[str, Any], source: dict[str, Any], said: str
) -> None:
    shop.reached_by(access(shop.server, **changes))
    with pytest.raises((MergeExecutionError, MergeConfigError), match=said) as raised:
        shop.merge(**source)
    text = str(raised.value)
    print(text)
    assert "\n" not in text
    assert not [secret for secret in (PASSWORD, "wrong-password", "s3cret") if secret in text]


def test_a_missing_driver_is_named_with_its_jar(shop: Shop) -> None:
    shop.reached_by(access(shop.server, driver="com.mysql.cj.jdbc.Driver", package="com.mysql:mysql-connector-j"))
    with pytest.raises(MergeConfigError, match=r"needs the JDBC driver com\.mysql.*its jar \(com\.mysql:mysql-conn"):
        shop.merge(table="orders")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"partition_column": "none"}, "Choose one of id, v, day, amount"),
        ({"partition_column": "v"}, "has the type string. Choose a column of numbers, dates or timestamps"),
        ({"partition_column": "day", "lower_bound": 1, "upper_bound": 2}, r"don't have the type of day \(date\)"),
        ({"partition_column": "id", "lower_bound": "a", "upper_bound": "b"}, r"don't have the type of id \(int\)"),
    ],
    ids=readable,
)
def test_a_source_that_can_not_be_divided_is_refused(shop: Shop, parts: dict[str, Any], said: str) -> None:
    with pytest.raises(MergeConfigError, match=said):
        shop.merge(table="orders", num_partitions=2, **parts)


def test_a_connection_missing_in_spark_is_named_in_the_error(shop: Shop) -> None:
    with pytest.raises(MergeConfigError, match="Spark does not know the connection 'other'"):
        merge(shop.spark, shop.config(conn_id="other", table="orders"))


# Through Airflow and spark-submit.


@pytest.fixture
def connection(orders: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Airflow connection ``shop``, one with another password, and a folder for this test's temporary files."""
    parts = {"conn_type": "postgres", "host": "127.0.0.1", "port": orders.port, "schema": "shop", "login": USER}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({**parts, "password": PASSWORD}))
    monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps({**parts, "password": f"wrong {CANARY}"}))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def test_the_operator_merges_a_templated_query_and_shows_no_password(
    connection: None, tmp_path: Path, airflow_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields

    task = DeltaMergeOperator(
        task_id="merge",
        target=str(tmp_path / "target"),
        source={
            "format": "jdbc",
            "conn_id": "shop",
            "query": "SELECT * FROM orders WHERE day < date '{{ ds }}'",
            "partition_column": "id",
            "num_partitions": 2,
        },
        on=["id"],
        clauses=CLAUSES,
        create_table=True,
        exactly_once=False,
        asset_events="never",
        conf=SPARK,
        jars=driver_jar(),
        name="merge",
        verbose=True,
    )
    task.render_template_fields({"ds": "2026-01-03"})
    watch = Watch(tmp_path / "temporary")
    result = task.execute({})
    watch.stop()
    assert result["num_inserted_rows"] == 20
    assert {name for name, _ in watch.with_canary} == {"spark.properties"}
    assert watch.with_canary_on_command_line == set()
    log = "".join(capfd.readouterr())
    assert "from orders" in log.lower()
    commits = (tmp_path / "target" / "_delta_log").glob("*.json")
    kept = [path.read_text("utf-8", "replace") for path in [*commits, *airflow_home.rglob("*.log")]]
    shown = [log, json.dumps(result), json.dumps(_serialize_rendered_fields(task)), *kept]
    assert len(shown) > 4, "Spark has a log of its own"
    assert not [text for text in shown if CANARY in text]


@pytest.mark.slow
def test_each_refusal_reaches_airflow_as_a_sentence(connection: None, tmp_path: Path) -> None:
    shop = {"format": "jdbc", "conn_id": "shop"}
    sources = [
        {**shop, "query": "SELECT id, 1 / (id - 50) AS v FROM orders"},
        {**shop, "conn_id": "wrong", "table": "orders"},
        {**shop, "table": "none"},
    ]
    configs = [
        MergeConfig(target=str(tmp_path / f"t{n}"), source=each, on=["id"], clauses=CLAUSES, create_table=True)
        for n, each in enumerate(sources)
    ]
    with pytest.raises(DeltaMergeException) as raised:
        DeltaMergeHook(conf=SPARK, jars=driver_jar()).merge_all(configs)
    text = str(raised.value)
    print(text)
    assert "'shop' reported an error: ERROR: division by zero." in text
    assert "'wrong' refused the login: FATAL: password authentication failed for user" in text
    assert "'shop' has no such table" in text
    assert len(text.splitlines()) == 4
    assert CANARY not in text


def test_without_the_driver_the_merge_says_which_jar_to_add(connection: None, tmp_path: Path) -> None:
    source = {"format": "jdbc", "conn_id": "shop", "table": "orders"}
    config = MergeConfig(target=str(tmp_path / "target"), source=source, on=["id"], clauses=CLAUSES, create_table=True)
    with pytest.raises(DeltaMergeFailException, match=r"Add its jar \(org\.postgresql:postgresql at Maven Central\)"):
        DeltaMergeHook(conf=SPARK).merge(config)
