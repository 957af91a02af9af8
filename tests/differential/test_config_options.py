"""What a config can say that a MERGE statement cannot: each option against the statement people write by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_merge.config import (
    MergeConfig,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_update,
    when_not_matched_insert_all,
)
from airflow_delta_merge.engine import merge
from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.exceptions import MergeConfigError, MergeExecutionError
from tests.differential.conftest import MadeOnce
from tests.differential.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.result import MergeResult

UPSERT = (when_matched_update_all(), when_not_matched_insert_all())
PEOPLE = "VALUES (1, 'ann', 30), (2, 'bob', 40), (3, NULL, 50), (CAST(NULL AS INT), 'nil', 60) AS v(id, name, age)"


@pytest.fixture
def people(made_once: MadeOnce, tmp_path: Path) -> Callable[[], str]:
    """Makes copies of a small table, each at a path of its own."""
    copies = iter(range(10))
    return lambda: str(made_once(tmp_path / f"copy {next(copies)}", made))


def made(spark: SparkSession, path: Path) -> None:
    spark.sql(f"SELECT * FROM {PEOPLE}").coalesce(1).write.format("delta").save(str(path))


def rows(spark: SparkSession, path: str) -> Counter[Any]:
    return Counter(tuple(row) for row in spark.read.format("delta").load(path).collect())


def both(spark: SparkSession, people: Callable[[], str], by_hand: str, **config: Any) -> MergeResult:
    """Merge by ``config`` and by a statement of the built-in, and compare the tables."""
    ours, builtin = people(), people()
    result = merge(spark, MergeConfig(target=ours, **config))
    counted = spark.sql(by_hand.replace("{t}", f"delta.`{builtin}`")).collect()[0]
    assert rows(spark, ours) == rows(spark, builtin)
    assert (result.num_updated_rows, result.num_deleted_rows, result.num_inserted_rows) == tuple(counted)[1:]
    return result


CHANGES = "VALUES (1, 'ann', 31, 1), (1, 'anna', 32, 3), (1, 'old', 0, 2), (9, 'new', 9, 1) AS s(id, name, age, seq)"


def test_the_latest_row_of_a_key_is_merged(spark: SparkSession, people: Callable[[], str]) -> None:
    both(
        spark,
        people,
        f"""MERGE INTO {{t}} t USING (SELECT id, name, age FROM {CHANGES} WHERE id = 9 OR seq = 3) s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
        source=f"SELECT * FROM {CHANGES}",
        on=["id"],
        clauses=UPSERT,
        source_dedupe="seq",
    )


@pytest.mark.parametrize("on_ties", ["fail", "pick"])
def test_spark_3_5_is_given_the_names_of_the_sources_columns(
    spark: SparkSession, people: Callable[[], str], monkeypatch: pytest.MonkeyPatch, on_ties: str
) -> None:
    """It has no ``SELECT * EXCEPT``; ``make test-versions`` runs it itself."""
    monkeypatch.setattr(by_version, "knows_star_except", lambda _: False)
    config = MergeConfig(
        target=people(),
        source="SELECT id, name AS `na``me`, age FROM VALUES (1, 'a', 1), (1, 'b', 2) AS s(id, name, age)",
        on=["id"],
        clauses=[when_matched_update(set={"name": "source.`na``me`"})],
        source_dedupe={"latest_by": "age", "on_ties": on_ties},
    )
    assert merge(spark, config).num_updated_rows == 1
    assert (1, "b") in [row[:2] for row in rows(spark, str(config.target.path))]
    assert "EXCEPT" in config.to_sql()
    assert "EXCEPT" not in config.to_sql(source_columns=["id", "na`me", "age"])


def test_rows_with_a_null_key_are_not_duplicates(spark: SparkSession, people: Callable[[], str]) -> None:
    twice = "SELECT CAST(NULL AS INT) AS id, 'x' AS name, age FROM VALUES (1), (1), (2) AS s(age)"
    both(
        spark,
        people,
        f"MERGE INTO {{t}} t USING ({twice}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
        source=twice,
        on=["id"],
        clauses=[when_not_matched_insert_all()],
        source_dedupe={"latest_by": ["age"], "on_ties": "fail"},
    )


