"""The values of a run: templates of texts, values of other tasks, files, and what is missing."""

from __future__ import annotations

from collections import UserList
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, TaskGroup, XComArg, task

from airflow_delta_merge.config import (
    MergeConfig,
    MergeSource,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_insert_all,
)
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import quote_text
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.many_merges import build_merges
from airflow_delta_merge.patterns import Sync
from tests.readable_ids import readable

UPSERT: dict[str, Any] = {"on": ["id"], "clauses": [when_matched_update_all(), when_not_matched_insert_all()]}
GOOD: dict[str, Any] = {"target": "db.target", "source": "updates", **UPSERT}
NO_UPSERT: dict[str, Any] = dict.fromkeys(UPSERT)
NO_PARTS: dict[str, Any] = dict.fromkeys(GOOD)
HOSTILE = "{{ call() }}"


@task
def upstream() -> Any:
    """Returns what :func:`returned` gives."""


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The value that each output of another task has, as its only element."""
    value: list[Any] = [None]
    monkeypatch.setattr(_kind_of_output(), "resolve", lambda *_, **__: value[0])
    return value


def _kind_of_output() -> type[Any]:
    with DAG("of_the_type", schedule=None):
        return type(upstream())


def rendered(native: bool = False, dag: dict[str, Any] | None = None, variables: Any = (), **parts: Any) -> Any:
    """The operator as it is in a run."""
    with DAG("run", schedule=None, render_template_as_native_obj=native, **(dag or {})):
        merge = DeltaMergeOperator(task_id="merge", **{**GOOD, **parts})
    return _render(merge, dict(variables))


def _render(merge: Any, variables: dict[str, Any]) -> Any:
    ti = SimpleNamespace(dag_id="run", task_id="merge", map_index=0)
    merge.render_template_fields({"ti": ti, "ds": "2026-01-31", "dag": merge.dag, **variables})
    return merge


# A value that is missing.


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        (lambda output: {"window": output}, "window"),
        (lambda output: {"expect_source": output}, "expect_source"),
        (lambda output: {"source_dedupe": output}, "source_dedupe"),
        (lambda output: {"conf": {"spark.x": output}}, "conf.spark.x"),
        (
            lambda output: {"clauses": [{"kind": "matched", "action": "delete", "condition": output}]},
            r"clauses\[0\].condition",
        ),
        (
            lambda output: {**NO_UPSERT, "pattern": {"pattern": "sync", "keys": ["id"], "where": output}},
            "pattern.where",
        ),
        (
            lambda output: {**NO_PARTS, "merges": [{**GOOD, "window": output}]},
            r"merges\[0\].window",
        ),
    ],
    ids=["window", "expectations", "dedupe", "property", "condition", "where", "one of several"],
)
def test_an_output_of_none_removes_no_bound(parts: Any, place: str, returned: list[Any]) -> None:
    """A merge without its condition would take every row of the target."""
    with DAG("run", schedule=None):
        merge = DeltaMergeOperator(task_id="merge", **{**GOOD, **parts(upstream())})
    with pytest.raises(
        AirflowFailException, match=rf"^{place} was given, but its value in this run is None\. .* remove"
    ):
        _render(merge, {})


@pytest.mark.parametrize("native", [False, True], ids=["texts", "native"])
def test_a_template_of_none_removes_no_bound(native: bool) -> None:
    pattern = Sync(keys=("id",), where="{{ params.where }}")
    with pytest.raises(AirflowFailException, match=r"^pattern\.where was given, but its value in this run is None"):
        rendered(native=native, variables={"params": {"where": None}}, pattern=pattern, **NO_UPSERT)


def test_a_template_of_none_is_no_table_of_that_name() -> None:
    """With create_table, the merge of a task that returned nothing would make one."""
    ti = SimpleNamespace(dag_id="run", task_id="merge", map_index=0, xcom_pull=lambda _: None)
    with pytest.raises(AirflowFailException, match=r"^target was given, but its value in this run is None"):
        rendered(variables={"ti": ti}, target="{{ ti.xcom_pull('up') }}", create_table=True)
    assert rendered(target="{{ 'None' }}_of_all").target == "None_of_all"


def test_an_error_of_an_expression_says_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError):
        rendered(source="SELECT {{ 1 / 0 }} AS id")
    assert caplog.messages[-1] == "source could not be rendered."


@pytest.mark.parametrize("by", ["expand", "expand_kwargs", "an element of expand_kwargs"])
def test_a_mapped_value_of_none_removes_no_bound(by: str) -> None:
    with DAG("run", schedule=None):
        partial = DeltaMergeOperator.partial(task_id="merge", **GOOD)
        if by == "expand":
            mapped = partial.expand(window=upstream())
        else:
            mapped = partial.expand_kwargs(upstream() if by == "expand_kwargs" else [upstream()])
    with pytest.raises(AirflowFailException, match=r"^window was given"):
        _render_mapped(mapped, {"window": None})


def test_none_in_the_dag_is_no_value() -> None:
    clause = when_not_matched_by_source_delete().to_dict()
    assert clause["condition"] is None
    rendered(clauses=[clause], window=None, expect_source=None)


# Templates are texts.


@pytest.mark.parametrize("native", [False, True])
def test_the_quotes_of_literals_stay(native: bool) -> None:
    """Jinja's native environment reads each text as a Python literal, also one without a template."""
    values = {"status": "'closed'", "code": "'007'", "day": "'{{ ds }}'", "n": "0", "sure": "true"}
    merge = rendered(
        native=native,
        target="db.2026",
        source="SELECT '{{ ds }}' AS id",
        clauses=[when_matched_update(set=values, condition="source.x = 'a'")],
        expect_source={"a": {"condition": "'{{ ds }}'"}},
        fail_if=["'1'"],
    )
    assert dict(merge.clauses[0]["values"]) == {**values, "day": "'2026-01-31'"}
    assert merge._merge_config().guards.fail_if == ("'1'",)
    assert merge.expect_source["a"]["condition"] == "'2026-01-31'"


