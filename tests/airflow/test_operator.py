"""The operator while a DAG is parsed: what is refused at once, what has to wait for its values."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, XComArg, dag, task

from airflow_delta_merge import patterns
from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import (
    MergeConfig,
    MergeSource,
    MergeTarget,
    SourceExpectations,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.connections.secrets import _secrets
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.description import announce, describe, readable_statement
from airflow_delta_merge.operators.spark_options import SparkOptions
from airflow_delta_merge.operators.task_identity import merge_identity
from airflow_delta_merge.patterns import Scd2, Upsert
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
from tests.readable_ids import readable

SCD2 = Scd2(keys=["id"], columns=["name"], effective_at="at")  # type: ignore[arg-type]
UPSERT: dict[str, Any] = {"on": ["id"], "clauses": [when_matched_update_all(), when_not_matched_insert_all()]}
GOOD: dict[str, Any] = {"target": "db.target", "source": "SELECT 1 AS id", **UPSERT}

UPDATE = {"kind": "matched", "action": "update"}


def operator(**changes: Any) -> DeltaMergeOperator:
    return DeltaMergeOperator(task_id="merge", **{**GOOD, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": " "}, "some text for the target"),
        ({"target": {"name": "t"}}, "target has unknown keys: name"),
        ({"target": "db..t"}, "a part is empty"),
        ({"source": []}, "list of paths is empty"),
        ({"source": {"query": "SELECT 1", "table": "t"}}, "exactly one"),
        ({"source": {"path": "/in/{{ ds }}.csv", "optoins": {}}}, "source has unknown keys: optoins"),
        ({"source": 7}, "got 7"),
        ({"on": []}, "on is empty"),
        ({"on": ""}, "some text for on"),
        ({"on": "id"}, r"use on=\['id'\]"),
        ({"on": "id, day "}, r"use on=\['id', 'day'\]"),
        ({"on": ["id", "target.id = source.id"]}, "Set on to one condition, .* or to key columns"),
        ({"on": ["{{ key }}", "id", "id"]}, "key column twice"),
        ({"on": "target.id = source.id", "null_safe": True}, "null_safe needs key columns"),
        ({"clauses": []}, "at least one clause"),
        ({"clauses": ["update all"]}, "is not a clause"),
        ({"clauses": [{"kind": "matched"}]}, "clause lacks: action"),
        ({"clauses": [{"kind": "matched", "action": "upsert"}]}, "Unknown clause action 'upsert'"),
        ({"clauses": [{"kind": "matched", "action": "update"}]}, "sets no column"),
        ({"clauses": [when_matched_delete(), when_matched_update_all()]}, "could never apply"),
        ({"target_alias": "s", "source_alias": "S"}, "same alias"),
        ({"source_alias": ""}, "some text for an alias"),
        ({"fail_if": {"deleted_rows": 1}}, "unknown count 'deleted_rows'. Known are: num_source_rows"),
        ({"fail_if": {"deleted_fraction": "20 %"}}, "must be a number ≥ 0, got '20 %'"),
        ({"fail_if": 7}, "list of SQL conditions, got 7"),
        ({"create_table": "yes"}, "create_table must be True or a dict"),
        ({"create_table": {"partitioned_by": ["a"], "cluster_by": ["b"]}}, "both partitioned_by"),
        ({"source": {"path": "/in/a.csv", "bad_rows": "keep"}}, "bad_rows_path need each other"),
        ({"window": {"column": "at", "start": "yesterday"}}, "start must be a timestamp like .* got 'yesterday'"),
        ({"window": {"column": "day", "column_type": "date", "end": "2026-01-31T06:00"}}, "has no whole days in UTC"),
        ({"window": {"column": "at", "start": "{{ ds }}", "timezone": "Berlin"}}, "no timezone 'Berlin'"),
        ({"fail_if": {"deleted_fraction": 20}}, "fraction of the target's rows, which 20 is above. Write 20 % as 0.2"),
        ({"fail_if": {"updated_fraction": "5"}}, "Write 5 % as 0.05"),
        ({"null_keys": "refuse"}, "null_keys must be allow or fail"),
        ({"on_empty_source": "ignore"}, "on_empty_source must be one of merge, skip, fail"),
        ({"expect_source": {"unqiue": ["id"]}}, "expect_source has unknown keys: unqiue"),
        ({"expect_source": {"cheap": "price < 5"}}, "unknown keys: cheap.* a condition of your own, a dict like"),
        ({"expect_source": {"unique": ["{{ key }}", "id", "ID"]}}, "unique names a column twice"),
        ({"expect_source": ["id"]}, "expect_source must be a dict like"),
        (
            {"expect_source": {"a": {"condition": "{{ c }}", "on_failure": "drop"}}},
            "on_failure of a must be one of .* got 'drop'",
        ),
        ({"expect_source": {"a": {"condition": "x", "on_failure": "set_aside"}}}, "failed_rows_path need each other"),
        ({"expect_source": {"unique": ["id"]}, "source_dedupe": "at"}, "could never fail"),
        (
            {"expect_source": {"not_null": ["id"]}, "on": None, "clauses": None, "pattern": SCD2},
            "expect_source is not available with Scd2",
        ),
    ],
    ids=readable,
)
def test_refused_at_parse(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        operator(**changes)


NO_PARTS: dict[str, Any] = dict.fromkeys(GOOD)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"jars": ["/a.jar"]}, r"^jars must be a string with commas, like \"a,b\", got \['/a.jar'\]\."),
        ({"packages": ["g:a:1"]}, "^packages must be a string with commas"),
        ({"conn_id": None}, r"^conn_id must be a string, got None\."),
        ({"exclude_packages": ["g:a"]}, "^exclude_packages must be a string with commas"),
        ({"driver_memory": "{{ params.memory }}"}, "^driver_memory is not templated, so it can't be a template"),
        ({"engine": "{{ params.engine }}"}, "^engine is not templated"),
        ({"driver_memory": 2}, r"^driver_memory must be a string, got 2\."),
        ({"driver_memory": "2 gigs"}, "^driver_memory must be a size such as 2g or 512m, got '2 gigs'"),
        ({"executor_memory": "2.5g"}, "^executor_memory must be a size"),
        ({"executor_memory": 2}, "^executor_memory must be a string"),
        ({"name": 5}, "^name must be a string"),
        ({"executor_cores": "two"}, "^executor_cores must be a whole number, got 'two'"),
        ({"verbose": "no"}, "^verbose must be True or False, got 'no'"),
        ({"conf": {5: "x"}}, "^conf has the name 5, which Spark ignores"),
        ({"conf": {"fs.s3a.endpoint": "x"}}, "^conf has the name 'fs.s3a.endpoint', .* with spark.hadoop."),
        ({"conf": {"spark.x": None}}, r"^conf\['spark.x'\] must be a string, .* got None"),
        ({"conf": {"spark.jars": ["a"]}}, r"^conf\['spark.jars'\] must be a string"),
        ({"conf": {"spark.submit.deployMode": "cluster"}}, "^conf can't set spark.submit.deployMode"),
        ({"null_safe": "false"}, "null_safe must be True or False, got 'false'"),
        ({"with_schema_evolution": "false"}, "with_schema_evolution must be True or False"),
        ({"update_only_changed": "false"}, "update_only_changed must be True or False"),
        ({"exactly_once": "no"}, "exactly_once must be True or False"),
        ({"deferrable": "no"}, "deferrable must be True or False"),
        ({**NO_PARTS, "merges": [{**GOOD, "null_safe": "false"}]}, "null_safe must be True or False"),
        ({**NO_PARTS, "merges": [GOOD], "multiple_outputs": True}, "multiple_outputs is not available with merges"),
        (
            {"on": None, "clauses": None, "pattern": {"pattern": "upsert", "keys": ["id"], "null_safe": "no"}},
            "null_safe must be True or False",
        ),
    ],
    ids=readable,
)
def test_an_option_of_a_wrong_type_is_refused_at_parse(changes: dict[str, Any], sentence: str) -> None:
    """A text like "false" counted as true, and Spark failed on the others only at run time."""
    with pytest.raises(MergeConfigError, match=sentence):
        operator(**changes)


def test_an_option_that_is_not_templated_takes_no_output() -> None:
    """Airflow wouldn't resolve it, and an unresolved output counts as true."""
    with DAG("some", schedule=None):
        output = DeltaMergeOperator(task_id="up", **GOOD).output
        for name in ("with_schema_evolution", "driver_memory", "executor_cores", "exactly_once", "engine", "keep_warm"):
            with pytest.raises(MergeConfigError, match=f"^{name} is not templated"):
                DeltaMergeOperator(task_id=f"merge_{name}", **GOOD, **{name: output})
        DeltaMergeOperator(task_id="templated", **GOOD, jars=output, name=output, conf={"spark.x": output})
        DeltaMergeOperator(task_id="several", merges=[{**GOOD, "null_safe": output, "engine": output}])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"on": None}, "missing: on"),
        ({"sql": "MERGE INTO t USING s"}, "Remove target, source, on, clauses, or remove sql"),
        ({**NO_PARTS, "sql": "MERGE INTO t USING s", "create_table": True}, "Remove create_table"),
        ({**NO_PARTS, "sql": "DELETE FROM {{ params.t }}"}, "must be a MERGE INTO statement"),
        ({**NO_PARTS, "sql": ""}, "some text for sql"),
        ({**NO_PARTS, "sql": "MERGE INTO t USING s", "fail_if": {"rows": 1}}, "unknown count"),
        ({**NO_PARTS, "sql": "MERGE INTO t USING s", "expect_source": {}}, "expect_source is empty"),
    ],
    ids=readable,
)
def test_a_statement_is_all_or_nothing(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        operator(**changes)


@pytest.mark.parametrize(
    "sql",
    [
        "MERGE INTO {{ params.t }} USING s ON true WHEN MATCHED THEN DELETE",
        "{% set t = 'a' %} MERGE INTO {{ t }} USING s",
        "{{ params.sql }}",
        "merges/day.sql",
    ],
)
def test_a_statement_may_be_a_template_or_a_file(sql: str) -> None:
    operator(**NO_PARTS, sql=sql)


def test_statements_and_queries_are_read_from_files_and_rendered(tmp_path: Path) -> None:
    (tmp_path / "merge.sql").write_text("MERGE INTO {{ params.t }} USING s ON true WHEN MATCHED THEN DELETE;\n")
    (tmp_path / "query.sql").write_text("SELECT '{{ params.t }}' AS id")
    with DAG("files", schedule=None, template_searchpath=[str(tmp_path)], params={"t": "day"}):
        by_statement = operator(**NO_PARTS, sql="merge.sql")
        by_query = DeltaMergeOperator(**{**GOOD, "task_id": "by_query", "source": "query.sql"})
    for merge in (by_statement, by_query):
        merge.resolve_template_files()
        merge.name = "fixed"
        merge.render_template_fields({"params": {"t": "day"}})  # type: ignore[typeddict-item]
    assert by_statement._merge_config().target == MergeTarget(table="day")
    assert "SELECT 'day' AS id" in by_query._merge_config().to_sql()


def test_how_a_table_is_made_may_be_templates() -> None:
    operator(create_table={"partitioned_by": ["{{ params.by }}"], "properties": {"owner": "{{ dag.owner }}"}})
    with pytest.raises(MergeConfigError, match="unknown keys: partition_by"):
        operator(create_table={"partition_by": ["{{ params.by }}"]})


def test_what_becomes_of_bad_rows_may_be_templates() -> None:
    kept = {"bad_rows_path": "/bad/{{ ds }}", "max_bad_rows": "{{ params.most }}"}
    operator(source={"path": "/in/a.csv", "bad_rows": "keep", **kept})
    operator(source={"path": "/in/a.csv", "bad_rows": "{{ params.bad_rows }}", **kept})
    operator(source={"path": "/in/{{ ds }}.csv", "bad_rows": "skip"})
    operator(source={"paths": ["/in/{{ ds }}.csv"], "bad_rows": "skip"})
    operator(source={"path": "/in/{{ ds }}", "format": "{{ params.format }}", "bad_rows": "skip"})
    with pytest.raises(MergeConfigError, match="bad_rows must be one of fail, skip, keep"):
        operator(source={"path": "/in/{{ ds }}.csv", "bad_rows": "drop"})


def test_guards_may_be_templates() -> None:
    operator(fail_if={"deleted_fraction": "{{ params.most }}"}, on_empty_source="{{ params.empty }}")
    with pytest.raises(MergeConfigError, match="unknown count"):
        operator(fail_if={"deleted_rows": "{{ params.most }}"})
    operator(expect_source={"unique": "{{ params.keys }}", "sample": "{{ params.sample }}"})
    operator(expect_source={"columns": {"{{ params.key }}": "{{ params.type }}"}, "not_null": ["{{ params.key }}"]})
    operator(expect_source="{{ params.expected }}")
    severities = {"a": {"condition": "x > {{ params.x }}", "on_failure": "{{ params.how }}"}}
    operator(expect_source=severities)
    operator(expect_source={**severities, "failed_rows_path": "/lake/{{ ds }}"})
    operator(expect_source={"unique": "{{ params.unique }}", "failed_rows_path": "/lake/failed"})
    aside = {"a": {"condition": "x > 0", "on_failure": "set_aside"}}
    operator(expect_source={**aside, "not_null": "{{ params.keys }}", "failed_rows_path": "{{ params.failed }}"})
    with pytest.raises(MergeConfigError, match="must be one of keys, rows, none, got"):
        operator(expect_source={"unique": ["{{ params.key }}"], "sample": "all"})


def test_expectations_may_be_an_output_and_are_rendered() -> None:
    with DAG("some", schedule=None):
        upstream = DeltaMergeOperator(task_id="up", **GOOD)
        output = upstream.output
        for number, expected in enumerate((output, {"unique": output["keys"]}, {"unique": ["id", output["key"]]})):
            DeltaMergeOperator(**GOOD, task_id=f"merge_{number}", expect_source=expected)
    merge = operator(expect_source=SourceExpectations(unique=("{{ key }}",), sample="none"), name="merge")
    merge.render_template_fields({"key": "day"})  # type: ignore[typeddict-item]
    assert merge._merge_config().guards.expect_source == SourceExpectations(unique=("day",), sample="none")


NAMES = set("abcdefghij")


@pytest.mark.parametrize(
    "changes",
    [
        {"on": NAMES},
        {"create_table": {"partitioned_by": NAMES}},
        {"expect_source": {"unique": NAMES}},
        {"clauses": [when_matched_update_all(except_columns=NAMES)]},  # type: ignore[arg-type]
        {"on": None, "clauses": None, "pattern": Upsert(keys=NAMES)},  # type: ignore[arg-type]
    ],
    ids=["on", "create_table", "expect_source", "clauses", "pattern"],
)
def test_the_columns_of_a_set_have_one_order(changes: dict[str, Any]) -> None:
    """Each parse of the DAG gave another one, so Airflow made a new version of the DAG each time."""
    (name,) = (name for name, value in changes.items() if value is not None)
    assert str(sorted(NAMES)) in str(getattr(operator(**changes), name))


@pytest.mark.parametrize(
    "changes",
    [
        {"source_dedupe": {"a", "b"}},
        {"source_dedupe": {"latest_by": {"a", "b"}}},
    ],
    ids=readable,
)
def test_columns_whose_order_counts_are_no_set(changes: dict[str, Any]) -> None:
    with pytest.raises(MergeConfigError, match="source_dedupe must be a list, because the order of its columns counts"):
        operator(**changes)
    with pytest.raises(MergeConfigError, match="source_dedupe must be a list"):
        DeltaMergeOperator.partial(task_id="merge", **changes)
    with pytest.raises(MergeConfigError, match="source_dedupe must be a list"):
        DeltaMergeOperator(task_id="merge", merges=[{**GOOD, **changes}])
    for pattern in ("Upsert", "ApplyChanges"):
        kind, name = getattr(patterns, pattern), "latest_by" if pattern == "Upsert" else "sequence_by"
        with pytest.raises(MergeConfigError, match=f"{name} must be a list"):
            kind(keys=["id"], **{name: {"a", "b"}})


@pytest.mark.parametrize(
    "make",
    [
        lambda output: when_matched_update(set=output),
        lambda output: when_matched_update(set={"a": output}),
        lambda output: when_matched_update_all(condition=output),
        lambda output: when_matched_update_all(except_columns=output),
        lambda output: Upsert(keys=output),
        lambda output: Upsert(keys=[output]),
        lambda output: MergeTarget(path=output),
        lambda output: MergeConfig(**{**GOOD, "source": output}),
        lambda output: MergeConfig(**{**GOOD, "on": output}),
    ],
)
def test_objects_that_are_checked_at_once_take_no_output(make: Any) -> None:
    with DAG("some", schedule=None):
        output = DeltaMergeOperator(task_id="up", **GOOD).output
    with pytest.raises(MergeConfigError, match=r"is another task's output, .* dict"):
        make(output)


def test_a_wrong_type_that_no_check_names_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise AttributeError("no such attribute")

    monkeypatch.setattr(MergeConfig, "__post_init__", fails)
    with pytest.raises(MergeConfigError, match=r"An argument of the merge has a wrong type: no such attribute\."):
        operator()


def test_a_parameter_of_the_dag_in_an_f_string_is_refused() -> None:
    """Its text has no value: the merge would go into a folder named ``<… object at 0x7f15da744680>``."""

    @dag(schedule=None)
    def of_parameters(name: str = "orders") -> None:
        operator(target=name)
        for text in ({**GOOD, "target": f"/lake/{name}"}, {"sql": f"MERGE INTO {name} USING s ON true"}):
            with pytest.raises(MergeConfigError, match=r"DagParam object at 0x.* with \{\{ params"):
                DeltaMergeOperator(task_id=f"by_text_{len(text)}", **text)

    of_parameters()


def test_a_clause_given_as_a_dict_is_checked_too() -> None:
    clause = {"kind": "not_matched", "action": "delete"}
    with pytest.raises(MergeConfigError, match="A not_matched clause cannot delete"):
        operator(clauses=[clause], source="{{ later }}")


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "{{ var.value.table }}"},
        {"target": {"path": "{{ params.folder }}/t"}},
        {"source": "{{ ti.xcom_pull(task_ids='up') }}"},
        {"source": {"paths": ["/in/{{ ds }}.csv"], "format": "csv", "options": {"header": True}}},
        {"source": ["/in/{{ ds }}.parquet", "/in/more/{{ ds }}.parquet"]},
        {"on": "{{ params.on }}"},
        {"on": ["{{ params.a }}", "{{ params.b }}"]},
        {"on": "{{ params.keys }}", "null_safe": True},
        {"clauses": [when_matched_update(set={"a": "{{ params.value }}"}, condition="{{ params.when }}")]},
        {"target_alias": "{{ params.t }}", "source_alias": "{{ params.s }}"},
        {"target": MergeTarget(path="/t"), "source": MergeSource.of_path("/in/a.csv", options={"sep": ";"})},
        {"source": Path("/in/a.parquet"), "target": Path("/t")},
        {"clauses": when_matched_update_all()},
        {"window": {"column": "day", "column_type": "date", "start": "1900-01-01", "timezone": "Asia/Kathmandu"}},
        {"fail_if": {"deleted_fraction": 1, "inserted_fraction": 20, "affected_fraction": 1.5}},
        {"outlets": delta_asset("/t")},
    ],
    ids=readable,
)
def test_accepted_at_parse(changes: dict[str, Any]) -> None:
    operator(**changes)


