"""The operator while a DAG is parsed: what is refused at once, what has to wait for its values."""

from __future__ import annotations

import traceback
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, dag, task

from airflow_delta_merge import patterns
from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import (
    MergeConfig,
    MergeSource,
    MergeTarget,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.spark_options import SparkOptions
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
        ({"executor_cores": "two"}, "^executor_cores must be a whole number ≥ 1, got 'two'"),
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
            {"clauses": [{"kind": DeltaMergeOperator(task_id="up", **GOOD).output, "action": "delete"}]},
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


def test_the_hook_gets_each_option_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_delta_merge.hooks.delta_merge.DeltaMergeHook", SimpleNamespace)
    options = signature(SparkOptions.__init__).parameters.keys() - {"self", "kwargs"}
    assert vars(operator().hook).keys() == options


@pytest.mark.parametrize("attempts", [0, -1, "5", 1.5, True])
def test_max_commit_attempts_is_a_whole_number(attempts: Any) -> None:
    with pytest.raises(MergeConfigError, match="whole number ≥ 1"):
        operator(max_commit_attempts=attempts)