@pytest.mark.parametrize("native", [False, True])
def test_a_filter_makes_a_text_a_literal(native: bool) -> None:
    """docs/security.md recommends it."""
    merge = rendered(
        native=native,
        dag={"user_defined_filters": {"sql_text": quote_text}},
        variables={"dag_run": SimpleNamespace(conf={"city": "current_user()"})},
        clauses=[when_matched_update(set={"city": "{{ dag_run.conf['city'] | sql_text }}"})],
    )
    assert "city` = 'current_user()'" in merge.statement


def test_a_native_template_may_give_a_list_but_no_number() -> None:
    variables = {"params": {"keys": ["id", "day"], "n": 7, "source": {"path": "/in/a.csv"}}}
    merge = rendered(
        native=True,
        variables=variables,
        on="{{ params['keys'] }}",
        source="{{ params.source }}",
        clauses=[when_matched_update(set={"n": "{{ params.n }}"})],
    )
    assert (merge.on, merge.source) == (["id", "day"], {"path": "/in/a.csv"})
    assert merge._merge_config().clauses[0].values == (("n", "7"),)


# Values of other tasks.


def _render_mapped(mapped: Any, values: dict[str, Any], *, called: Any = None) -> Any:
    """As Airflow renders a mapped task, whose ids of values leave those of expand_kwargs out."""
    merge = mapped.unmap(values)
    context = {"ti": SimpleNamespace(dag_id="run", task_id="merge", map_index=0), "dag": merge.dag, "call": called}
    context["ds"] = "2026-01-31"
    merge._do_render_template_fields(
        parent=merge,
        template_fields=mapped.template_fields,
        context=context,
        jinja_env=merge.get_template_env(),
        seen_oids=set(),
    )
    return merge


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", [f"/in/{HOSTILE}.csv"]),
        ("source", {"path": f"/in/{HOSTILE}.csv"}),
        ("source", "/in/day.sql"),
        ("target", f"/lake/{HOSTILE}"),
        ("window", {"column": HOSTILE, "start": "2026-01-01", "end": "2026-01-02", "timezone": "UTC"}),
        ("clauses", [{"kind": "matched", "action": "delete", "condition": HOSTILE}]),
        ("jars", HOSTILE),
    ],
    ids=readable,
)
@pytest.mark.parametrize("by", ["expand", "expand_kwargs", "an element of expand_kwargs"])
def test_values_that_a_task_is_mapped_over_are_no_templates(name: str, value: Any, by: str) -> None:
    """Also values that the operator has copied, and those of expand_kwargs, of which Airflow gives no ids."""
    called: list[str] = []
    with DAG("run", schedule=None):
        partial = DeltaMergeOperator.partial(task_id="merge", **{k: v for k, v in GOOD.items() if k != name})
        if by == "expand":
            mapped = partial.expand(**{name: upstream()})
        else:
            mapped = partial.expand_kwargs(upstream() if by == "expand_kwargs" else [upstream()])
    merge = _render_mapped(mapped, {name: value}, called=lambda: called.append("called"))
    assert getattr(merge, name) == value
    assert (called, merge.name) == ([], "run.merge"), "its own template is rendered"