def test_output_of_an_upstream_task_is_accepted_anywhere() -> None:
    from airflow.sdk import DAG

    with DAG("some", schedule=None):
        upstream = DeltaMergeOperator(task_id="up", **GOOD)
        merge = operator(
            source=upstream.output,
            target={"path": upstream.output["table"]},
            on=upstream.output,
            clauses=[when_matched_delete().to_dict() | {"condition": upstream.output["condition"]}],
        )
        for number, clause in enumerate(
            [upstream.output, {**UPDATE, "values": upstream.output}, "{{ params.clause }}"]
        ):
            DeltaMergeOperator(task_id=f"clause_{number}", **{**GOOD, "clauses": [clause]})
    assert merge.upstream_task_ids == {"up"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"acton": "delete"}, "unknown keys: acton"),
        ({"except_columns": ["id"]}, "except_columns"),
        ({"values": {}}, "at least one"),
    ],
)
def test_clauses_beside_an_output_are_checked_at_parse(changes: dict[str, Any], sentence: str) -> None:
    with DAG("some", schedule=None):
        output = DeltaMergeOperator(task_id="up", **GOOD).output
        known = {**UPDATE, "values": {"n": output["n"]}}
        clauses = [{**known, "condition": output["condition"]}, {**known, **changes}]
        operator(clauses=clauses[:1])
        with pytest.raises(MergeConfigError, match=sentence):
            DeltaMergeOperator(task_id="bad", **{**GOOD, "clauses": clauses})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"clauses": [{"kind": "matched", "action": "{{ params.x }}"}]},
            "Unknown clause action '{{ params.x }}'. Use one of: update",
        ),
        ({"source": {"path": "/a.csv", "options": "{{ params.x }}"}}, "names and values, got '{{ params.x }}'"),
        ({"source": {"{{ params.x }}": "/a"}}, "source has unknown keys: {{ params.x }}"),
        (
            {"source_dedupe": {"latest_by": "{{ params.y }}", "on_ties": "{{ params.x }}"}},
            "or pick, got '{{ params.x }}'",
        ),
        ({"expect_source": {"unique": ["{{ ds }}"], "{{ params.x }}": "a"}}, "unknown keys: {{ params.x }}. Known are"),
        (
            {**dict.fromkeys(GOOD), "merges": [{**GOOD, "engine": "{{ params.x }}"}]},
            "Merge 1 of merges: engine must be one of delta_merge, builtin, got '{{ params.x }}'",
        ),
        (
            {"clauses": [{"kind": XComArg(EmptyOperator(task_id="up")), "action": "delete"}]},
            "Unknown clause kind '{{ task_instance.xcom_pull(task_ids='up'",
        ),
    ],
    ids=readable,
)
def test_an_error_names_the_template_and_not_what_stands_for_it(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError) as caught:
        operator(**changes)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith("so it can't be a template or another task's output.")


