"""A merge config is checked when it is built, survives JSON, and says what is wrong in words."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_delta_merge.config import (
    ClauseAction,
    ClauseKind,
    MergeClause,
    MergeConfig,
    MergeSource,
    MergeStatement,
    MergeTarget,
    from_json,
    to_json,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_by_source_update,
    when_not_matched_insert,
    when_not_matched_insert_all,
)
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.patterns import ApplyChanges, Scd2, SoftDelete, Upsert
from tests.readable_ids import readable
from tests.unit.merge_configs import CONFIGS

UPSERT = (when_matched_update_all(), when_not_matched_insert_all())


def config(**changes: Any) -> MergeConfig:
    return MergeConfig(**{"target": "t", "source": "SELECT 1 AS id", "on": ["id"], "clauses": UPSERT, **changes})


def expected(**expectations: Any) -> MergeConfig:
    return config(guards={"expect_source": expectations})


# --- there and back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "target"),
    [
        ("MERGE INTO t USING s", MergeTarget(table="t")),
        (" -- why\nmerge  into  a . `b.c` . `d``e` as t USING s ;\n", MergeTarget(table="a.`b.c`.`d``e`")),
        (
            "/* MERGE INTO x */ WITH s AS (SELECT 'it\\'s MERGE INTO x', \"MERGE INTO y\") MERGE INTO `a--b` USING s",
            MergeTarget(table="`a--b`"),
        ),
        ("/* MERGE INTO x */ MERGE WITH SCHEMA EVOLUTION INTO s.t(x)", MergeTarget(table="s.t")),
        ("WITH s AS (SELECT 1) MERGE INTO delta.`/lake/a b.c;ü` USING s", MergeTarget(path="/lake/a b.c;ü")),
    ],
    ids=readable,
)
def test_a_statement_tells_its_target_and_survives_json(sql: str, target: MergeTarget) -> None:
    statement = MergeStatement(sql=sql)
    assert statement.target == target
    assert from_json(to_json(statement)) == statement
    assert not statement.sql.endswith((";", "\n"))


@given(CONFIGS)
def test_a_config_survives_json(merge: MergeConfig) -> None:
    assert from_json(to_json(merge)) == merge


@given(CONFIGS)
def test_a_config_survives_a_dict_of_json_types(merge: MergeConfig) -> None:
    data = json.loads(json.dumps(merge.to_dict()))
    assert MergeConfig.from_dict(data) == merge
    assert MergeConfig.from_dict(data).to_sql() == merge.to_sql()


def test_defaults_may_be_left_out_of_the_dict() -> None:
    data = {"target": "t", "source": "SELECT 1 AS id", "on": ["id"], "clauses": [c.to_dict() for c in UPSERT]}
    assert MergeConfig.from_dict(data) == config()


def test_values_may_be_a_dict() -> None:
    data = {"kind": "matched", "action": "update", "values": {"a": "s.a", "b": "1"}}
    assert MergeClause.from_dict(data) == when_matched_update(set={"a": "s.a", "b": "1"})


def test_configs_are_values() -> None:
    assert config() == config()
    assert hash(config()) == hash(config())
    with pytest.raises(AttributeError):
        config().on = ("x",)  # type: ignore[misc]


# --- the statement --------------------------------------------------------------------------------------------------


def test_the_statement_reads_as_people_write_it() -> None:
    merge = config(
        target="shop.orders",
        source="staging.order lines",
        on=["order id", "line"],
        clauses=[when_matched_update(set={"amount": "source.amount"}, condition="source.amount > 0"), *UPSERT],
        with_schema_evolution=True,
    )
    assert "\n".join(line.strip() for line in merge.to_sql().splitlines()) == textwrap.dedent("""\
        MERGE WITH SCHEMA EVOLUTION INTO `shop`.`orders` AS `target`
        USING `staging`.`order lines` AS `source`
        ON (
        `target`.`order id` = `source`.`order id` AND `target`.`line` = `source`.`line`
        )
        WHEN MATCHED AND (
        source.amount > 0
        ) THEN UPDATE SET
        `amount` = source.amount

        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *""")


def test_null_safe_keys_are_compared_by_the_null_safe_operator() -> None:
    assert config(null_safe=True).condition_sql == "`target`.`id` <=> `source`.`id`"


def test_a_condition_is_taken_as_it_is() -> None:
    assert config(on="target.a < source.b -- why").condition_sql == "target.a < source.b -- why"


def test_clauses_come_in_the_grammars_order_whatever_order_they_are_given_in() -> None:
    given_order = [when_not_matched_by_source_delete(), when_not_matched_insert_all(), when_matched_delete()]
    kinds = [clause.kind for clause in config(clauses=given_order).ordered_clauses]
    assert kinds == [ClauseKind.MATCHED, ClauseKind.NOT_MATCHED, ClauseKind.NOT_MATCHED_BY_SOURCE]


def test_clauses_of_one_kind_stay_in_theirs() -> None:
    first, second = when_matched_delete(condition="a"), when_matched_update_all()
    merge = config(clauses=[when_not_matched_insert_all(), first, second])
    assert merge.ordered_clauses[:2] == (first, second)


@pytest.mark.parametrize(
    ("clause", "sql"),
    [
        (when_matched_update(set={"a.b": "1"}), "WHEN MATCHED THEN UPDATE SET `a`.`b` = 1"),
        (when_matched_update_all(condition="x"), "WHEN MATCHED AND ( x ) THEN UPDATE SET *"),
        (when_matched_delete(), "WHEN MATCHED THEN DELETE"),
        (when_not_matched_insert(values={"a": "1", "`b.c`": "2"}),
         "WHEN NOT MATCHED THEN INSERT (`a`, `b.c`) VALUES ( 1 , 2 )"),
        (when_not_matched_insert_all(), "WHEN NOT MATCHED THEN INSERT *"),
        (when_not_matched_by_source_update(set={"a": "1"}), "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET `a` = 1"),
        (when_not_matched_by_source_delete(condition="y"), "WHEN NOT MATCHED BY SOURCE AND ( y ) THEN DELETE"),
    ], ids=[
        "update",
        "update all if",
        "delete",
        "insert",
        "insert all",
        "not matched by source, update",
        "not matched by source, delete if",
    ]
)  # fmt: skip
def test_each_clause_as_sql(clause: MergeClause, sql: str) -> None:
    assert clause.to_sql().split() == sql.split()


# --- targets and sources --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("orders", MergeTarget(table="orders")),
        ("main.shop.orders", MergeTarget(table="main.shop.orders")),
        ("`a/b`", MergeTarget(table="`a/b`")),
        ("/data/orders", MergeTarget(path="/data/orders")),
        ("s3a://bucket/orders", MergeTarget(path="s3a://bucket/orders")),
        ({"path": "orders"}, MergeTarget(path="orders")),
        ({"table": "orders"}, MergeTarget(table="orders")),
        (MergeTarget(table="orders"), MergeTarget(table="orders")),
    ],
    ids=readable,
)
def test_targets_are_names_or_paths(text: Any, target: MergeTarget) -> None:
    assert MergeTarget.of(text) == target


def test_a_path_is_quoted_in_the_statement() -> None:
    assert MergeTarget(path="/a b/`c`").to_sql() == "delta.`/a b/``c```"


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ("SELECT 1 AS id", MergeSource(query="SELECT 1 AS id")),
        ("  with a AS (SELECT 1) SELECT * FROM a", MergeSource(query="  with a AS (SELECT 1) SELECT * FROM a")),
        ("(SELECT 1 AS id)", MergeSource(query="(SELECT 1 AS id)")),
        ("VALUES (1)", MergeSource(query="VALUES (1)")),
        ("-- of a/day\n/* by hand */ (SELECT 1)", MergeSource(query="-- of a/day\n/* by hand */ (SELECT 1)")),
        ("SELECT ';' ;\n", MergeSource(query="SELECT ';'")),
        ({"path": "/a", "select": "SELECT 1;"}, MergeSource(paths=("/a",), select="SELECT 1")),
        ("/*/select/*.csv", MergeSource(paths=("/*/select/*.csv",), format="csv")),
        ("selection", MergeSource(table="selection")),
        ("shop.news", MergeSource(table="shop.news")),
        ("/in/day.csv", MergeSource(paths=("/in/day.csv",), format="csv")),
        ("/in/day.json.gz", MergeSource(paths=("/in/day.json.gz",), format="json")),
        ("/in/news", MergeSource(paths=("/in/news",), format="delta")),
        (["/in/a.parquet", "/in/b.parquet"], MergeSource(paths=("/in/a.parquet", "/in/b.parquet"), format="parquet")),
        ({"path": "/in/x", "format": "csv", "options": {"header": True}},
         MergeSource(paths=("/in/x",), format="csv", options=(("header", "true"),))),
        ({"query": "SELECT 1"}, MergeSource(query="SELECT 1")),
    ], ids=readable
)  # fmt: skip
def test_sources_are_queries_tables_or_files(value: Any, source: MergeSource) -> None:
    assert MergeSource.of(value) == source


@pytest.mark.parametrize(
    ("source", "needs_view"),
    [
        (MergeSource(query="SELECT 1"), False),
        (MergeSource(table="a"), False),
        (MergeSource.of_path("/in/a.parquet"), False),
        (MergeSource.of_path("/in/a.csv"), True),
        (MergeSource.of_path("/in/a.parquet", options={"mergeSchema": True}), True),
        (MergeSource.of_path(["/in/a.parquet", "/in/b.parquet"]), True),
    ],
    ids=readable,
)
def test_files_that_sql_cannot_express_need_a_view(source: MergeSource, needs_view: bool) -> None:
    assert source.needs_view is needs_view


def test_options_in_any_order_are_the_same() -> None:
    one = MergeSource.of_path("/a.csv", options={"sep": ";", "header": False})
    assert one == MergeSource.of_path("/a.csv", options={"header": "false", "sep": ";"})


# --- what is refused ------------------------------------------------------------------------------------------------

U, M = ClauseAction.UPDATE, ClauseKind.MATCHED
REFUSED: list[tuple[str, Callable[[], object], str]] = [
    ("no target", lambda: MergeTarget(), "either a table name or a path"),
    ("two targets", lambda: MergeTarget(table="a", path="/b"), "either a table name or a path"),
    ("an empty target", lambda: config(target=" "), "some text for the target"),
    ("an empty path", lambda: MergeTarget(path=""), "the target's path"),
    ("a target that is no string", lambda: config(target=5), "Expected a string for the target, got int"),
    ("a target of odd keys", lambda: config(target={"tabel": "x"}), "unknown keys: tabel"),
    ("a torn target name", lambda: config(target="`a"), "never closed"),
    ("no source", lambda: MergeSource(), "exactly one of a query, a table, paths"),
    ("two sources", lambda: MergeSource(query="SELECT 1", table="a"), "exactly one of"),
    ("an empty source", lambda: config(source=""), "some text for the source"),
    ("an empty query", lambda: MergeSource(query=" "), "the source's query"),
    ("an empty list of paths", lambda: config(source=[]), "list of paths is empty"),
    ("an empty path among paths", lambda: config(source=["/a", ""]), "a path of the source"),
    ("a source that is a number", lambda: config(source=5), "got 5"),
    ("a source of odd keys", lambda: config(source={"sql": "SELECT 1"}), "unknown keys: sql"),
    ("path and paths", lambda: config(source={"path": "/a", "paths": ["/b"]}), "has both path and paths"),
    ("a format of a query", lambda: MergeSource(query="SELECT 1", format="csv"), "only available with paths"),
    ("options of a table", lambda: MergeSource(table="a", options=(("a", "b"),)), "only available with paths"),
    ("an empty condition", lambda: config(on=""), "some text for on"),
    ("no keys", lambda: config(on=[]), "on is empty"),
    ("an empty key", lambda: config(on=["id", " "]), "a key column in on"),
    ("a key that is no string", lambda: config(on=[1]), "Expected a string for a key column"),
    ("keys as a dict", lambda: config(on={"id": "id"}), "list of key columns, got dict"),
    ("on is None", lambda: config(on=None), "got NoneType"),
    ("a condition among keys", lambda: config(on=["t.id = s.id"]), "looks like a condition"),
    ("a column as condition", lambda: config(on="id"), r"use on=\['id'\]"),
    ("a key twice", lambda: config(on=["id", "id"]), "names a key column twice: id, id"),
    ("a torn key", lambda: config(on=["`id"]), "never closed"),
    ("null_safe with a condition", lambda: config(on="a.x = b.x", null_safe=True), "in a condition use <=>"),
    ("no clauses", lambda: config(clauses=[]), "at least one clause"),
    ("a clause that is a string", lambda: config(clauses="delete"), "is not a clause"),
    ("a clause that is a number", lambda: config(clauses=[1]), "1 is not a clause"),
    ("an unknown kind", lambda: MergeClause("macthed", U), "Unknown clause kind 'macthed'.*matched"),  # type: ignore[arg-type]
    ("an unknown action", lambda: MergeClause(M, "upsert"), "Unknown clause action 'upsert'.*update_all"),  # type: ignore[arg-type]
    ("insert when matched", lambda: MergeClause(M, ClauseAction.INSERT_ALL), "matched clause cannot insert_all"),
    ("delete when not matched", lambda: MergeClause(ClauseKind.NOT_MATCHED, ClauseAction.DELETE), "it can: insert"),
    ("star by source", lambda: MergeClause(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.UPDATE_ALL), "cannot"),
    ("an update of nothing", lambda: when_matched_update(set={}), "sets no column"),
    ("an insert of nothing", lambda: when_not_matched_insert(values={}), "sets no column"),
    ("a delete of columns", lambda: MergeClause(M, ClauseAction.DELETE, (("a", "1"),)), "1 columns, but takes none"),
    ("an empty clause condition", lambda: when_matched_delete(condition=""), "condition of the matched delete clause"),
    ("an empty column", lambda: when_matched_update(set={"": "1"}), "a column of the matched update clause"),
    ("an empty value", lambda: when_matched_update(set={"a": " "}), "value of column 'a'"),
    ("a value that is no string", lambda: when_matched_update(set={"a": 1}), "got int"),  # type: ignore[dict-item]
    ("a clause of odd keys", lambda: MergeClause.from_dict({"kind": "matched", "action": "delete", "if": "x"}), "if"),
    ("a clause without action", lambda: MergeClause.from_dict({"kind": "matched"}), "clause lacks: action"),
    ("a clause that never applies", lambda: config(clauses=[when_matched_delete(), when_matched_update_all()]),
     "could never apply"),
    ("equal aliases", lambda: config(target_alias="X", source_alias="x"), "same alias"),
    ("an empty alias", lambda: config(source_alias=""), "an alias"),
    ("a guard of nothing", lambda: config(guards={"fail_if": [""]}), "a condition in fail_if"),
    ("a guard of an unknown count", lambda: config(guards={"fail_if": {"rows": 1}}), "unknown count 'rows'"),
    ("a guard without number", lambda: config(guards={"fail_if": {"num_deleted_rows": "nan"}}), "must be a number ≥ 0"),
    ("a guard below zero", lambda: config(guards={"fail_if": {"num_deleted_rows": -1}}), "must be a number ≥ 0"),
    ("a guard beyond all", lambda: config(guards={"fail_if": {"num_deleted_rows": 10**400}}), "must be a number ≥ 0"),
    ("guards that are none", lambda: config(guards=1), "guards must be a dict"),
    ("guards of odd keys", lambda: config(guards={"fail": []}), "unknown keys: fail"),
    ("nothing expected", lambda: config(guards={"expect_source": {}}), "expect_source is empty"),
    ("an expected column twice", lambda: expected(not_null=["a", "`A`"]), "not_null names a column twice"),
    ("an expected column without name", lambda: expected(unique=[""]), "a column in expect_source's unique"),
    ("an expected column of no type", lambda: expected(columns={"a": 1}), "the type of a in expect_source"),
    ("expected columns in a list", lambda: expected(columns=["id"]), "a dict of types by name"),
    ("an unknown sample", lambda: expected(unique="id", sample="all"), "must be one of keys, rows, none"),
    (
        "keys that are unique anyway",
        lambda: config(on=["ID"], source_dedupe="at", guards={"expect_source": {"unique": ["id", "b"]}}),
        "could never fail",
    ),
    ("an unknown word for an empty source", lambda: config(guards={"on_empty_source": "ok"}), "merge, skip, fail"),
    ("a table made of text", lambda: config(create_table="id INT"), "True or a dict, got str"),
    ("a table of odd keys", lambda: config(create_table={"partition_by": ["a"]}), "unknown keys: partition_by"),
    ("a table without columns", lambda: config(create_table={"columns": " "}), "the columns in create_table"),
    ("a table in two layouts", lambda: config(create_table={"partitioned_by": ["a"], "cluster_by": ["b"]}), "has both"),
    ("a statement of nothing", lambda: MergeStatement(sql=" "), "some text for sql"),
    ("a statement that is no merge", lambda: MergeStatement(sql="SELECT 'MERGE INTO'"), "must be a MERGE INTO"),
    ("a merge in a comment", lambda: MergeStatement(sql="SELECT 1 -- MERGE INTO t"), "must be a MERGE INTO"),
    ("a script", lambda: MergeStatement(sql="-- a day\nBEGIN MERGE INTO t USING s ON a; END"), "must be a MERGE INTO"),
    ("a plan of a merge", lambda: MergeStatement(sql="EXPLAIN MERGE INTO t USING s ON a"), "must be a MERGE INTO"),
    ("a statement of another version", lambda: from_json('{"sql": "MERGE INTO t", "version": 99}'), "same release"),
    ("torn JSON", lambda: from_json('{"target'), "not JSON"),
    ("JSON that is no object", lambda: from_json("[7]"), "must be a JSON object, got int"),
    ("another version", lambda: MergeConfig.from_dict({**config().to_dict(), "version": 99}), "same release"),
    ("odd keys", lambda: MergeConfig.from_dict({**config().to_dict(), "onn": 1}), "unknown keys: onn"),
    ("missing keys", lambda: MergeConfig.from_dict({"target": "t"}), "lacks: source, on, clauses"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "words"), [(b, w) for _, b, w in REFUSED], ids=[name for name, _, _ in REFUSED])
def test_what_cannot_be_meant_so_is_refused(build: Callable[[], object], words: str) -> None:
    with pytest.raises(MergeConfigError, match=words):
        build()


@pytest.mark.parametrize("wrong", [None, 5, [1], {"a": 1}, {5: "x"}, [["a"]], "x"], ids=repr)
@pytest.mark.parametrize(
    "build",
    [
        lambda wrong: config(clauses=wrong),
        lambda wrong: config(clauses=[wrong]),
        lambda wrong: config(on=wrong, source_dedupe=None),
        lambda wrong: config(target=wrong),
        lambda wrong: config(source={"paths": wrong}),
        lambda wrong: config(source={"path": wrong}),
        lambda wrong: config(source={"path": "/x", "options": wrong}),
        lambda wrong: config(source={"path": "/x", "format": wrong}),
        lambda wrong: config(source={"table": wrong}),
        lambda wrong: config(source={"format": "jdbc", "conn_id": "c", "table": "t", "options": wrong}),
        lambda wrong: config(source=wrong),
        lambda wrong: config(source_dedupe=wrong),
        lambda wrong: config(source_dedupe={"latest_by": wrong}),
        lambda wrong: config(create_table=wrong),
        lambda wrong: config(create_table={"partitioned_by": wrong}),
        lambda wrong: config(create_table={"properties": wrong}),
        lambda wrong: config(window=wrong),
        lambda wrong: config(window={"column": wrong, "start": "2026-01-01", "end": "2026-01-02"}),
        lambda wrong: config(window={"column": "c", "start": wrong, "end": "2026-01-02"}),
        lambda wrong: config(guards={"expect_source": wrong}),
        lambda wrong: config(guards={"expect_source": {"not_null": wrong}}),
        lambda wrong: config(guards={"expect_source": {"unique": wrong}}),
        lambda wrong: config(guards={"expect_source": {"columns": wrong}}),
        lambda wrong: config(guards={"expect_source": {"a": wrong}}),
        lambda wrong: config(guards={"fail_if": wrong}),
        lambda wrong: when_matched_update(set=wrong),
        lambda wrong: when_not_matched_insert(values=wrong),
        lambda wrong: when_matched_update_all(except_columns=wrong),
        lambda wrong: MergeClause.from_dict({"kind": "matched", "action": "update", "values": wrong}),
        lambda wrong: MergeClause.from_dict({"kind": wrong, "action": "update"}),
        lambda wrong: MergeStatement.from_dict({"sql": wrong}),
        lambda wrong: Upsert(keys=wrong),
        lambda wrong: Upsert(keys=["id"], keep=wrong),  # type: ignore[arg-type]
        lambda wrong: Upsert(keys=["id"], latest_by=wrong),  # type: ignore[arg-type]
        lambda wrong: _merged(SoftDelete(keys=["id"], deleted_column=wrong)),  # type: ignore[arg-type]
        lambda wrong: _merged(SoftDelete(keys=["id"], deleted_at_column=wrong)),  # type: ignore[arg-type]
        lambda wrong: Scd2(keys=["id"], columns=wrong, effective_at="at"),  # type: ignore[arg-type]
        lambda wrong: Scd2(keys=["id"], columns=["a"], effective_at=wrong),  # type: ignore[arg-type]
        lambda wrong: _merged(ApplyChanges(keys=["id"], sequence_by=["at"], operation_column=wrong)),  # type: ignore[arg-type]
        lambda wrong: ApplyChanges(keys=["id"], sequence_by=["at"], delete_operations=wrong),  # type: ignore[arg-type]
    ],
    ids=range(40),
)
def test_a_value_of_a_wrong_type_is_a_config_error(build: Callable[[Any], object], wrong: Any) -> None:
    """Some of these values are right for some of the arguments."""
    with suppress(MergeConfigError):
        build(wrong)


def _merged(pattern: Any) -> MergeConfig:
    merge: MergeConfig = pattern.to_config(target="t", source="s")
    return merge


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: config(clauses=5), "clauses must be a list of clauses, got 5"),
        (lambda: config(source={"paths": 5}), "The source's paths must be a list of paths, got 5"),
        (
            lambda: config(source={"path": "/x", "options": 5}),
            "The source's options must be a dict of names and values",
        ),
        (lambda: config(source_dedupe=5), "source_dedupe must be a column or a list of columns, got 5"),
        (lambda: Upsert(keys=["id"], keep=None), "keep must be a column or a list of columns, got None"),  # type: ignore[arg-type]
        (lambda: config(create_table={"properties": [1]}), "create_table's properties must be a dict"),
        (lambda: config(window={5: "x"}), "window lacks"),
    ],
    ids=range(7),
)
def test_a_wrong_type_is_named(build: Callable[[], object], words: str) -> None:
    with pytest.raises(MergeConfigError, match=words):
        build()


@given(st.text())
@example("[]")
def test_any_text_as_json_is_a_config_or_a_config_error(text: str) -> None:
    with pytest.raises(MergeConfigError):
        from_json(text)