def test_merges_that_a_task_is_mapped_over_are_no_templates() -> None:
    called: list[str] = []
    with DAG("run", schedule=None):
        mapped = DeltaMergeOperator.partial(task_id="merge").expand(merges=upstream())
    merges = [{**GOOD, "target": f"/lake/{HOSTILE}", "window": "day"}]
    merge = _render_mapped(mapped, {"merges": merges}, called=lambda: called.append("called"))
    assert merge.merges[0]["target"] == f"/lake/{HOSTILE}"
    assert (merge.merges[0]["window"]["timezone"], called) == ("UTC", [])


def test_a_mapped_dict_that_stands_in_the_dag_is_rendered(returned: list[Any]) -> None:
    with DAG("run", schedule=None):
        values = {"target": "t", "source": upstream(), "conf": {"spark.x": "{{ ti.task_id }}"}}
        mapped = DeltaMergeOperator.partial(task_id="merge", **UPSERT).expand_kwargs([values])
    returned[0] = [f"/in/{HOSTILE}"]
    merge = _render_mapped(mapped, values)
    assert (merge.conf, merge.source) == ({"spark.x": "merge"}, [f"/in/{HOSTILE}"])


@pytest.mark.parametrize("by", ["the DAG", "a task group"])
def test_default_args_of_mapped_tasks_stand_in_the_dag(by: str) -> None:
    defaults = {"conf": {"spark.x": "{{ ti.task_id }}"}, "target": "/lake/{{ ds }}", "jars": None, **UPSERT}
    of_dag, of_group = (defaults, {}) if by == "the DAG" else ({"target": "t"}, defaults)
    with (
        DAG("run", schedule=None, default_args=of_dag),
        TaskGroup("group", prefix_group_id=False, default_args=of_group),
    ):
        mapped = DeltaMergeOperator.partial(task_id="merge").expand_kwargs(upstream())
    merge = _render_mapped(mapped, {"source": f"/in/{HOSTILE}"})
    assert (merge.target, merge.conf, merge.source) == ("/lake/2026-01-31", {"spark.x": "merge"}, f"/in/{HOSTILE}")
    merge = _render_mapped(mapped, {"source": "/in/a", "target": f"/lake/{HOSTILE}"})
    assert merge.target == f"/lake/{HOSTILE}"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("source", {"path": "/in/day.csv", "options": {"header": True}}),
        ("source", ["/in/a.parquet", "/in/b.parquet"]),
        ("on", ["id"]),
        ("clauses", [when_matched_update_all().to_dict()]),
        ("create_table", {"columns": "id INT"}),
        ("fail_if", {"num_deleted_rows": 5}),
        ("source_dedupe", {"latest_by": "at"}),
        ("expect_source", {"unique": ["id"]}),
    ],
    ids=readable,
)
def test_a_template_of_a_list_or_dict_needs_native_objects(argument: str, value: Any) -> None:
    """Else its text was a path, a column, or a condition, at which the merge failed in Spark."""
    template, variables = {argument: "{{ params.value }}"}, {"params": {"value": value}}
    assert getattr(rendered(native=True, variables=variables, **template), argument) == value
    with pytest.raises(
        AirflowFailException, match=rf"{argument} is the text of a \w+ .* Set render_template_as_native"
    ):
        rendered(variables=variables, **template)