@pytest.mark.parametrize(
    ("shared", "sentence"),
    [
        ({"on": "id"}, r"use on=\['id'\]"),
        ({"clauses": ["update"]}, "is not a clause"),
        ({"target": {"name": "t"}}, "target has unknown keys: name"),
        ({"pattern": {"pattern": "upsrt", "keys": ["id"]}}, "no pattern 'upsrt'"),
        ({"pattern": Upsert(keys=("id",)), "on": ["id"]}, "Remove on, or remove pattern"),
        ({"sql": "MERGE INTO t USING s", "target": "t"}, "Remove target, or remove sql"),
        ({"window": {"column": "at", "timezone": "Berlin"}}, "no timezone 'Berlin'"),
        ({"merges": [GOOD], "target": "t"}, "merges can't be combined with target"),
        ({"driver_memory": 2}, "driver_memory must be a string"),
        ({"conf": {"fs.s3a.endpoint": "x"}}, "which Spark ignores"),
        ({"conn_id": None}, "conn_id must be a string"),
        ({"deferrable": "no"}, "deferrable must be True or False"),
        ({"asset_events": "commit"}, "asset_events must be one of"),
        ({"max_commit_attempts": 0}, "whole number ≥ 1"),
    ],
    ids=readable,
)
def test_what_mapped_tasks_share_is_checked_at_parse(shared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        DeltaMergeOperator.partial(task_id="merge", **shared)


@pytest.mark.parametrize(
    "shared",
    [
        {},
        {"null_safe": True, "source_dedupe": "at", "expect_source": {"unique": ["id"]}, "null_keys": "fail"},
        {"on": None, "window": "day", "target": "{{ params.t }}", "clauses": (each for each in GOOD["clauses"])},
        {"pattern": Upsert(keys=("id",)), "target": delta_asset("/t")},
        {"sql": "{{ params.sql }}", "fail_if": {"num_deleted_rows": 5}},
        {"merges": [GOOD], "keep_warm": 60},
        {"fail_if": {"deleted_fraction": "{{ params.most }}"}, "conf": {"spark.x": "y"}, "pool": "spark"},
    ],
)
def test_what_mapped_tasks_share_may_leave_the_rest_open(shared: dict[str, Any]) -> None:
    assert DeltaMergeOperator.partial(task_id="merge", **shared).kwargs.items() >= shared.items()


@pytest.mark.parametrize(
    ("shared", "mapped", "sentence"),
    [
        ({"target": "t"}, {"sql": ["MERGE INTO t USING s ON 1 = 1 WHEN MATCHED THEN DELETE"]}, "Remove target, or rem"),
        ({"pattern": Upsert(keys=("id",))}, {"on": [["id"]]}, "Remove on, or remove pattern"),
        ({"target": "t", "on": ["id"]}, {"source": ["/a", "/b"]}, "missing: clauses"),
        (GOOD, {"engine": ["builtin", "delta"]}, "engine must be one of"),
        ({"target": "t", **UPSERT}, {"source": {"/a": 1}}, "Expected a string"),
        (GOOD, {"keep_warm": [60, "long"]}, "keep_warm must be a number"),
        ({"target": "t"}, [UPSERT | {"source": "/a"}, UPSERT | {"source": "/b", "on": "id"}], "'merge' of map index 1"),
    ],
    ids=readable,
)
def test_what_tasks_are_mapped_over_is_checked_with_what_they_share(shared: Any, mapped: Any, sentence: str) -> None:
    """Airflow builds mapped tasks only in a run, so each of these failed in each run."""
    with DAG("some", schedule=None), pytest.raises(MergeConfigError) as caught:
        _mapped(shared, mapped)
    assert sentence in "".join([str(caught.value), *caught.value.__notes__])


@pytest.mark.parametrize(
    ("defaults", "shared", "mapped"),
    [
        (UPSERT, {"target": "t"}, {"source": ["/a", "/{{ ds }}"], "fail_if": [{"num_deleted_rows": 1}, {}]}),
        ({}, {"target": "t", "source": "s", "on": ["id"]}, {"clauses": [when_matched_delete(), GOOD["clauses"]]}),
        ({}, {"target": "t", "on": ["id"], "clauses": (each for each in GOOD["clauses"])}, {"source": ["a", "b"]}),
        ({}, {"clauses": when_matched_delete()}, [{"target": "t", "source": "s", "on": ["id"]}]),
        ({}, {}, {"merges": [[GOOD], [GOOD, GOOD]]}),
        ({}, GOOD, {"window": []}),
    ],
)
def test_what_tasks_are_mapped_over_may_be_anything_that_fits(defaults: Any, shared: Any, mapped: Any) -> None:
    with DAG("some", schedule=None, default_args=defaults):
        assert _mapped(shared, mapped).is_mapped


@pytest.mark.parametrize(
    "name",
    ["null_safe", "engine", "max_commit_attempts", "asset_events", "exactly_once", "keep_warm", "driver_memory"],
)
def test_tasks_may_be_mapped_over_an_output_for_what_is_not_templated(name: str) -> None:
    """Airflow makes the tasks of its values; the error for a template advises so."""

    @task
    def upstream() -> list[Any]:
        return []

    with DAG("some", schedule=None):
        assert _mapped(GOOD, {name: upstream(), "window": ["day"]}).is_mapped
    with DAG("other", schedule=None), pytest.raises(MergeConfigError, match="fail_if"):
        _mapped(GOOD, {name: upstream(), "fail_if": [{"num_rows": 1}]})


def _mapped(shared: dict[str, Any], over: dict[str, Any] | list[Any]) -> Any:
    partial = DeltaMergeOperator.partial(task_id="merge", **shared)
    return partial.expand_kwargs(over) if isinstance(over, list) else partial.expand(**over)


@pytest.mark.parametrize(
    "make",
    [
        lambda: operator(on="id"),
        lambda: operator(verbose="no"),
        lambda: operator(target=Asset("t")),
        lambda: DeltaMergeOperator.partial(task_id="merge", clauses=[]),
        lambda: task.delta_merge(task_id="merge", target="t", on=[], clauses=[])(lambda: "s")(),
        lambda: task.delta_merge(task_id="merge", target="t")(lambda: "s")(),
        lambda: DeltaMergeSensor(task_id="merge", external_task_id="m", at_least=5),  # type: ignore[arg-type]
        lambda: DeltaTableSensor(task_id="merge", path="/t", version="x"),
    ],
)
def test_an_error_at_parse_names_the_task(make: Any) -> None:
    """Airflow's list of import errors shows two frames, none of the DAG file."""
    with DAG("some", schedule=None), pytest.raises((MergeConfigError, ValueError)) as caught:
        make()
    assert "This is about the task 'merge'." in "".join(traceback.format_exception(caught.value, limit=-2))


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        DeltaMergeOperator("db.target", "SELECT 1", task_id="merge")


def test_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="cluases"):
        operator(cluases=[])