def test_with_null_safe_keys_null_is_a_key(spark: SparkSession, people: Callable[[], str]) -> None:
    nulls = "SELECT CAST(NULL AS INT) AS id, name, age FROM VALUES ('x', 1), ('y', 2) AS s(name, age)"
    result = both(
        spark,
        people,
        f"""MERGE INTO {{t}} t USING (SELECT * FROM ({nulls}) WHERE age = 2) s ON t.id <=> s.id
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
        source=nulls,
        on=["id"],
        null_safe=True,
        clauses=UPSERT,
        source_dedupe="age",
    )
    assert result.num_updated_rows == 1


def test_a_tie_fails_and_changes_nothing(spark: SparkSession, people: Callable[[], str]) -> None:
    path = people()
    before = rows(spark, path)
    tie = "SELECT * FROM VALUES (1, 'a', 1), (1, 'b', 1) AS s(id, name, age)"
    config = MergeConfig(target=path, source=tie, on=["id"], clauses=UPSERT, source_dedupe="age")
    with pytest.raises(MergeExecutionError, match=r"several source rows with the same id are the latest by age"):
        merge(spark, config)
    assert rows(spark, path) == before


def test_a_tie_may_be_picked(spark: SparkSession, people: Callable[[], str]) -> None:
    path = people()
    tie = "SELECT * FROM VALUES (1, 'a', 1), (1, 'b', 1) AS s(id, name, age)"
    options = {"latest_by": "age", "on_ties": "pick"}
    result = merge(spark, MergeConfig(target=path, source=tie, on=["id"], clauses=UPSERT, source_dedupe=options))
    assert result.num_updated_rows == 1
    assert len([row for row in rows(spark, path) if row[0] == 1 and row[1] in ("a", "b")]) == 1


def test_only_rows_that_change_are_updated(spark: SparkSession, people: Callable[[], str]) -> None:
    source = "VALUES (1, 'ann', 30), (2, 'bob', 41), (3, CAST(NULL AS STRING), 50), (9, 'new', 9) AS s(id, name, age)"
    result = both(
        spark,
        people,
        f"""MERGE INTO {{t}} t USING (SELECT * FROM {source}) s ON t.id = s.id
            WHEN MATCHED AND NOT (t.name <=> s.name AND t.age <=> s.age) THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *""",
        source=f"SELECT * FROM {source}",
        on=["id"],
        clauses=UPSERT,
        update_only_changed=True,
    )
    assert result.num_updated_rows == 1


def test_nothing_changed_makes_no_commit(spark: SparkSession, people: Callable[[], str]) -> None:
    same = "SELECT * FROM VALUES (1, 'ann', 30), (3, CAST(NULL AS STRING), 50) AS s(id, name, age)"
    clauses = [*UPSERT, when_not_matched_by_source_update(set={"age": "target.age"})]
    result = merge(
        spark, MergeConfig(target=people(), source=same, on=["id"], clauses=clauses, update_only_changed=True)
    )
    assert (result.version, result.num_touched_files, result.num_affected_rows) == (None, 0, 0)


def test_texts_that_are_equal_only_by_their_collation_differ(spark: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 'collated'}`"
    with session_settings(spark, {"spark.databricks.delta.schema.typeCheck.enabled": "false"}):
        spark.sql(f"CREATE TABLE {table} (id INT, name STRING COLLATE UTF8_LCASE) USING delta")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'ann'), (2, 'bob'), (3, NULL)")
        source = "SELECT * FROM VALUES (1, 'ANN'), (2, 'bob'), (3, NULL) AS s(id, name)"
        config = MergeConfig(
            target=str(tmp_path / "collated"), source=source, on=["id"], clauses=UPSERT, update_only_changed=True
        )
        assert merge(spark, config).num_updated_rows == 1
    assert sorted(map(tuple, spark.table(table).collect())) == [(1, "ANN"), (2, "bob"), (3, None)]


def test_structs_differ_by_their_types_not_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 'goods'}`"
    spark.sql(f"CREATE TABLE {table} (id INT, s STRUCT<variant: INT, variants: ARRAY<INT>>) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1, struct(1, array(1))), (2, struct(2, array())), (3, NULL)")
    source = f"SELECT id, IF(id = 2, named_struct('variant', 3, 'variants', s.variants), s) AS s FROM {table}"
    config = MergeConfig(
        target=str(tmp_path / "goods"), source=source, on=["id"], clauses=UPSERT, update_only_changed=True
    )
    assert merge(spark, config).num_updated_rows == 1


def test_an_unchanged_row_does_not_fall_to_the_next_clause(spark: SparkSession, people: Callable[[], str]) -> None:
    path = people()
    clauses = [when_matched_update(set={"age": "source.age"}, condition="target.id = 1"), when_matched_delete()]
    source = "SELECT * FROM VALUES (1, 30), (2, 40) AS s(id, age)"
    result = merge(spark, MergeConfig(target=path, source=source, on=["id"], clauses=clauses, update_only_changed=True))
    assert (result.num_updated_rows, result.num_deleted_rows) == (0, 1)
    assert {row[0] for row in rows(spark, path)} == {1, 3, None}


def test_stars_leave_columns_out(spark: SparkSession, people: Callable[[], str]) -> None:
    source = "VALUES (1, 'ann?', 99), (9, 'new', 9) AS s(id, name, age)"
    both(
        spark,
        people,
        f"""MERGE INTO {{t}} t USING (SELECT * FROM {source}) s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET id = s.id, age = s.age WHEN NOT MATCHED THEN INSERT (id, name)
            VALUES (s.id, s.name)""",
        source=f"SELECT * FROM {source}",
        on=["id"],
        clauses=[
            when_matched_update_all(except_columns=["NAME"]),
            when_not_matched_insert_all(except_columns=["age"]),
        ],
    )


def test_a_column_to_leave_out_must_be_there(spark: SparkSession, people: Callable[[], str]) -> None:
    clauses = [when_matched_update_all(except_columns=["nmae"])]
    config = MergeConfig(target=people(), source="SELECT 1 AS id", on=["id"], clauses=clauses)
    with pytest.raises(MergeConfigError, match="nmae"):
        merge(spark, config)