def test_a_pattern_or_a_part_of_an_argument_may_be_a_template_of_a_list_or_dict() -> None:
    upsert = {"pattern": "{{ params.p }}", "create_table": "{{ params.create }}", **NO_UPSERT}
    variables = {
        "params": {"p": {"pattern": "upsert", "keys": ["id"]}, "keys": ["id"], "json": '{"a": 1}', "create": False}
    }
    merge = rendered(native=True, variables=variables, **upsert)
    assert ("ON (" in str(merge.statement), merge.create_table) == (True, False)
    with pytest.raises(AirflowFailException, match=r"pattern\.keys\[0\] is the text of a list"):
        rendered(variables=variables, **NO_UPSERT, pattern={"pattern": "upsert", "keys": ["{{ params['keys'] }}"]})
    text = rendered(variables=variables, conf={"spark.x": "{{ params.json }}"}).conf
    assert text == {"spark.x": '{"a": 1}'}


def test_a_whole_conf_of_another_task_is_refused() -> None:
    with DAG("run", schedule=None):
        one, two, three = (DeltaMergeOperator.partial(task_id=f"merge_{each}", **GOOD) for each in range(3))
        mapped = [one.expand_kwargs(upstream()), two.expand_kwargs([upstream()])]
        with pytest.raises(MergeConfigError, match="fixed names in the DAG file"):
            three.expand(conf=upstream())
    for each in mapped:
        with pytest.raises(AirflowFailException, match="fixed names in the DAG file"):
            _render_mapped(each, {"conf": {"spark.jars": "/tmp/evil.jar"}})


def test_a_window_of_another_task_gets_the_interval(returned: list[Any]) -> None:
    interval = {"data_interval_start": "2026-01-31", "data_interval_end": "2026-02-01"}
    with DAG("run", schedule=None):
        alone = DeltaMergeOperator(task_id="alone", **GOOD, window=upstream())
        several = DeltaMergeOperator(task_id="several", merges=upstream())
    returned[0] = "day"
    assert "`day` >= TIMESTAMP_LTZ '2026-01-31 00:00:00+00:00'" in _render(alone, interval).statement
    returned[0] = [{**GOOD, "window": {"column": "day", "column_type": "date"}}]
    (config,) = build_merges(_render(several, interval).merges)
    assert isinstance(config, MergeConfig)
    assert (config.window.start, config.window.end) == ("2026-01-31T00:00:00+00:00", "2026-02-01T00:00:00+00:00")


def test_values_that_a_function_is_mapped_over_are_no_templates() -> None:
    seen: list[Any] = []
    with DAG("run", schedule=None):

        @task.delta_merge(**{**UPSERT, "target": "t"}, asset_events="never")
        def merge(source: str, target: dict[str, str]) -> str:
            return source

        output = merge.expand_kwargs(upstream())
    values = {"source": f"/in/{HOSTILE}", "target": {"a": HOSTILE}}
    rendered = _render_mapped(output.operator, {"op_kwargs": values}, called=lambda: seen.append("called"))
    assert (rendered.op_kwargs, seen) == (values, [])


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("jars", ["/a.jar"], r"^jars must be a string with commas, like \"a,b\", got \['/a.jar'\]"),
        ("conn_id", {"id": "x"}, "^conn_id must be a string"),
        ("conf", ["a"], r"^conf\['spark.x'\] must be a string, a number or a bool, got a value of type list"),
    ],
)
def test_an_option_of_a_wrong_type_in_a_run_is_a_sentence(
    option: str, value: Any, sentence: str, returned: list[Any]
) -> None:
    with DAG("run", schedule=None):
        output = upstream()
        merge = DeltaMergeOperator(task_id="m", **GOOD, **{option: {"spark.x": output} if option == "conf" else output})
    returned[0] = value
    with pytest.raises(AirflowFailException, match=sentence):
        _render(merge, {})