def test_templates_are_rendered_everywhere() -> None:
    merge = operator(
        target="/data/{{ table }}",
        source={"path": "/in/{{ day }}.csv", "options": {"header": True, "nullValue": "{{ null }}"}},
        on=["{{ key }}"],
        clauses=[when_matched_update(set={"a": "{{ value }}"}, condition="source.day = '{{ day }}'")],
        name="{{ table }}",
    )
    values = {"table": "t", "day": "2026-01-31", "key": "id", "value": "source.a + 1", "null": "-"}
    merge.render_template_fields(values)
    assert (merge.target, merge.on, merge.name) == ("/data/t", ["id"], "t")
    assert merge.source == {"path": "/in/2026-01-31.csv", "options": {"header": True, "nullValue": "-"}}
    assert merge.clauses[0]["values"] == [["a", "source.a + 1"]]
    assert merge.clauses[0]["condition"] == "source.day = '2026-01-31'"


@pytest.mark.parametrize(
    "changes", [{"source": "/in/{{ x }}"}, {"source": {"path": "/in/{{ x }}"}}, {"on": ["{{ x }}"]}], ids=readable
)
def test_values_from_another_task_are_not_rendered(changes: dict[str, Any]) -> None:
    """Airflow tells the values of a mapped task by their identity, so they must not be copied before."""
    merge = operator(**changes, name="merge")
    ((field, value),) = changes.items()
    _render_mapped(merge, value)
    assert getattr(merge, field) == value


