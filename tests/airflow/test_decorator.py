"""``@task.delta_merge``: what the function may return, what is refused at once, mapping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG, task

from airflow_delta_merge.config import (
    MergeConfig,
    MergeSource,
    MergeStatement,
    SourceExpectations,
    when_matched_delete,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.contract.outcome import JobOutcome, MergeOutcome
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.local_application import LocalApplication
from airflow_delta_merge.launch.spark_application import ApplicationEnd
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Upsert
from airflow_delta_merge.task_exceptions import DeltaMergeFailException
from tests.readable_ids import readable

PARTS: dict[str, Any] = {
    "target": "db.t",
    "on": ["id"],
    "clauses": [when_matched_update_all(), when_not_matched_insert_all()],
}
AROUND: dict[str, Any] = {"exactly_once": False, "asset_events": "never", "name": "merge"}
WHOLE = MergeConfig(**PARTS, source="other", guards={"on_empty_source": "skip"})


def decorated(function: Callable[..., Any], *arguments: Any, **parts: Any) -> Any:
    """The operator that the decorator makes of a function."""
    with DAG("decorated", schedule=None, params={"day": "2026-03-01"}):
        return task.delta_merge(**parts)(function)(*arguments).operator


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[MergeConfig | MergeStatement]:
    """What would have been merged."""
    seen: list[MergeConfig | MergeStatement] = []

    def merge(self: DeltaMergeHook, config: MergeConfig | MergeStatement, **_: Any) -> MergeResult:
        seen.append(config)
        return MergeResult(table="t", version_read=0, version=1, executor="", executor_reason="", num_inserted_rows=3)

    monkeypatch.setattr(DeltaMergeHook, "merge", merge)
    return seen


def run(operator: DeltaMergeOperator) -> Any:
    context: Any = {"params": {"day": "2026-03-01"}, "ti": None}
    operator.render_template_fields(context)
    return operator.execute(context)


def test_a_function_may_return_the_source_of_a_pattern(merged: list[MergeConfig | MergeStatement]) -> None:
    def day() -> str:
        return "/in/day.parquet"

    pattern = Upsert(keys=("id",))
    run(decorated(day, target="db.t", pattern=pattern, **AROUND))
    assert merged == [pattern.to_config(target="db.t", source="/in/day.parquet")]
    with pytest.raises(MergeConfigError, match=r"brings its own condition and clauses\. Remove on"):
        decorated(day, target="db.t", pattern=pattern, on=["id"])


@pytest.mark.parametrize(
    ("returned", "source"),
    [
        ("SELECT 1 AS id", MergeSource(query="SELECT 1 AS id")),
        ("db.s", MergeSource(table="db.s")),
        (Path("/in/a.csv"), MergeSource.of_path("/in/a.csv")),
        (["/in/a.json", Path("/in/b.json")], MergeSource.of_path(["/in/a.json", "/in/b.json"])),
        (
            {"path": "/in/a.csv", "options": {"header": True}},
            MergeSource.of_path("/in/a.csv", options={"header": True}),
        ),
        (MergeSource(table="db.s"), MergeSource(table="db.s")),
        ("/in/{{ params.day }}.parquet", MergeSource.of_path("/in/{{ params.day }}.parquet")),
        ("day.sql", MergeSource(table="day.sql")),
    ],
    ids=[
        "a query",
        "a table",
        "a file",
        "several files",
        "a dict",
        "a MergeSource",
        "a path that looks like a template",
        "a table that looks like a file",
    ],
)
def test_the_function_returns_the_source(returned: Any, source: MergeSource, merged: list[Any]) -> None:
    operator = decorated(lambda: returned, task_id="merge", **PARTS, **AROUND)
    result = run(operator)
    assert merged == [MergeConfig(**PARTS, source=source)]
    assert operator.statement == merged[0].to_sql(), "shown when the task has ended"
    assert result["num_inserted_rows"] == 3


def test_the_function_gets_its_arguments_and_the_context(merged: list[Any]) -> None:
    def pick(folder: str, params: Any = None) -> str:
        return f"{folder}/{params['day']}.csv"

    operator = decorated(pick, "/in/{{ params.day }}", **PARTS, **AROUND)
    assert (operator.task_id, operator.custom_operator_name) == ("pick", "@task.delta_merge")
    run(operator)
    assert merged[0].source.paths == ("/in/2026-03-01/2026-03-01.csv",)


@pytest.mark.parametrize(
    "whole",
    [WHOLE, MergeStatement(sql="MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE")],
    ids=[
        "a config",
        "a statement",
    ],
)
def test_the_function_returns_a_whole_merge(whole: MergeConfig | MergeStatement, merged: list[Any]) -> None:
    operator = decorated(lambda: whole, task_id="merge", **AROUND)
    run(operator)
    assert merged == [whole]
    assert operator.statement == whole.to_sql()


@pytest.mark.parametrize(
    ("returned", "parts", "sentence"),
    [
        (None, PARTS, "The function <lambda> returned None, but it must return the source: a query"),
        (7, PARTS, "returned a value of type int, but it must return the source"),
        ([1, 2], PARTS, "type list, but it must return the source"),
        ("", PARTS, "type str, but an empty one has no source to merge"),
        (WHOLE, PARTS, "type MergeConfig, but with target, on and clauses in the decorator"),
        ("db.s", {}, "type str, but without target, on, clauses in the decorator it must return a MergeConfig"),
        ({"path": "/in", "optoins": {}}, PARTS, "source has unknown keys: optoins"),
    ],
    ids=[
        "None",
        "a number",
        "a list of numbers",
        "an empty text",
        "a config beside parts in the decorator",
        "a table without parts in the decorator",
        "a misspelt key",
    ],
)
def test_an_invalid_return_value_fails_without_retries(
    returned: Any, parts: dict[str, Any], sentence: str, merged: list[Any]
) -> None:
    with pytest.raises(DeltaMergeFailException, match=sentence):
        run(decorated(lambda: returned, task_id="merge", **parts, **AROUND))
    assert merged == []


async def awaited() -> str:
    return "db.s"


def source() -> str:
    return "db.s"


@pytest.mark.parametrize(
    ("function", "parts", "sentence"),
    [
        (source, {"on": ["id"]}, r"lacks target, clauses\. Set .* target and pattern, or none"),
        (source, {"fail_if": ["num_deleted_rows > 1"], "null_safe": True}, "Remove null_safe, fail_if, too"),
        (source, PARTS | {"source": "db.s"}, "source returns what to merge. Remove source from the decorator"),
        (source, {"sql": "MERGE INTO t USING s"}, "Remove sql from the decorator"),
        (source, PARTS | {"clauses": [when_matched_delete(), when_matched_update_all()]}, "could never apply"),
        (source, PARTS | {"on": "id"}, r"use on=\['id'\]"),
        (source, PARTS | {"fail_if": {"deleted_rows": 1}}, "unknown count"),
        (awaited, PARTS, "awaited is async"),
    ],
    ids=[
        "no target and no clauses",
        "options without a target",
        "a source as well",
        "a statement as well",
        "a clause that never applies",
        "a key as text",
        "a guard on an unknown count",
        "an async function",
    ],
)
def test_refused_at_parse(function: Any, parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        decorated(function, **parts)


@pytest.mark.parametrize(
    ("decorator", "override", "sentence"),
    [
        ({"clauses": [when_matched_delete(), when_matched_update_all()]}, {}, "could never apply"),
        ({"max_commit_attempts": 0}, {}, "max_commit_attempts must be a whole number"),
        ({}, {"on": "id"}, "use on=['id']"),
        ({}, {"executor_cores": "two"}, "executor_cores must be a whole number"),
        ({}, {"source": "db.s"}, "Remove source from the decorator"),
        ({}, {"targte": "db.t"}, "targte"),
    ],
    ids=readable,
)
@pytest.mark.parametrize("by", ["expand", "expand_kwargs"])
def test_mapped_tasks_are_refused_at_parse(decorator: Any, override: Any, sentence: str, by: str) -> None:
    """Airflow builds mapped tasks only in a run, so each of these failed in each run."""

    def pick(folder: str, day: str) -> str:
        return f"{folder}/{day}"

    picked = task.delta_merge(**PARTS | decorator)(pick).override(**override).partial(folder="/in")
    with DAG("mapped", schedule=None) as dag, pytest.raises((MergeConfigError, TypeError)) as caught:
        picked.expand(day=["a"]) if by == "expand" else picked.expand_kwargs([{"day": "a"}])
    said = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert sentence in said
    assert "pick" in said
    assert dag.task_ids == []


def test_arguments_may_come_from_upstream_or_the_dag() -> None:
    with DAG("defaults", schedule=None, default_args={"on": ["id"], "clauses": PARTS["clauses"]}):
        upstream = DeltaMergeOperator(task_id="up", source="s", target="t")
        merge = task.delta_merge(target=upstream.output["table"])(source)()
    assert merge.operator.upstream_task_ids == {"up"}


def test_mapping_merges_each(merged: list[Any]) -> None:
    with DAG("mapped", schedule=None):

        @task.delta_merge(**PARTS, **AROUND)
        def pick(folder: str, day: str) -> str:
            return f"{folder}/{day}"

        mapped = pick.partial(folder="/in").expand(day=["a", "b"]).operator
    for day in ("a", "b"):
        run(mapped.unmap({"op_kwargs": {"day": day}}))
    assert [config.source.paths for config in merged] == [("/in/a",), ("/in/b",)]
    assert mapped.multiple_outputs is False


def test_a_dry_run_does_not_call_the_function(merged: list[Any]) -> None:
    with pytest.raises(NotImplementedError, match="The function source is not called for a dry run"):
        decorated(source, **PARTS).dry_run()


def test_secrets_that_a_function_returns_are_masked(monkeypatch: pytest.MonkeyPatch, merged: list[Any]) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    secret = {"path": "/in", "options": {"password": "of the source"}}
    run(decorated(lambda: secret, task_id="merge", **PARTS, **AROUND))
    whole = MergeConfig(**PARTS, source={"path": "/in", "options": {"password": "of the whole"}})
    run(decorated(lambda: whole, task_id="merge", **AROUND))
    assert masked == ["of the source", "of the whole"]


@pytest.mark.parametrize("parts", [PARTS, {}], ids=["the source", "a whole merge"])
def test_a_deferred_task_shows_and_reports_what_the_function_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any]
) -> None:
    from airflow.sdk.log import mask_secret

    mask_secret("a secret of the source")
    calls: list[int] = []

    def day() -> Any:
        calls.append(1)
        source = {"path": "/in/day.csv", "options": {"password": "a secret of the source"}}
        return source if parts else MergeConfig(**PARTS, source=source)

    monkeypatch.setattr(DeltaMergeHook, "start", lambda *_, **__: LocalApplication(tmp_path / "none"))
    merge = decorated(day, **parts, **AROUND, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        run(merge)
    kept = json.dumps(deferred.value.kwargs)
    assert "a secret of the source" not in kept
    resumed = decorated(day, **parts, **AROUND, deferrable=True)
    resumed.render_template_fields({"params": {}, "ti": None})
    result = MergeResult(table="db.t", version_read=0, version=1, executor="", executor_reason="", num_updated_rows=3)
    end = ApplicationEnd(outcome=JobOutcome(merges=(MergeOutcome(target="db.t", result=result),)), exit_code=0)
    event = {**json.loads(kept), "event": end.to_dict()}
    assert resumed.resume_execution(str(deferred.value.method_name), event, {}) == result.to_dict()
    assert resumed.statement == str(merge.statement).replace("a secret of the source", "***")
    assert [each.name for each in resumed.get_openlineage_facets_on_complete(None).inputs] == ["/in/day.csv"]
    assert calls == [1]


def test_expectations_go_with_the_merge_and_lineage_knows_the_source(merged: list[Any]) -> None:
    def day() -> str:
        return "/in/day.parquet"

    merge = decorated(day, **PARTS, **AROUND, expect_source={"unique": ["{{ params.day }}"]})
    assert merge.get_openlineage_facets_on_start() is None, "the function says what the source is"
    run(merge)
    assert merged[0].guards.expect_source == SourceExpectations(unique=("2026-03-01",))
    lineage = merge.get_openlineage_facets_on_complete(None)
    assert [each.name for each in lineage.inputs] == ["/in/day.parquet"]
    with pytest.raises(MergeConfigError, match="unknown keys: unqiue"):
        decorated(day, **PARTS, expect_source={"unqiue": ["id"]})
    with pytest.raises(MergeConfigError, match="Remove expect_source, too"):
        decorated(day, expect_source={"unique": ["id"]})