def test_an_option_of_a_wrong_type_shows_no_secret(returned: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    with DAG("run", schedule=None):
        merge = DeltaMergeOperator(task_id="m", **GOOD, jars=upstream())
    returned[0] = ["https://joe:canary@repo/x.jar"]
    with pytest.raises(AirflowFailException, match="canary"):  # which Airflow masks
        _render(merge, {})
    assert masked == ["canary"]


def test_a_number_that_a_task_returns_is_the_name_of_the_application(returned: list[Any]) -> None:
    with DAG("run", schedule=None):
        merge = DeltaMergeOperator(task_id="m", **GOOD, name=upstream())
    returned[0] = 20260131
    assert _render(merge, {}).name == "20260131"


def test_rows_that_a_task_returns_are_no_source(returned: list[Any]) -> None:
    frame = pandas.DataFrame({"id": [1], "name": ["canary"]})
    with DAG("run", schedule=None):
        merge = DeltaMergeOperator(task_id="m", **{**GOOD, "source": upstream()})
    returned[0] = frame
    with pytest.raises(AirflowFailException, match=r"a list of paths or a dict, got a DataFrame\. Write") as caught:
        _render(merge, {})._merge_configs()
    assert "canary" not in str(caught.value)
    with pytest.raises(MergeConfigError, match="got a DataFrame"):
        DeltaMergeOperator(task_id="m", **{**GOOD, "source": frame})


def test_the_outputs_of_a_mapped_task_are_a_list(returned: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow gives a sequence of its own, in which no secret was looked for."""
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    with DAG("run", schedule=None):
        merge = DeltaMergeOperator(task_id="m", **{**GOOD, "source": upstream()})
    returned[0] = UserList(["wasbs://in@a/day.csv?sig=canary"])
    assert (_render(merge, {}).source, masked) == (["wasbs://in@a/day.csv?sig=canary"], ["canary"])


def test_the_type_of_an_output_is_that_of_airflow() -> None:
    assert issubclass(_kind_of_output(), XComArg)


# Files.


@pytest.mark.parametrize(
    "parts",
    [
        {"clauses": [when_matched_update(set={"sql": "source.sql"})]},
        {"clauses": [when_matched_update_all(condition="target.sql <> source.sql")]},
        {"on": "target.sql = source.sql"},
        {"target": "/lake/x.sql"},
        {"source": "SELECT id, sql.sql"},
        {"source": ["/in/a.sql"]},
        {"source": {"table": "db.sql"}},
        {**NO_PARTS, "sql": "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.sql = s.sql"},
        {**NO_PARTS, "merges": [{**GOOD, "on": "target.sql = source.sql"}]},
    ],
    ids=readable,
)
def test_an_expression_that_ends_in_sql_names_no_file(parts: dict[str, Any]) -> None:
    with DAG("run", schedule=None):
        merge = DeltaMergeOperator(task_id="merge", **{**GOOD, **parts})
    given = {name: getattr(merge, name) for name in parts}
    merge.resolve_template_files()
    _render(merge, {})
    assert {name: getattr(merge, name) for name in parts} == given


def test_a_merge_among_several_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "merge.sql").write_text("MERGE INTO {{ ds }} USING s ON true WHEN MATCHED THEN DELETE")
    (tmp_path / "query.sql").write_text("SELECT '{{ ds }}' AS id")
    merges = [{"sql": "merge.sql"}, {**GOOD, "source": "query.sql"}]
    merge = rendered(dag={"template_searchpath": [str(tmp_path)]}, merges=merges, **NO_PARTS)
    statement, config = build_merges(merge.merges)
    assert "MERGE INTO 2026-01-31" in statement.to_sql()
    assert isinstance(config, MergeConfig)
    assert config.source == MergeSource(query="SELECT '2026-01-31' AS id")


@pytest.mark.parametrize("parts", [{"source": "orders.sql"}, {**NO_PARTS, "sql": "merge.sql"}], ids=readable)
def test_a_missing_file_is_a_sentence_and_not_retried(parts: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match=r"names the file .*\.sql, which is neither beside the DAG file"):
        rendered(**parts)


def test_an_invalid_template_is_a_sentence_and_not_retried() -> None:
    with pytest.raises(AirflowFailException, match=r"^target is not a valid template: .*\. Correct it\."):
        rendered(target="/lake/{{ ds }")