def test_the_statement_of_a_run_is_among_the_rendered_fields() -> None:
    merge = operator(target="sales.{{ table }}", on=["{{ key }}"], name="merge")
    assert ("statement" in merge.template_fields, merge.statement) == (True, None)
    merge.render_template_fields({"table": "orders", "key": "id"})
    assert merge.statement == merge._merge_config().to_sql()
    assert "MERGE INTO `sales`.`orders`" in merge.statement


@pytest.mark.parametrize("name", ["ds", "ts_nodash", "data_interval_start | ds", "logical_date.year"])
def test_a_date_that_the_run_lacks_is_no_empty_text(name: str) -> None:
    """Jinja would make /in/.csv of it. In Airflow 3 asset-triggered and some manual runs have no logical date."""
    run_after = datetime(2026, 1, 31, 12, tzinfo=UTC)
    no_date: Any = {"dag_run": SimpleNamespace(run_after=run_after, logical_date=None)}
    merge = operator(source=f"/in/{{{{ {name} }}}}.csv", name="merge")
    with pytest.raises(AirflowFailException, match=r"This run has no logical date.* Use dag_run.run_after, e.g. {{"):
        merge.render_template_fields(no_date)
    merge = operator(source="/in/{{ dag_run.run_after | ds }}-{{ ds | default('x') }}.csv", name="merge")
    merge.render_template_fields(no_date)
    assert merge.source == "/in/2026-01-31-x.csv"


def test_a_date_that_is_none_is_not_the_text_none() -> None:
    """Airflow sets both ends of an interval wherever there is a logical date, also without an interval."""
    context: Any = {"dag_run": SimpleNamespace(), "ds": "2026-01-31", "data_interval_start": None}
    merge = operator(source="SELECT * FROM s WHERE at >= '{{ data_interval_start }}'", name="merge")
    with pytest.raises(AirflowFailException, match="so data_interval_start has no value"):
        merge.render_template_fields(context)
    merge = operator(source="SELECT * FROM s WHERE at >= '{{ data_interval_start | default(ds) }}'", name="merge")
    merge.render_template_fields(context)
    assert merge.source == "SELECT * FROM s WHERE at >= '2026-01-31'"


def test_the_statement_is_no_template() -> None:
    """Airflow renders the fields of a task again when it is resumed; what a run's values hold is never run."""
    merge, called = operator(on="target.id = '{{ x }}'", name="merge"), []
    context = {"x": "{{ call(1) }}", "call": called.append}
    merge.render_template_fields(context)
    assert "{{ call(1) }}" in (merge.statement or "")
    merge.on = "target.id = source.id"
    merge.render_template_fields(context)
    assert called == []


def test_a_run_without_a_merge_and_a_statement_of_ones_own_show_no_second_statement() -> None:
    merge = operator(target="{{ nothing }}", name="merge")
    merge.render_template_fields({"nothing": ""})
    assert merge.statement is None
    written = operator(**NO_PARTS, sql="MERGE INTO {{ x }} USING s ON true WHEN MATCHED THEN DELETE", name="merge")
    written.render_template_fields({"x": "day"})
    assert (written.statement, written.sql) == (None, "MERGE INTO day USING s ON true WHEN MATCHED THEN DELETE")


def test_properties_of_spark_have_their_names_in_the_dag() -> None:
    operator(conf={"spark.sql.shuffle.partitions": "{{ params.partitions }}"})
    with DAG("some", schedule=None):
        upstream = operator()
        for task_id, conf in (("template", "{{ dag_run.conf['spark'] }}"), ("output", upstream.output)):
            with pytest.raises(MergeConfigError, match="fixed names in the DAG file"):
                DeltaMergeOperator(**GOOD, task_id=task_id, conf=conf)
    conf = {"spark.jars": "/tmp/evil.jar"}
    with pytest.raises(AirflowFailException, match="fixed names in the DAG file"):
        _render_mapped(operator(conf=conf, name="merge"), conf)


def test_a_value_of_a_run_refers_to_nothing() -> None:
    written = operator(conf={"spark.app.name": "${env:USER} {{ x }}"}, name="merge")
    written.render_template_fields({"x": "y"})
    assert written.conf == {"spark.app.name": "${env:USER} y"}
    given = operator(conf={"spark.app.name": "{{ x }}"}, name="merge")
    with pytest.raises(AirflowFailException, match=r"value of spark.app.name in this run contains \$\{…\}"):
        given.render_template_fields({"x": "${env:PASSWORD}"})


def _render_mapped(merge: DeltaMergeOperator, value: Any) -> None:
    """As Airflow renders a task that was mapped over a value which another task returned."""
    merge._do_render_template_fields(
        parent=merge,
        template_fields=merge.template_fields,
        context={"x": "RENDERED"},
        jinja_env=merge.get_template_env(),
        seen_oids={id(value)},
    )


def test_values_that_make_no_merge_fail_before_spark_starts() -> None:
    from airflow_delta_merge.task_exceptions import DeltaMergeFailException

    merge = operator(target="{{ nothing }}", name="merge")
    merge.render_template_fields({"nothing": ""})
    with pytest.raises(DeltaMergeFailException, match="some text for the target"):
        merge._merge_configs()


def test_kill_before_anything_runs_is_harmless() -> None:
    operator().on_kill()


def test_result_in_the_log() -> None:
    result = MergeResult(
        table="/t",
        version_read=3,
        version=4,
        executor="ClassicMergeExecutor",
        executor_reason="there is a matched clause",
        num_inserted_rows=1,
        num_updated_rows=2,
        num_touched_files=1,
        num_candidate_files=2,
        num_files_before_skipping=32,
        num_added_files=1,
        metrics={"numTargetRowsCopied": 4022},
        durations_ms={"scan": 1200, "rewrite": 2200, "total": 3456},
    )
    assert describe(result).splitlines() == [
        "Merged into /t: committed version 4",
        "  rows    inserted      1    files  touched   1",
        "          updated       2           removed   0",
        "          deleted       0           added     1",
        "          copied    4,022           searched  2 of 32",
        "  time    scan        1.2 s  ███████",
        "          rewrite     2.2 s  █████████████",
        "          total       3.5 s",
        "  how     ClassicMergeExecutor: there is a matched clause",
    ]
    assert describe(result, "http://airflow/merges").splitlines()[-1] == "  see     http://airflow/merges"
    broken = {"positive": 3, "unique": 0, "not_null": 2}
    failed = replace(result, failed_expectations=broken, num_set_aside_rows=4)
    assert "  broken  positive 3, not_null 2; 4 rows of the source set aside" in describe(failed).splitlines()


def test_the_log_begins_with_what_is_merged_into_what_from_what() -> None:
    config = operator(
        target="/lake/orders",
        source=["/in/am.csv", "/in/pm.csv"],
        clauses=[
            when_matched_delete(condition="source.status = 'cancelled'"),
            when_matched_update(set={"status": "'new'", "seen": "1"}, condition="source.fresh"),
            when_matched_update_all(except_columns=["created_at"]),
            when_not_matched_insert_all(),
        ],
        source_dedupe="at",
    )._merge_config()
    assert announce([config]).splitlines() == [
        "Merge into delta.`/lake/orders`",
        "  from  /in/am.csv and 1 more (csv), the latest row of each id by at; ties fail",
        "  on    id",
        "  when matched and source.status = 'cancelled': delete",
        "  when matched and source.fresh: update status, seen",
        "  when matched: update all without created_at",
        "  when not matched: insert all",
    ]
    query = operator(source=f"SELECT {'1 +' * 100} 1\nAS id")._merge_config()
    several = announce([query, operator(**NO_PARTS, sql="MERGE INTO t USING s")._merge_config()])
    assert several.splitlines()[1] == f"  from  (SELECT {'1 +' * 31}…)"
    assert several.splitlines()[-2:] == ["Merge 2 into `t`", "  by    the statement in sql"]


def test_the_statement_of_dedupe_is_folded() -> None:
    config = operator(source="s", source_dedupe={"latest_by": ["at", "nr"], "on_ties": "pick"})._merge_config()
    assert "AS (PARTITION BY" in config.to_sql()
    assert readable_statement(config).splitlines()[:3] == [
        "MERGE INTO `db`.`target` AS `target`",
        "-- source_dedupe: the latest row of each id by at, nr; any row of a tie",
        "USING `s` AS `source`",
    ]
    plain = operator(source="s")._merge_config()
    assert readable_statement(plain) == plain.to_sql()


def test_recorded_result_in_the_log() -> None:
    result = MergeResult(table="/t", version_read=3, version=4, executor="", executor_reason="", num_commit_attempts=3)
    assert describe(result).startswith("Merged into /t: committed version 4; attempt 3, the others conflicted\n")
    again = replace(result, already_committed=True, num_commit_attempts=1)
    assert describe(again).startswith("Merged into /t: already committed by an earlier try, as version 4; nothing was")
    lost = replace(again, version=None)
    assert describe(lost).startswith("Merged into /t: already committed by an earlier try; nothing was done now")


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net", True),
        ("fs.azure.sas.fixed", True),
        ("password", True),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("spark.disaster.recovery", False),
        ("header", False),
    ],
)
def test_which_values_are_masked(name: str, secret: bool) -> None:
    value = {"source": {"path": "/in", "options": {"some": "thing", name: "the value"}}}
    assert list(_secrets(value)) == (["the value"] if secret else [])


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("jdbc:postgresql://db:5432/shop?user=ada&password=pa55word&ssl=true", ["pa55word"]),
        ("jdbc:sqlserver://db;databaseName=shop;user=ada;password=pa55word;encrypt=true", ["pa55word"]),
        ("jdbc:mysql://ada:pa55word@db/shop", ["pa55word"]),
        ("password=pa55word", ["pa55word"]),
        ("jdbc:oracle:thin:ada/pa55word@//db:1521/shop", ["pa55word"]),
        ('jdbc:oracle:oci:ada/"pa 55@word"@shop', ['"pa 55@word"', "pa 55@word"]),
        ("jdbc:oracle:thin:@//db:1521/shop", []),
        ("jdbc:mysql://(host=db,user=ada,password=pa55word)/shop", ["pa55word"]),
        ("jdbc:mysql://address=(host=db)(user=ada)(password=pa55word)/shop", ["pa55word"]),
        ("jdbc:db2://db:50000/shop:password=pa55word;user=ada;", ["pa55word"]),
        ("jdbc:sqlserver://db;user=ada;password={pa;55}}word};encrypt=true", ["{pa;55}}word}", "pa;55}word"]),
        ("SELECT * FROM s WHERE (token=source.token)", []),
        (
            "wasbs://in@store.blob.core.windows.net/day.csv?sv=2022-11-02&sig=ab%2Bcd%3D&se=2026",
            ["ab%2Bcd%3D", "ab+cd="],
        ),
        ("https://in.example/day.csv?access_token=t0ken-1&x=1", ["t0ken-1"]),
        ("https://s3/day.csv?X-Amz-Credential=AKIA1&X-Amz-Signature=abcd1", ["AKIA1", "abcd1"]),
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a+b/c==;EndpointSuffix=x", ["a+b/c=="]),
        ("Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey=a+b/c==", ["a+b/c=="]),
        ("https://in.example/day.csv?client_secret=s3cret", ["s3cret"]),
        ("s3a://in/day=2026-01-31/token_type=x/part.parquet", []),
        ("abfss://in@store.dfs.core.windows.net/day.parquet", []),
        ("SELECT * FROM s WHERE token=source.token AND secret = 'x'", []),
        ("jdbc:postgresql://db/shop?sslpasswordcallback=org.Callback&passwordFile=/etc/x", ["org.Callback"]),
    ],
)
def test_secrets_inside_a_text_are_masked(text: str, secrets: list[str]) -> None:
    for argument in ({"options": {"url": text}}, {"path": text}, [text]):
        assert list(_secrets(argument)) == secrets


def test_a_password_inside_a_url_is_hidden_where_airflow_shows_it() -> None:
    """By Airflow's own masker, in the rendered fields that the UI shows and in what a log would say."""
    from airflow.providers.common.compat.sdk import redact
    from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields

    url = "jdbc:postgresql://db/shop?user=ada&password={{ conn_password }}"
    merge = operator(source={"path": "/in", "format": "other", "options": {"url": url}}, name="merge")
    merge.render_template_fields({"conn_password": "pa55word-of-this-test"})
    shown = json.dumps(_serialize_rendered_fields(merge))
    assert "user=ada&password=***" in shown
    assert "pa55word-of-this-test" not in shown
    assert "pa55word" not in str(redact(merge._merge_config().to_dict()))


def test_the_hook_gets_each_option_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_delta_merge.hooks.delta_merge.DeltaMergeHook", SimpleNamespace)
    options = signature(SparkOptions.__init__).parameters.keys() - {"self", "kwargs"}
    assert vars(operator().hook).keys() == options


def test_a_hook_without_an_operator_masks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    source = {"path": "/in/day.csv?sig=abcdef", "options": {"password": "pa55word"}}
    request = JobRequest(merges=MergeConfig(**{**GOOD, "source": source}))
    DeltaMergeHook(conf={"spark.some.token": "t0ken"}, jars="https://joe:s3cret@repo/x.jar")._mask_secrets(request)
    assert sorted(masked) == ["abcdef", "pa55word", "s3cret", "t0ken"]


def test_secrets_are_masked_as_soon_as_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    merge = operator(conf={"spark.hadoop.fs.s3a.secret.key": "{{ secret }}"}, name="merge")
    merge.render_template_fields({"secret": "the value"})
    assert masked == ["the value"]


def test_secrets_are_masked_in_every_argument_with_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    expected = {"unique": {"columns": ["id"], "on_failure": "set_aside"}, "columns": {"token": "string"}}
    merge = operator(
        jars="https://joe:of-jars@repo/x.jar",
        packages="https://repo/?token=of-packages",
        expect_source={**expected, "failed_rows_path": "abfss://a@b/failed?sig=of-expectations"},
        name="merge",
    )
    merge.render_template_fields({})
    assert masked == ["of-jars", "of-packages", "of-expectations"]


def context(**changes: Any) -> dict[str, Any]:
    start = datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC)
    run = {"start_date": start, "clear_number": 2, "logical_date": None, "run_after": start - timedelta(seconds=1)}
    ti = {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1, "try_number": 2, "max_tries": 3}
    return {"ti": SimpleNamespace(**ti), "dag_run": SimpleNamespace(**run | changes)}


@pytest.mark.parametrize(("counts_clears", "generation"), [(True, 1772409601000002003), (False, 1772409601000999003)])
def test_identity_of_a_task(*, counts_clears: bool, generation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_MERGE__NAMESPACE", "staging")
    monkeypatch.setattr("airflow_delta_merge.operators.task_identity.AIRFLOW_V_3_2_PLUS", counts_clears)
    identity = merge_identity(context())
    assert identity is not None
    assert (identity.application_id, identity.generation) == ("airflow:staging/d/t/r/-1", generation)
    assert identity.task_instance.try_number == 2


def test_runs_of_dag_test_have_no_identity() -> None:
    date = datetime(2026, 3, 1, tzinfo=UTC)
    assert merge_identity(context(start_date=date, logical_date=date)) is None
    assert merge_identity(context(start_date=date, run_after=date)) is None


@pytest.mark.parametrize("attempts", [0, -1, "5", 1.5, True])
def test_max_commit_attempts_is_a_whole_number(attempts: Any) -> None:
    with pytest.raises(MergeConfigError, match="whole number ≥ 1"):
        operator(max_commit_attempts=attempts)
